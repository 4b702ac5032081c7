"""What a tap inside an application costs each chunk, beside a wrapper that does nothing.

In turns, the same chunks are read through a wrapper that only hands them on, and through the tap with its capture on: with a
sender, and a process that takes what it sends. `caller` is the CPU time of the thread that reads, which is what a stream
feels; `process` adds the sender's thread. Both are ratios to the pure wrapper, which does next to nothing. The third figure
says what the tap adds to the caller as a share of what httpcore takes for the same chunks, read from memory; and the
fourth says it in microseconds, of this machine alone. The last one is a share of the aim, half a microsecond on a machine
on which a pure ASGI wrapper takes 0.24 for a chunk: this machine's own wrapper says how fast it is. Each is a median of the
rounds.

    python -m bench.inprocess [--chunks N] [--rounds N] [--document FILE]
"""

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

import httpcore
import httpx

from bench import asgi
from bench.document import replace_section, table
from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.exchange_capture import ExchangeCapture
from streamgauge.taps.httpx_streams import AsyncResponseStream, SyncResponseStream
from streamgauge.taps.inprocess.background_sender import BackgroundSender
from streamgauge.taps.inprocess.capture import SeenRequest, start_capture

CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}\n\n' + b":" * 160 + b"\n\n"
# What is aimed at: CPU time of the reading thread above a pure wrapper, as a multiple of what a pure ASGI wrapper takes for a
# chunk. Half a microsecond where that took 0.24.
AIM = 0.5 / 0.24


class NoAgents:
    """No agent is started, and none is expected."""

    def recorder_unreachable(self, data_dir: Path) -> None:
        pass

    def will_start(self, data_dir: Path) -> bool:
        return False


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one reading."""

    caller: float
    process: float


@dataclass(frozen=True)
class Way:
    """One kind of tap: reads all chunks through a pure wrapper, or through the tap."""

    title: str
    pure: Callable[[int], object]
    tapped: Callable[[int, ExchangeCapture], object]


class Chunks(httpx.SyncByteStream, httpx.AsyncByteStream):
    """So many chunks, as they come from a socket."""

    def __init__(self, chunks: int) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self._chunks):
            yield CHUNK

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._chunks):
            yield CHUNK


class Pure(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Hands chunks on, and does nothing else."""

    def __init__(self, stream: Chunks) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:  # noqa: UP028 - as a wrapper does that looks at each chunk
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk


def read(stream: httpx.SyncByteStream) -> None:
    for _ in stream:
        pass


def read_async(stream: httpx.AsyncByteStream) -> None:
    async def run() -> None:
        async for _ in stream:
            pass

    asyncio.run(run())


def read_http(chunks: int) -> None:
    """The same chunks through httpcore, each read from memory as if it came from a socket."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire = [head, *[b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK)] * chunks, b"0\r\n\r\n"]
    with (
        httpcore.ConnectionPool(network_backend=httpcore.MockBackend(wire)) as pool,
        pool.stream("POST", "http://bench/v1/chat/completions") as response,
    ):
        for _ in response.iter_stream():
            pass


ASGI = Way(
    "ASGI",
    pure=lambda chunks: asgi.serve(asgi.Pure(asgi.sends(CHUNK, chunks))),
    tapped=lambda chunks, capture: asgi.serve(asgi.Tapped(asgi.sends(CHUNK, chunks), capture)),
)
# A tap of another kind adds its line.
WAYS = (
    Way(
        "httpx",
        pure=lambda chunks: read(Pure(Chunks(chunks))),
        tapped=lambda chunks, capture: read(SyncResponseStream(Chunks(chunks), capture)),  # type: ignore[arg-type]
    ),
    Way(
        "httpx, async",
        pure=lambda chunks: read_async(Pure(Chunks(chunks))),
        tapped=lambda chunks, capture: read_async(AsyncResponseStream(Chunks(chunks), capture)),  # type: ignore[arg-type]
    ),
    ASGI,
)


def take_all(path: str, listens: Event) -> None:
    """A recorder that takes everything and looks at nothing."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        listens.set()
        while True:
            one, _ = listening.accept()
            with one:
                while one.recv(1 << 20):
                    pass


def cost(run: Callable[[], object]) -> Cost:
    caller, process = time.thread_time(), time.process_time()
    run()
    return Cost(time.thread_time() - caller, time.process_time() - process)


def tapped(way: Way, chunks: int, sender: BackgroundSender) -> Cost:
    """The reading, and what the sender's thread does of it afterwards."""
    request = SeenRequest("httpx", "bench", "POST", "/v1/chat/completions", [], time.monotonic_ns())
    capture = start_capture(sender, request)
    process = time.process_time()
    reading = cost(lambda: way.tapped(chunks, capture))
    capture.end(time.monotonic_ns(), Ending.COMPLETE)
    sender.flush(10.0)
    return Cost(reading.caller, time.process_time() - process)


def row(way: Way, chunks: int, rounds: int, sender: BackgroundSender) -> list[str]:
    """What the tap costs beside the pure wrapper, and what it adds to httpcore."""
    found: list[tuple[float, ...]] = []
    for _ in range(rounds):
        pure, http = cost(lambda: way.pure(chunks)).caller, cost(lambda: read_http(chunks)).caller
        yardstick = cost(lambda: ASGI.pure(chunks)).caller - cost(lambda: ASGI.pure(0)).caller
        tap = tapped(way, chunks, sender)
        added = tap.caller - pure
        found.append(
            (tap.caller / pure, tap.process / pure, added / http, added / chunks * 1e6, added / yardstick / AIM)
        )
    caller, process, share, above, aim = (statistics.median(column) for column in zip(*found, strict=True))
    return [way.title, f"{caller:.1f}", f"{process:.1f}", f"{share:.3f}", f"{above:.2f}", f"{aim:.2f}"]


def rows(chunks: int, rounds: int, data_dir: Path) -> Iterator[list[str]]:
    """The table's rows, as they are measured."""
    yield ["tap", "caller", "process", "share of httpcore", "above the wrapper, us", "of the aim"]
    sender = BackgroundSender(data_dir, NoAgents())
    for way in WAYS:
        yield row(way, chunks, rounds, sender)
    sender.close(5.0)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.inprocess", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chunks", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        (data_dir / "run").mkdir()
        listens = spawn.Event()
        taker = spawn.Process(target=take_all, args=(str(data_dir / "run" / "recorder.sock"), listens), daemon=True)
        taker.start()
        try:
            listens.wait(30)
            found = []
            for one in rows(given.chunks, given.rounds, data_dir):
                found.append(one)
                print("  ".join(f"{cell:<17}" for cell in one), flush=True)
        finally:
            taker.terminate()
            taker.join()
    if given.document is not None:
        replace_section(given.document, "inprocess", table(found))


if __name__ == "__main__":
    main()
