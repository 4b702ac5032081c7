"""The lowest cost of a relay on uvloop: it moves bytes both ways. `python -m bench.peers.bare_relay PORT UPSTREAM_PORT`

Each client connection has its own connection to the upstream. Nothing is parsed, checked, limited, pooled or captured.
"""

import asyncio
import gc
import sys
from typing import cast

import uvloop


class _Upstream(asyncio.Protocol):
    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.close()


class _Client(asyncio.Protocol):
    def __init__(self, upstream_port: int) -> None:
        self._port = upstream_port
        self._upstream: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._upstream, _ = await loop.create_connection(lambda: _Upstream(self._transport), "127.0.0.1", self._port)
        self._upstream.writelines(self._early)

    def data_received(self, data: bytes) -> None:
        if self._upstream is None:
            self._early.append(data)
        else:
            self._upstream.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connecting.cancel()
        if self._upstream is not None:
            self._upstream.close()


async def _serve(port: int, upstream_port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Client(upstream_port), "127.0.0.1", port, backlog=2048)
    gc.freeze()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
