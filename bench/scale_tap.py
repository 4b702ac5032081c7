"""CPU of a real tap's relay and recorder for streams that come event by event.

`streamgauge up` forwards to an upstream in this process; this process also has the clients. Its own CPU does not count, nor
that of the parent, which assembles records.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

from tests.running import Running, start_up

from bench.measure import cpu_seconds, tree
from bench.scale_streams import PACE, REQUEST, stream_of

# How long the clients wait for a stream besides its own time (seconds).
_PATIENCE_S = 120.0
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_ASK = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n" % len(REQUEST)
)
_PARTS = {"relay": "streamgauge.taps.proxy", "recorder": "streamgauge.recorder"}


def measure(directory: Path, streams: int, events: int, capture: str, pace: float = PACE) -> dict[str, float]:
    """CPU seconds of each part for 1,000 streams; `streams` run at the same time. Raises SystemExit if one has no record."""
    return asyncio.run(_measure(directory, streams, events, capture, pace))


async def _measure(directory: Path, streams: int, events: int, capture: str, pace: float) -> dict[str, float]:
    texts = [stream_of(events, number) for number in range(min(streams, 50))]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(len(REQUEST))
                served.append(None)
                writer.write(_HEAD)
                loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
                for place, event in enumerate(texts[len(served) % len(texts)]):
                    await asyncio.sleep(max(0.0, began + place / pace - loop.time()))
                    writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                writer.write(b"0\r\n\r\n")
        writer.close()

    served: list[None] = []
    upstream = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = upstream.sockets[0].getsockname()[1]
    command = start_up(f"http://127.0.0.1:{port}", directory, "--capture", capture)
    running = await asyncio.to_thread(command.__enter__)
    try:
        await asyncio.gather(*(_ask(running, delay=0.0) for _ in range(2)))  # connections and code are warm
        parts = _parts(running)
        before = {part: cpu_seconds(pid) for part, pid in parts.items()}
        spread = min(1.0, events / pace)
        await asyncio.wait_for(
            asyncio.gather(*(_ask(running, delay=spread * number / streams) for number in range(streams))),
            events / pace + _PATIENCE_S,
        )
        records = await asyncio.to_thread(running.wait_for_records, streams + 2)
        spent = {part: cpu_seconds(pid) - before[part] for part, pid in parts.items()}
    finally:
        await asyncio.to_thread(command.__exit__, None, None, None)
        upstream.close()
    if {record["outcome"] for record in records} != {"completed"}:
        raise SystemExit("a stream of the tap's load is not completed")
    return {part: seconds / streams * 1_000 for part, seconds in spent.items()}


async def _ask(running: Running, delay: float) -> None:
    await asyncio.sleep(delay)
    host, _, port = running.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(_ASK + REQUEST)
    tail = b""
    while not tail.endswith(b"\r\n0\r\n\r\n"):
        data = await reader.read(1 << 16)
        if not data:
            raise SystemExit("the tap closed a connection before the stream's end")
        tail = (tail + data)[-16:]
    writer.close()


def _parts(running: Running) -> dict[str, int]:
    lines = tree(running.process.pid)
    found = {part: [pid for pid, line in lines.items() if module in line] for part, module in _PARTS.items()}
    if any(len(pids) != 1 for pids in found.values()):
        raise SystemExit(f"the processes of the tap are not those expected: {found}")
    return {part: pids[0] for part, pids in found.items()}
