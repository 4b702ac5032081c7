"""The recorder: what taps report to its socket becomes rows of the spool.

One run is one tap instance. `record` ends by one of these:

    a request to stop  record until every connection has ended, or no stream has been open for a while (taps in
                       applications stay connected), or the streams' part of the drain timeout has passed; then read what
                       was sent, and put farewells
    supervisor ended   read what the relays send until they exit, then put farewells
    a tap disconnects  its open streams end there, as cut
    SIGKILL            the next instance on this data directory declares this one dead
"""

import asyncio
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

from streamgauge import __version__
from streamgauge.core.capture.segments import BUNDLE_BYTES, BUNDLE_NS, Segment
from streamgauge.core.formats.json_rpc import CallResult
from streamgauge.recorder.batches import Batches
from streamgauge.recorder.bundler import HEARTBEAT_NS, Bundler
from streamgauge.recorder.installation_key import previous_key
from streamgauge.recorder.protocol import decode_batch
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings
from streamgauge.recorder.spool_writer import Lost, SpoolWriter, unfinished_instances
from streamgauge.recorder.tenant_headers import TenantHeaderCheck
from streamgauge.recorder.write_refusals import WriteRefusals
from streamgauge.runtime.child import say
from streamgauge.runtime.control import Control
from streamgauge.settings.declarations import SamplingSettings, Settings, SpoolSettings
from streamgauge.spool import Reserve, Spool
from streamgauge.spool.read_counters import Counters, Incident
from streamgauge.spool.response_counters import NotCaptured

# When this much waits, all of it is flushed, due or not: this bounds memory under load (bytes). A second of 20,000 reads.
FLUSH_BYTES = 8 * 1024 * 1024
# A flush normally runs when a batch arrives. Without a batch it runs after this time (ns).
_LATE_FLUSH_NS = BUNDLE_NS * 3 // 2
# How long the last rows are tried again on a disk that refuses them (s).
LAST_WRITES_S = 2.0
# How long streams that are behind are processed at the end of the process (s). Reads that still wait then are dropped.
LAST_READS_S = 2.0
# How often the spool is forced to the disk, and checked for rows that are too old (s). A power cut loses the rows since the
# last time; a shorter interval would keep the disk busy.
UPKEEP_S = 5.0

# No stream is open when none has been for this long (s): a relay holds the beginning of a stream for 260 ms, and later reads
# for 1.3 s. A service manager may send SIGTERM to the collector while relays still finish their streams.
QUIET_S = 1.5
# How long the relays of a supervisor that has ended may take to send what they have, and to exit (s).
ORPHANED_S = 1.0
# How long the loop may take to accept the connections that the kernel has queued (s): some turns of the loop.
ACCEPT_QUEUED_S = 0.05
# How long the data in the sockets' buffers may take to be read at the end (s): about 200 KiB each.
READ_REST_S = 0.5

# Streams that a flush has not processed after this time are behind (ns): the next flush is due.
FLUSH_NS = BUNDLE_NS
# Streams that are behind are processed until a flush has taken this long (ns): a third of the recorder's time, and up to two
# thirds of the time where records are made, where a hostile event takes twice as long. Segments come there in one queue, so
# that without this bound they would delay the records of all streams.
BEHIND_NS = BUNDLE_NS // 3
# Full bundles are put into the spool when there are this many: about 3 MiB.
_READY = 16


@dataclass(frozen=True)
class RecorderSettings(SamplingSettings, SpoolSettings):
    """The settings of recording. `data_dir`: the directory of spool, counters and key.

    `tenants`: names of tenants by credential id.
    """

    data_dir: Path
    capture: Literal["masked", "full"] = Settings.capture
    tenant_header: str | None = Settings.tenant_header
    tenants: dict[str, str] = field(default_factory=dict)


class RecorderProcess:
    """Everything between the relays' messages and the spool. `on_call` is called with each call of JSON-RPC that ends."""

    def __init__(self, settings: RecorderSettings, key: bytes, spool: Spool, counters: Counters) -> None:
        self._counters, self._spool = counters, spool
        self.on_call: Callable[[CallResult], None] | None = None
        # A small spool has small transactions: a bundle of at most half of one fits, with the overhead of its row.
        bundle_bytes = min(BUNDLE_BYTES, spool.most_at_once // 2)
        self._recorder = Recorder(
            CaptureSettings(
                settings.capture,
                __version__,
                key,
                settings.tenant_header,
                settings.tenants,
                settings.full_share,
                settings.tenant_source,
                previous_key(settings.data_dir),
            ),
            on_start=TenantHeaderCheck(settings.tenant_header, say).check,
            segment_bytes=bundle_bytes,
        )
        instance, now = uuid.uuid4().bytes, time.monotonic_ns()
        dead = unfinished_instances(spool)
        self._bundler = Bundler(instance, now, dead, HEARTBEAT_NS, bundle_bytes)
        self._reserve = Reserve(settings.data_dir / "spool.reserve", settings.spool_bytes)
        self._reserve.keep()
        refusals = WriteRefusals(str(settings.data_dir), counters, say, time.monotonic)
        self._writer = SpoolWriter(instance, spool, counters, settings, refusals, self._reserve)
        self._flushed_ns = self._due_flush_ns = now

    @property
    def open_streams(self) -> int:
        """Streams that have not ended."""
        return self._recorder.open_streams

    def handle_batch(self, source: int, body: bytes) -> None:
        """Process a batch of one relay, and flush if a flush is due. Raises msgspec.DecodeError if it cannot be decoded."""
        for message in decode_batch(body):
            self._recorder.handle(message, source)
        if self._recorder.pending_bytes > FLUSH_BYTES:
            self._flush(self._recorder.each_segment(_later(time.monotonic_ns() + FLUSH_NS)))
        elif self._since_due_flush_ns >= BUNDLE_NS:
            self.flush_due()

    def count_bad_batch(self) -> None:
        """Count data that is no batch."""
        self._counters.happened(Incident.BAD_BATCH)

    def disconnected(self, source: int) -> None:
        """End the open streams of a relay that has disconnected."""
        self._recorder.cut(source, time.monotonic_ns())

    def flush_due(self) -> None:
        """Flush the segments that are due, then some of the streams that are behind."""
        now = time.monotonic_ns()
        self._due_flush_ns = now
        behind = self._recorder.each_behind(_later(now + BEHIND_NS))
        self._flush(chain(self._recorder.each_due(_later(now + FLUSH_NS)), behind))

    def next_work_s(self) -> float:
        """The time until `run_due_work` is due (seconds)."""
        return max(self._late_ns - self._since_due_flush_ns, 0) / 1e9

    def run_due_work(self) -> None:
        """Flush if no batch has triggered a flush in time."""
        if self._since_due_flush_ns >= self._late_ns:
            self.flush_due()

    @property
    def _late_ns(self) -> int:
        """After how long a flush runs without a batch (ns): sooner if streams are behind."""
        return BUNDLE_NS if self._recorder.behind_bytes else _LATE_FLUSH_NS

    @property
    def _since_due_flush_ns(self) -> int:
        return time.monotonic_ns() - self._due_flush_ns

    def _flush(self, segments: Iterable[Segment]) -> None:
        """Put segments into the spool, a few bundles at a time: decoded data may need far more memory than waiting data."""
        self._count_of_websockets()
        now = self._add(segments)
        self._writer.send(self._bundler.take(now), self._bundler.slots)
        self._flushed_ns = now
        self._count()

    def _add(self, segments: Iterable[Segment]) -> int:
        """Put segments into bundles, and full bundles into the spool. Returns the time before the first segment (ns)."""
        now = time.monotonic_ns()
        for segment in segments:
            self._bundler.add((segment,), now, since_ns=self._flushed_ns)
            if self._bundler.ready >= _READY:
                self._writer.send(self._bundler.take_ready(), self._bundler.slots)
        return now

    async def upkeep(self) -> None:
        """Force the spool to the disk, on a thread since it may be slow; if the disk had no space for the reserve at its
        start, write the reserve as soon as it has. Then drop the reads of rows that are too old.
        """
        await asyncio.to_thread(self._spool.sync)
        await asyncio.to_thread(self._reserve.keep)
        until = time.monotonic() + UPKEEP_S  # what is left follows after the next sync
        while self._writer.drop_old_reads() and time.monotonic() < until:  # noqa: ASYNC110 - each call is one step
            await asyncio.sleep(BUNDLE_NS / 1e9)

    async def farewell(self) -> Lost | None:
        """Put the last bundles. If the disk refuses them, retry for LAST_WRITES_S; then return what is lost, else None."""
        is_late = _later(time.monotonic_ns() + round(LAST_READS_S * 1e9))
        self._count_of_websockets()
        self._add(chain(self._recorder.each_segment(is_late), self._recorder.each_behind(is_late)))
        self._recorder.drop_behind()
        now = time.monotonic_ns()
        self._bundler.add(self._recorder.segments(), now)
        self._writer.send(self._bundler.farewell(now), self._bundler.slots, farewell=True)
        self._count()
        deadline = now + round(LAST_WRITES_S * 1e9)
        while not self._writer.is_empty and time.monotonic_ns() < deadline:
            await asyncio.sleep(BUNDLE_NS / 1e9)
            self._writer.send((), self._bundler.slots, farewell=True)
        return self._writer.close(self._bundler.slots)

    def _count_of_websockets(self) -> None:
        """Count what WebSockets held: before anything else counts these reads and responses."""
        self._counters.seen(self._recorder.seen)
        for upstream, responses in self._recorder.made.items():
            for _ in range(responses):
                self._counters.responses.seen(upstream)
        for (upstream, without), responses in self._recorder.unmade.items():
            self._counters.responses.passed(upstream, without, responses)
        self._recorder.seen = 0
        self._recorder.made.clear()
        self._recorder.unmade.clear()

    def _count(self) -> None:
        for reason, reads in self._recorder.dropped.items():
            self._counters.dropped(reason, reads)
        for incident, times in self._recorder.incidents.items():
            self._counters.happened(incident, times)
        for upstream, streams in self._recorder.refused.items():
            self._counters.responses.not_captured(upstream, NotCaptured.LIMIT, streams)
        self._recorder.dropped.clear()
        self._recorder.incidents.clear()
        self._recorder.refused.clear()
        calls, self._recorder.calls = self._recorder.calls, []
        for call in calls:
            if self.on_call is not None:
                self.on_call(call)


def _later(moment_ns: int) -> Callable[[], bool]:
    """Whether a moment has passed."""
    return lambda: time.monotonic_ns() >= moment_ns


async def record(
    process: RecorderProcess, listening: socket.socket, control: Control, report_ready: Callable[[], None]
) -> Lost | None:
    """Record until `control` requests the end; then put farewells. Returns what the disk refused at the end, else None.

    The socket's path is removed first, so that no further tap connects.
    """
    loop = asyncio.get_running_loop()
    idle = asyncio.Event()
    connections: set[Batches] = set()
    idle.set()
    sources = iter(range(sys.maxsize))

    def on_close(connection: Batches) -> None:
        connections.discard(connection)
        if not connections:
            idle.set()

    def connected() -> Batches:
        connection = Batches(next(sources), process, on_close)
        connections.add(connection)
        idle.clear()
        return connection

    path = listening.getsockname()
    server = await loop.create_unix_server(connected, sock=listening)
    ticking, keeping = asyncio.ensure_future(_tick(process)), asyncio.ensure_future(_upkeep(process))
    report_ready()
    try:
        await _first(control.stopping.wait(), control.orphaned.wait(), ticking, keeping)
        drained = asyncio.ensure_future(_all_ended(process))
        await _first(idle.wait(), drained, control.orphaned.wait(), ticking, asyncio.sleep(control.streams_s))
        if control.orphaned.is_set():
            await _first(idle.wait(), ticking, asyncio.sleep(ORPHANED_S))
        drained.cancel()
    finally:
        ticking.cancel()
        keeping.cancel()
        _remove_socket(path)  # no new connections; the loop still accepts those that are queued
        await asyncio.sleep(ACCEPT_QUEUED_S)
        server.close()
        for connection in connections:
            connection.stop_reading()
        await _first(idle.wait(), asyncio.sleep(READ_REST_S))
        for connection in list(connections):
            if connection.transport is not None:
                connection.transport.abort()
        await _first(idle.wait(), asyncio.sleep(LAST_WRITES_S))
        lost = await process.farewell()
    return lost


async def _tick(process: RecorderProcess) -> None:
    while True:
        await asyncio.sleep(process.next_work_s())
        process.run_due_work()


async def _all_ended(process: RecorderProcess) -> None:
    """Wait until no stream has been open for QUIET_S."""
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < QUIET_S:
        await asyncio.sleep(BUNDLE_NS / 1e9)
        if process.open_streams:
            quiet_since = time.monotonic()


async def _upkeep(process: RecorderProcess) -> None:
    while True:
        await asyncio.sleep(UPKEEP_S)
        await process.upkeep()


async def _first(*awaitables: Awaitable[object]) -> None:
    """Wait until the first of these is done. Raises what it raised."""
    waiting = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for future, awaitable in zip(waiting, awaitables, strict=True):
        if future in pending and future is not awaitable:
            future.cancel()
    for future in done:
        future.result()


def listen(path: Path) -> socket.socket:
    """A socket that is bound to the path. A file of an earlier recorder is removed: it has ended, since the data directory
    has one collector. Raises OSError.
    """
    _remove_socket(path)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    return listening


def _remove_socket(path: str | Path) -> None:
    Path(path).unlink(missing_ok=True)
