"""A typical streaming proxy with httpx under uvicorn: a plain ASGI application, without the cost of a framework.

python -m bench.peers.httpx_proxy PORT UPSTREAM_PORT
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import uvicorn

_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade", b"host"})


def _end_to_end(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]


class Proxy:
    """The application. Its client has no limit of connections, because each stream needs one."""

    def __init__(self, upstream: int) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{upstream}", timeout=httpx.Timeout(None), limits=limits
        )

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = _end_to_end(scope["headers"])
        async with self._client.stream(scope["method"], scope["path"], headers=headers, content=body) as response:
            headers = _end_to_end(response.headers.raw)
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            async for piece in response.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def main() -> None:
    uvicorn.run(
        Proxy(int(sys.argv[2])),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="critical",
        date_header=False,
        server_header=False,
    )


if __name__ == "__main__":
    main()
