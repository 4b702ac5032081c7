"""The cost of a tap inside an application for each chunk, compared with a wrapper that does nothing.

The same chunks are read through a wrapper that only passes them on, and through the tap with its capture on: with a
sender, and another process that discards what it sends. `caller` is the CPU time of the thread that reads the stream;
`process` adds the sender's thread. Both are ratios to the pure wrapper, which does almost nothing. The third figure is
what the tap adds to the caller, as a share of the time that httpcore takes for the same chunks, read from memory. The
fourth is the same in microseconds of this machine. The last one is a share of the aim, which is 0.5 us on a machine on
which a pure ASGI wrapper takes 0.24 us for a chunk; this machine's wrapper shows its speed. All are medians of the
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
from contextlib import contextmanager
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
# The aim: the CPU time that the tap adds to the reading thread, as a multiple of the time of a pure ASGI wrapper for a
# chunk: 0.5 us on a machine on which that takes 0.24 us.
AIM = 0.5 / 0.24


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
    """This many chunks, as from a socket."""

    def __init__(self, chunks: int) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self._chunks):
            yield CHUNK

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._chunks):
            yield CHUNK


class Pure(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Passes chunks on, and does nothing else."""

    def __init__(self, stream: Chunks) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:  # noqa: UP028 - like a wrapper that reads each chunk
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
    """Reads the same chunks through httpcore, from memory instead of a socket."""
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
# A new kind of tap adds its line here.
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


def discard_all(path: str, listens: Event) -> None:
    """The main function of a recorder that discards everything it reads."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        listens.set()
        while True:
            connection, _ = listening.accept()
            with connection:
                while connection.recv(1 << 20):
                    pass


@contextmanager
def discarding_recorder(path: Path) -> Iterator[None]:
    """Runs a process that reads everything and discards it."""
    spawn = multiprocessing.get_context("spawn")
    listens = spawn.Event()
    process = spawn.Process(target=discard_all, args=(str(path), listens), daemon=True)
    process.start()
    try:
        listens.wait(30)
        yield
    finally:
        process.terminate()
        process.join()


def cost(run: Callable[[], object]) -> Cost:
    caller, process = time.thread_time(), time.process_time()
    run()
    return Cost(time.thread_time() - caller, time.process_time() - process)


def tapped(way: Way, chunks: int, sender: BackgroundSender) -> Cost:
    """The cost of the reading and of the sender's thread afterwards."""
    request = SeenRequest("httpx", "bench", "POST", "/v1/chat/completions", [], time.monotonic_ns())
    capture = start_capture(sender, request)
    process = time.process_time()
    reading = cost(lambda: way.tapped(chunks, capture))
    capture.end(time.monotonic_ns(), Ending.COMPLETE)
    sender.flush(10.0)
    return Cost(reading.caller, time.process_time() - process)


def row(way: Way, chunks: int, rounds: int, sender: BackgroundSender) -> list[str]:
    """The cost of the tap relative to the pure wrapper, and its addition relative to httpcore."""
    figures: list[tuple[float, ...]] = []
    for _ in range(rounds):
        pure, http = cost(lambda: way.pure(chunks)).caller, cost(lambda: read_http(chunks)).caller
        yardstick = cost(lambda: ASGI.pure(chunks)).caller - cost(lambda: ASGI.pure(0)).caller
        tap = tapped(way, chunks, sender)
        added = tap.caller - pure
        figures.append(
            (tap.caller / pure, tap.process / pure, added / http, added / chunks * 1e6, added / yardstick / AIM)
        )
    caller, process, share, above, aim = (statistics.median(column) for column in zip(*figures, strict=True))
    return [way.title, f"{caller:.1f}", f"{process:.1f}", f"{share:.3f}", f"{above:.2f}", f"{aim:.2f}"]


def rows(chunks: int, rounds: int, data_dir: Path) -> Iterator[list[str]]:
    """Yields the table's rows as they are measured."""
    yield ["tap", "caller", "process", "share of httpcore", "above the wrapper, us", "of the aim"]
    sender = BackgroundSender(data_dir)
    for way in WAYS:
        yield row(way, chunks, rounds, sender)
    sender.close(5.0)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.inprocess", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chunks", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        (data_dir / "run").mkdir()
        lines = []
        with discarding_recorder(data_dir / "run" / "recorder.sock"):
            for line in rows(given.chunks, given.rounds, data_dir):
                lines.append(line)
                print("  ".join(f"{cell:<17}" for cell in line), flush=True)
    if given.document is not None:
        replace_section(given.document, "inprocess", table(lines))


if __name__ == "__main__":
    main()
