"""A typical streaming proxy with aiohttp on uvloop: `python -m bench.peers.aiohttp_proxy PORT UPSTREAM_PORT`."""

import sys
from collections.abc import AsyncIterator, Mapping

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host"})
_KEY = web.AppKey("session", ClientSession)


def _end_to_end(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


async def _pass_on(request: web.Request) -> web.StreamResponse:
    session, upstream = request.app[_KEY], sys.argv[2]
    url = f"http://127.0.0.1:{upstream}{request.path_qs}"
    body = await request.read()
    async with session.request(
        request.method, url, headers=_end_to_end(request.headers), data=body, allow_redirects=False
    ) as received:
        response = web.StreamResponse(status=received.status, headers=_end_to_end(received.headers))
        await response.prepare(request)
        async for piece in received.content.iter_any():
            await response.write(piece)
        await response.write_eof()
        return response


async def _session(app: web.Application) -> AsyncIterator[None]:
    timeout, connector = ClientTimeout(total=None), TCPConnector(limit=0)
    async with ClientSession(timeout=timeout, connector=connector, auto_decompress=False) as session:
        app[_KEY] = session
        yield


def main() -> None:
    app = web.Application()
    app.cleanup_ctx.append(_session)
    app.router.add_route("*", "/{tail:.*}", _pass_on)
    web.run_app(
        app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, loop=uvloop.new_event_loop(), backlog=2048
    )


if __name__ == "__main__":
    main()
