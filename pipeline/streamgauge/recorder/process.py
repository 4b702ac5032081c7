"""The recorder's process: relays' batches come in over a Unix socket, rows go out into the spool.

`python -m streamgauge.recorder.process`. One life is one tap instance. The parent writes one line of JSON
(RecorderSettings) to stdin and keeps it open: its end says that the parent died. `ready` is said on stdout.

    SIGTERM            go on until every relay has disconnected, or no stream is open any more (taps in applications stay
                       connected), or the drain deadline; then take what is on its way, farewell, exit 0
    the parent died    farewell at once
    a relay is gone    what it left open ends there, cut
    SIGKILL            the next instance on this data directory declares this one dead

Exit codes: 0 done, 2 wrong settings, 3 the data directory or the socket is not to be had, or the disk refused the last rows,
70 a bug.
"""

import asyncio
import fcntl
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from streamgauge import __version__
from streamgauge.core.capture.segments import BUNDLE_BYTES, BUNDLE_NS, Segment
from streamgauge.errors import BUG, DONE, UNAVAILABLE, USAGE
from streamgauge.recorder.batches import Batches
from streamgauge.recorder.bundler import HEARTBEAT_NS, Bundler
from streamgauge.recorder.cpu_yield import pace, yield_cpu, yield_every
from streamgauge.recorder.credit import Credit
from streamgauge.recorder.installation_key import UnusableKeyError, installation_key
from streamgauge.recorder.protocol import ResponseRead, ResponseReads, decode_batch
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings
from streamgauge.recorder.spool_writer import Lost, Policy, SpoolWriter, unfinished_instances
from streamgauge.recorder.tenant_headers import TenantHeaderCheck
from streamgauge.recorder.write_refusals import WriteRefusals
from streamgauge.runtime.child import leave_terminal_to_parent, say
from streamgauge.runtime.faults import report_fault, report_loop_faults
from streamgauge.spool import MAX_AGE_S, MAX_BYTES, Reserve, Spool, close_balance_at_restart
from streamgauge.spool.read_counters import Counters, Incident

# So much that waits goes out at once, whatever is due: it bounds memory when much comes (bytes). A second of 20,000 reads.
FLUSH_BYTES = 8 * 1024 * 1024
# How late a look may be where no batch comes that would be its occasion.
_LATE_LOOK_NS = BUNDLE_NS * 3 // 2
# Streams that are behind have their turns when nothing is to be read, and for so long at each look (ns), so that they get on
# while much comes: what comes meanwhile, some MiB, waits in the relays' buffers.
LOOK_TURNS_NS = 30_000_000
# How long the last rows are offered to a disk that does not take them (s).
LAST_WORDS_S = 2.0
# How long streams that are behind have their turns when all ends (s); what is left of them then is dropped.
LAST_TURNS_S = 2.0
# How often what was put is forced to the disk, and what waits is looked at for its age (s): a power cut costs what came
# since, and a disk is not kept busy for it.
UPKEEP_S = 5.0

# How long connections that the kernel holds may take to be let in (s): some turns of the loop.
LET_IN_S = 0.05
# How long what the sockets hold may take to be read when connections are hung up (s): they hold some 200 KiB each.
HANG_UP_S = 0.5

# What is done before others get the core: a few tenths of a millisecond's work. Reads are only put aside, any other message
# may take as long as the rest.
_PUT_ASIDE = (ResponseRead, ResponseReads)
_READS = 64
_SEGMENTS = 1
# Full bundles that are put at a time: some 3 MiB.
_READY = 16
_BUNDLES = 1


class RecorderSettings(msgspec.Struct, frozen=True):
    """What the parent says. `socket`: the path to listen on; `data_dir`: spool, counters and key lie there."""

    socket: str
    data_dir: str
    capture: Literal["masked", "full"] = "masked"
    tenant_header: str | None = None
    tenants: dict[str, str] = {}
    heartbeat_s: float = HEARTBEAT_NS / 1e9
    drain_timeout_s: float = 30.0
    spool_max_bytes: int = MAX_BYTES
    spool_policy: Policy = "drop-newest"
    spool_max_age_s: float = MAX_AGE_S


class RecorderProcess:
    """Everything between the relays' messages and the spool."""

    def __init__(self, settings: RecorderSettings, key: bytes, spool: Spool, counters: Counters) -> None:
        self._counters, self._spool = counters, spool
        # A small spool takes less at once: what is no larger than half of it finds room, with what a row costs.
        bundle_bytes = min(BUNDLE_BYTES, spool.most_at_once // 2)
        self._recorder = Recorder(
            CaptureSettings(settings.capture, __version__, key, settings.tenant_header, settings.tenants),
            watch=TenantHeaderCheck(settings.tenant_header, say).look,
            segment_bytes=bundle_bytes,
        )
        instance, now = uuid.uuid4().bytes, time.monotonic_ns()
        dead = unfinished_instances(spool)
        self._bundler = Bundler(instance, now, dead, round(settings.heartbeat_s * 1e9), bundle_bytes)
        self._reserve = Reserve(Path(settings.data_dir) / "spool.reserve", settings.spool_max_bytes)
        self._reserve.keep()
        self._outbox = SpoolWriter(
            instance,
            spool,
            counters,
            settings.spool_policy,
            settings.spool_max_age_s,
            WriteRefusals(settings.data_dir, counters, say, time.monotonic),
            self._reserve,
        )
        self._flushed_ns = self._looked_ns = now
        self._credit = Credit()
        self._comes = False

    @property
    def open_streams(self) -> int:
        """Streams that have not ended."""
        return self._recorder.open_streams

    def comes(self) -> None:
        """A relay has sent something: more may be there to be read."""
        self._comes = True

    def batch(self, source: int, body: bytes) -> None:
        """A batch of one relay. Raises msgspec.DecodeError if it is none."""
        pace.came(len(body), time.monotonic_ns())
        for number, message in enumerate(decode_batch(body), 1):
            self._recorder.handle(message, source)
            if type(message) not in _PUT_ASIDE or number % _READS == 0:
                yield_cpu()
        if self._recorder.pending_bytes > FLUSH_BYTES:
            self._flush(self._recorder.each_segment())
        elif self._since_look_ns >= BUNDLE_NS:
            self.look()

    def bad_batch(self) -> None:
        """Something came that is no batch."""
        self._counters.happened(Incident.BAD_BATCH)

    def gone(self, source: int) -> None:
        """A relay has disconnected."""
        self._recorder.cut(source, time.monotonic_ns())

    def look(self) -> None:
        """What is due goes on its way."""
        self._looked_ns = time.monotonic_ns()
        self._flush(self._recorder.each_due())
        self._credit.grant()
        if self._has_turns:
            self._take_turns(LOOK_TURNS_NS)

    def rest_s(self) -> float:
        """When to `go_on` (seconds from now): as soon as what there is to be read is read, if turns are due."""
        return 0 if self._has_turns else max(self._late_ns - self._since_look_ns, 0) / 1e9

    def go_on(self) -> None:
        """Look, if no batch has been the occasion; else, where nothing comes, a turn of a stream that is behind."""
        came, self._comes = self._comes, False
        if self._since_look_ns >= self._late_ns:
            self.look()
        elif self._has_turns and not came:
            self._take_turns(0)

    @property
    def _late_ns(self) -> int:
        """After how long a look is late; streams that are behind wait for its credit."""
        return BUNDLE_NS if self._recorder.behind_bytes else _LATE_LOOK_NS

    @property
    def _has_turns(self) -> bool:
        return self._recorder.behind_bytes > 0 and self._credit.left

    def _take_turns(self, for_ns: int) -> None:
        """Turns of streams that are behind, one at least, as long as there is credit and for about so long."""
        began = before = time.monotonic_ns()
        while True:
            segments = self._recorder.turn()
            self._bundler.add(segments, before, since_ns=self._flushed_ns)
            now = time.monotonic_ns()
            self._credit.charge(now - before, segments)
            if now - began >= for_ns or not self._has_turns:
                break
            before = now
            yield_cpu()
        if self._bundler.ready >= _READY:
            self._outbox.send(self._bundler.take_ready(), self._bundler.slots)

    @property
    def _since_look_ns(self) -> int:
        return time.monotonic_ns() - self._looked_ns

    def _flush(self, segments: Iterable[Segment]) -> None:
        """A few bundles at a time: what is decoded may take far more room than what waited."""
        now = time.monotonic_ns()
        for segment in yield_every(segments, _SEGMENTS):
            self._bundler.add((segment,), now, since_ns=self._flushed_ns)
            if self._bundler.ready >= _READY:
                self._outbox.send(self._bundler.take_ready(), self._bundler.slots)
        self._outbox.send(yield_every(self._bundler.take(now), _BUNDLES), self._bundler.slots)
        self._flushed_ns = now
        self._count()

    async def upkeep(self) -> None:
        """What was put is forced to the disk, on a thread: it may take its time. Then what is too old is given up.

        Space that could not be kept at the start is kept as soon as the disk has room for it.
        """
        await asyncio.to_thread(self._spool.sync)
        await asyncio.to_thread(self._reserve.keep)
        while self._outbox.give_up_old():  # noqa: ASYNC110 - a step of it each time, until nothing is old
            await asyncio.sleep(BUNDLE_NS / 1e9)

    async def farewell(self) -> Lost | None:
        """Put the last bundles. A disk that does not take them is tried again for a moment; gives what is lost then."""
        until = time.monotonic_ns() + round(LAST_TURNS_S * 1e9)
        while self._recorder.behind_bytes and time.monotonic_ns() < until:
            self._take_turns(0)
        self._recorder.drop_behind()
        now = time.monotonic_ns()
        self._bundler.add(self._recorder.segments(), now)
        self._outbox.send(self._bundler.farewell(now), self._bundler.slots, farewell=True)
        self._count()
        deadline = now + round(LAST_WORDS_S * 1e9)
        while not self._outbox.is_empty and time.monotonic_ns() < deadline:
            await asyncio.sleep(BUNDLE_NS / 1e9)
            self._outbox.send((), self._bundler.slots, farewell=True)
        return self._outbox.close(self._bundler.slots)

    def _count(self) -> None:
        for reason, reads in self._recorder.dropped.items():
            self._counters.dropped(reason, reads)
        for incident, times in self._recorder.incidents.items():
            self._counters.happened(incident, times)
        self._recorder.dropped.clear()
        self._recorder.incidents.clear()


async def serve(
    settings: RecorderSettings, process: RecorderProcess, listening: socket.socket, said_ready: Callable[[], None]
) -> Lost | None:
    """Record until SIGTERM or the parent's end; then say farewell. Gives what the disk did not take at the end."""
    loop = asyncio.get_running_loop()
    draining, orphaned, idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
    connections: set[Batches] = set()
    idle.set()
    sources = iter(range(sys.maxsize))

    def left(connection: Batches) -> None:
        connections.discard(connection)
        if not connections:
            idle.set()

    def connected() -> Batches:
        connection = Batches(next(sources), process, left)
        connections.add(connection)
        idle.clear()
        return connection

    loop.set_exception_handler(report_loop_faults("the recorder's process"))
    loop.add_signal_handler(signal.SIGTERM, draining.set)
    _watch_parent(loop, orphaned)
    server = await loop.create_unix_server(connected, sock=listening)
    ticking, keeping = asyncio.ensure_future(_tick(process)), asyncio.ensure_future(_upkeep(process))
    said_ready()
    try:
        await _first(draining.wait(), orphaned.wait(), ticking, keeping)
        drained = asyncio.ensure_future(_all_ended(process))
        await _first(idle.wait(), drained, orphaned.wait(), ticking, asyncio.sleep(settings.drain_timeout_s))
        drained.cancel()
    finally:
        ticking.cancel()
        keeping.cancel()
        _take_away(settings.socket)  # nobody comes any more; who came just now is still let in
        await asyncio.sleep(LET_IN_S)
        server.close()
        for connection in connections:
            connection.hang_up()
        await _first(idle.wait(), asyncio.sleep(HANG_UP_S))
        for connection in list(connections):
            if connection.transport is not None:
                connection.transport.abort()
        await _first(idle.wait(), asyncio.sleep(LAST_WORDS_S))
        lost = await process.farewell()
    return lost


async def _tick(process: RecorderProcess) -> None:
    while True:
        await asyncio.sleep(process.rest_s())
        process.go_on()


async def _all_ended(process: RecorderProcess) -> None:
    while process.open_streams:  # noqa: ASYNC110 - asked while it drains, and never else
        await asyncio.sleep(BUNDLE_NS / 1e9)


async def _upkeep(process: RecorderProcess) -> None:
    while True:
        await asyncio.sleep(UPKEEP_S)
        await process.upkeep()


async def _first(*awaitables: Awaitable[object]) -> None:
    """Wait for the first of these; what it raises is raised."""
    waiting = [asyncio.ensure_future(one) for one in awaitables]
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for one, awaitable in zip(waiting, awaitables, strict=True):
        if one in pending and one is not awaitable:
            one.cancel()
    for one in done:
        one.result()


def _watch_parent(loop: asyncio.AbstractEventLoop, orphaned: asyncio.Event) -> None:
    """The parent holds the other end of stdin: when it is closed, the parent is gone."""
    stdin = sys.stdin.fileno()

    def readable() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            orphaned.set()

    loop.add_reader(stdin, readable)


def _run(settings: RecorderSettings) -> int:
    """Raises OSError and UnusableKeyError for what is not to be had."""
    data_dir = Path(settings.data_dir)
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(data_dir / "recorder.lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(f"another recorder uses the data directory {data_dir}: give each tap its own --data-dir\n")
        return UNAVAILABLE
    counters = Counters(data_dir / "counters", "recorder")
    spool = Spool(data_dir / "spool.sqlite", settings.spool_max_bytes, counters)
    close_balance_at_restart(spool, data_dir / "counters")
    process = RecorderProcess(settings, installation_key(data_dir), spool, counters)
    listening = _listen(Path(settings.socket))
    lost = asyncio.run(serve(settings, process, listening, _say_ready))
    spool.close()
    counters.close()
    if lost is None:
        return DONE
    say(lost.sentence(settings.data_dir))
    return UNAVAILABLE


def _listen(path: Path) -> socket.socket:
    _take_away(path)  # of a recorder that was killed: the lock says that it is gone
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    return listening


def _take_away(path: str | Path) -> None:
    Path(path).unlink(missing_ok=True)


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main() -> int:
    """The process: gives its exit code."""
    leave_terminal_to_parent()
    os.umask(0o077)
    try:
        settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=RecorderSettings)
    except msgspec.DecodeError as error:
        sys.stderr.write(f"the recorder's settings cannot be read: {error}\n")
        return USAGE
    try:
        return _run(settings)
    except (OSError, UnusableKeyError) as error:
        sys.stderr.write(f"the recorder cannot start: {error}\n")
        return UNAVAILABLE
    except Exception as error:  # noqa: BLE001 - Python would print its text, which may quote a stream; it is started again
        report_fault("the recorder's process, which exits", error)
        return BUG


if __name__ == "__main__":
    sys.exit(main())
