"""The recorder's process, with real sockets and signals: all input reaches the spool, however the process ends."""

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamgauge.cli.collector_settings import CollectorSettings
from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import decode_bundle
from streamgauge.core.capture.segments import BUNDLE_BYTES, Bundle, Ending
from streamgauge.core.record import Record
from streamgauge.errors import BUG, UNAVAILABLE
from streamgauge.recorder.batches import MAX_BATCH_BYTES
from streamgauge.recorder.process import RecorderProcess, RecorderSettings
from streamgauge.recorder.protocol import Message, RequestBody, ResponseRead, encode_batch
from streamgauge.recorder.spool_writer import SpoolWriter, unfinished_instances
from streamgauge.runtime.child import encode_settings, start_failure
from streamgauge.runtime.listeners import Address, listening_socket
from streamgauge.settings.declarations import Settings
from streamgauge.spool import Spool, close_balance_after_crash
from streamgauge.spool.read_counters import Balance, Counters, read_balance, read_incidents
from streamgauge.taps.replay.contract import Tally
from streamgauge.taps.replay.spool_rows import logged
from tests.taps.talk import EVENTS, SSE, answer, arrivals, ended, head, opened

pytestmark = pytest.mark.slow

# For what takes milliseconds; generous, since the machine may be busy (s).
PATIENCE_S = 30.0
MIB = 1024 * 1024


@contextlib.contextmanager
def recording(folder: Path) -> Iterator[tuple[RecorderProcess, Spool]]:
    """A recorder in this process without supervision; its spool has what it writes by itself."""
    with Counters(folder / "counters", "recorder") as counters:
        spool = Spool(folder / "spool.sqlite", 256 * MIB, counters)
        yield RecorderProcess(RecorderSettings(data_dir=folder, capture="full"), bytes(32), spool, counters), spool
        spool.close()


def hand_in(process: RecorderProcess, *messages: Message) -> None:
    process.handle_batch(0, encode_batch(list(messages))[4:])  # type: ignore[arg-type]


def test_waiting_segments_are_written_when_they_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "FLUSH_NS",
        "BUNDLE_NS",
    ):  # no flush is due by time, and a flush takes all, however slow the machine is
        monkeypatch.setattr(f"streamgauge.recorder.process.{name}", 60_000_000_000)
    with recording(tmp_path) as (process, spool):
        for stream in range(180):
            hand_in(process, opened(stream=stream), *arrivals(head(SSE), stream=stream))
        process.flush_due()
        before = spool.waiting().rows
        event = b"data: " + b"x" * 50_000 + b"\n\n"
        for stream in range(140):
            hand_in(process, *arrivals(event, stream=stream))
        assert spool.waiting().rows == before
        for stream in range(140, 180):
            hand_in(process, *arrivals(event, stream=stream))
        assert spool.waiting().rows > before + 40


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_a_few_bundles_are_written_at_a_time(tmp_path: Path, coding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoded bundles are larger than their segments, so not all are held at once."""
    put: list[int] = []
    send = SpoolWriter.send

    def counted(self: SpoolWriter, bundles: Iterable[Bundle], *more: Any, **others: Any) -> None:
        held = list(bundles)
        put.append(len(held))
        send(self, held, *more, **others)

    monkeypatch.setattr(SpoolWriter, "send", counted)
    monkeypatch.setattr("streamgauge.recorder.process.LAST_READS_S", 60.0)  # everything, however slow the machine is
    body = EVENTS[0] * (4 * MIB // len(EVENTS[0]))
    packed = zlib.compress(body, wbits=31) if coding == "gzip" else body
    size = len(packed) // 100
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
    begin = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: {coding}\r\n\r\n".encode()
    with recording(tmp_path) as (process, spool):
        for stream in range(8):
            hand_in(process, opened(stream=stream), *arrivals(begin, *pieces, stream=stream), ended(stream=stream))
        asyncio.run(process.farewell())
        assert sum(put) > 8 * 4 * MIB // BUNDLE_BYTES
        assert max(put) < 3 * 16
        found = records([decode_bundle(row.value) for row in spool.take(0, 1 << 40)])
    assert [record.counts.events for record in found] == [len(body) // len(EVENTS[0])] * 8


def collector_settings(socket: Path, data: Path, admin_fd: int, **settings: Any) -> bytes:
    declared = Settings(data_dir=data, **settings)
    return encode_settings(CollectorSettings(declared, "ledger", "up", str(socket), (admin_fd,)))


class Recording:
    """A collector that delivers nothing, and its data directory."""

    def __init__(self, folder: Path, *arguments: str, **settings: Any) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir(mode=0o700, exist_ok=True)
        self.socket = folder / "recorder.sock"
        with listening_socket(Address("127.0.0.1", 0), "--admin") as admin:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.recorder.alone", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[admin.fileno()],
            )
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.write(collector_settings(self.socket, self.data, admin.fileno(), **settings) + b"\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == b"ready\n", self.process.communicate()[1].decode()

    def relay(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE_S)
        connection.connect(str(self.socket))
        return connection

    def tell(self, connection: socket.socket, *messages: Message) -> None:
        """Sends as a relay does: counts as seen, then sends."""
        with Counters(self.data / "counters", "relay-0") as counters:
            counters.seen(sum(isinstance(message, ResponseRead) for message in messages))
        connection.sendall(encode_batch(list(messages)))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def end_supervisor(self) -> None:
        """What its collector sees when a supervisor has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        assert self.process.communicate()[1] == b""
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def bundles(self) -> list[Bundle]:
        return [read.bundle for read in logged(self.data / "spool.sqlite", Tally())]

    def unfinished(self) -> dict[bytes, list[int]]:
        with contextlib.closing(Spool(self.data / "spool.sqlite")) as spool:
            return unfinished_instances(spool)

    def until(self, condition: object) -> list[Bundle]:
        """The spool's bundles, once the condition holds for them."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            read_s = time.monotonic()
            if condition(bundles := self.bundles()):  # type: ignore[operator]
                return bundles
            assert time.monotonic() < deadline, bundles
            # To read them all takes at most a quarter of the time.
            time.sleep(max(0.02, 3 * (time.monotonic() - read_s)))

    def balance(self) -> Balance:
        return read_balance(self.data / "counters")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Recording]]:
    """Processes that the test started; none is left after it."""
    running: list[Recording] = []
    yield running
    for one in running:
        one.kill()


def start(started: list[Recording], folder: Path, *arguments: str, **settings: Any) -> Recording:
    started.append(Recording(folder, *arguments, **settings))
    return started[-1]


def records(bundles: list[Bundle]) -> list[Record]:
    assembler = Assembler()
    return [record for offset, bundle in enumerate(bundles) for record in assembler.apply(offset, 0, bundle)]


def reads_in(bundles: list[Bundle]) -> int:
    return sum(len(segment.reads) for bundle in bundles for segment in bundle.segments)


WHOLE = answer(head(SSE), *EVENTS)
HALF = [opened(stream=9), *arrivals(head(SSE), EVENTS[0], EVENTS[1], stream=9)]


def test_a_stream_from_a_relay_to_the_spool(started: list[Recording], tmp_path: Path) -> None:
    recording = start(started, tmp_path, capture="full")
    with recording.relay() as relay:
        recording.tell(relay, *WHOLE)
    assert recording.stop() == 0
    bundles = recording.bundles()
    (record,) = records(bundles)
    assert (record.outcome, record.counts.token_events, record.counts.reads) == ("completed", 2, 7)
    assert record.integrity.complete
    assert {bundle.instance for bundle in bundles} == {bundles[0].instance}
    assert [bundle.number for bundle in bundles] == list(range(len(bundles)))
    assert [bundle.farewell for bundle in bundles] == [False] * (len(bundles) - 1) + [True]
    balance = recording.balance()
    assert (balance.seen, balance.waiting, sum(balance.dropped.values())) == (7, 7, 0)
    assert recording.unfinished() == {}


def flood(stream: int, events: int) -> list[Message]:
    """A stream of the shortest events with data, in reads of 64 KiB."""
    wire = b"data:x\n\n" * events
    reads = [wire[at : at + 65_536] for at in range(0, len(wire), 65_536)]
    return [opened(stream=stream), *arrivals(head(SSE), *reads, stream=stream), ended(stream=stream)]


def test_floods_do_not_delay_other_streams(started: list[Recording], tmp_path: Path) -> None:
    recording = start(started, tmp_path)
    with recording.relay() as relay:
        for stream in range(10, 14):
            recording.tell(relay, *flood(stream, 50_000))
        recording.tell(relay, *WHOLE)
        first = records(recording.until(records))
        assert [record.counts.events for record in first] == [5]
        assert first[0].integrity.complete
        bundles = recording.until(lambda bundles: len(records(bundles)) == 5)
    assert recording.stop() == 0
    found = [record for record in records(bundles) if record.counts.events != 5]
    assert [(record.counts.events, record.integrity.complete) for record in found] == [(50_000, True)] * 4
    balance = recording.balance()
    assert (balance.seen, sum(balance.dropped.values())) == (balance.waiting, 0)


def test_a_stop_does_not_wait_for_floods(started: list[Recording], tmp_path: Path) -> None:
    """Their waiting reads are dropped then, and their records say so."""
    recording = start(started, tmp_path)
    with recording.relay() as relay:
        for stream in range(10, 14):
            recording.tell(relay, *flood(stream, 1_000_000))
        recording.tell(relay, *WHOLE)
        recording.until(records)
    assert recording.stop() == 0
    bundles = recording.bundles()
    floods = [record for record in records(bundles) if record.counts.events != 5]
    assert len(floods) == 4
    assert {tuple(record.integrity.reasons) for record in floods} == {("dropped_reads",)}
    balance = recording.balance()
    assert balance.waiting == reads_in(bundles)
    assert balance.dropped["recorder_behind"] == sum(balance.dropped.values()) == balance.seen - balance.waiting
    assert balance.dropped["recorder_behind"] == sum(record.integrity.dropped_reads for record in floods)


def test_a_batch_in_pieces_and_several_batches_at_once(started: list[Recording], tmp_path: Path) -> None:
    recording = start(started, tmp_path)
    bytes_told = b"".join(encode_batch([message]) for message in WHOLE)
    with recording.relay() as relay:
        for at in range(0, len(bytes_told), 7):
            relay.sendall(bytes_told[at : at + 7])
        relay.sendall(encode_batch([]) + bytes_told)
    assert recording.stop() == 0
    assert [record.outcome for record in records(recording.bundles())] == ["completed"] * 2


def test_rows_are_written_while_the_stream_runs_and_heartbeats_while_idle(
    started: list[Recording], tmp_path: Path
) -> None:
    recording = start(started, tmp_path, "0.2")
    with recording.relay() as relay:
        recording.tell(relay, *HALF)
        bundles = recording.until(lambda bundles: reads_in(bundles) == 3)
        assert not any(segment.end for bundle in bundles for segment in bundle.segments)
        so_far = len(bundles)
        bundles = recording.until(lambda bundles: len(bundles) >= so_far + 3)
        assert all(bundle.segments == [] for bundle in bundles[so_far:])
        assert [bundle.tap_ns for bundle in bundles] == sorted(bundle.tap_ns for bundle in bundles)


def test_sigterm_waits_for_the_relays(started: list[Recording], tmp_path: Path) -> None:
    recording = start(started, tmp_path)
    with recording.relay() as relay:
        recording.tell(relay, *WHOLE[:4])
        recording.process.send_signal(signal.SIGTERM)
        recording.process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            recording.process.wait(1.0)
        recording.tell(relay, *WHOLE[4:])
    assert recording.wait() == 0
    (record,) = records(recording.bundles())
    assert (record.outcome, record.counts.reads) == ("completed", 7)


def test_a_relay_that_stays_connected_is_cut_at_the_deadline(started: list[Recording], tmp_path: Path) -> None:
    recording = start(started, tmp_path, drain_timeout=0.3)
    with recording.relay() as relay:
        recording.tell(relay, *HALF)
        recording.until(lambda bundles: reads_in(bundles) == 3)
        assert recording.stop() == 0
    last = recording.bundles()[-1]
    assert last.farewell
    assert [segment.end.ending for segment in last.segments if segment.end] == [Ending.CUT]
    assert recording.balance().waiting == 3


def test_the_end_of_the_supervisor_stops_it_in_order(started: list[Recording], tmp_path: Path) -> None:
    recording = start(started, tmp_path)
    with recording.relay() as relay:
        recording.tell(relay, *HALF)
        recording.until(lambda bundles: reads_in(bundles) == 3)
        recording.end_supervisor()
        assert recording.process.wait(PATIENCE_S) == 0
    assert recording.bundles()[-1].farewell


def test_what_relays_send_after_the_end_of_the_supervisor_is_stored(started: list[Recording], tmp_path: Path) -> None:
    """A relay sends what it has when its own stdin ends, and exits a moment later."""
    recording = start(started, tmp_path)
    with recording.relay() as relay:
        recording.tell(relay, *HALF)
        recording.until(lambda bundles: reads_in(bundles) == 3)
        recording.end_supervisor()
        time.sleep(0.3)
        recording.tell(relay, *arrivals(*EVENTS[2:4], stream=9))
    assert recording.process.wait(PATIENCE_S) == 0
    assert reads_in(recording.bundles()) == 5


def test_the_streams_of_a_relay_that_disconnects_are_cut_and_no_others(
    started: list[Recording], tmp_path: Path
) -> None:
    recording = start(started, tmp_path)
    with recording.relay() as staying:
        recording.tell(staying, *HALF)
        with recording.relay() as going:
            recording.tell(going, *HALF, *WHOLE)
        bundles = recording.until(lambda bundles: len(ends(bundles)) == 2)
        assert sorted(ends(bundles)) == [Ending.COMPLETE, Ending.CUT]
        recording.tell(staying, ended(stream=9))
        bundles = recording.until(lambda bundles: len(ends(bundles)) == 3)
        assert sorted(ends(bundles)) == [Ending.COMPLETE, Ending.COMPLETE, Ending.CUT]


def ends(bundles: list[Bundle]) -> list[Ending]:
    return [segment.end.ending for bundle in bundles for segment in bundle.segments if segment.end]


@pytest.mark.parametrize(
    "rubbish",
    [
        struct.pack(">I", 5) + b"\xc1\xc1\xc1\xc1\xc1",
        struct.pack(">I", MAX_BATCH_BYTES + 1),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">I", 4) + b"\x91\x92\x63\x01",
        struct.pack(">I", 100_000) + b"\x91" * 100_000,
    ],
)
def test_a_malformed_batch_ends_only_its_connection(started: list[Recording], tmp_path: Path, rubbish: bytes) -> None:
    recording = start(started, tmp_path)
    with recording.relay() as staying, recording.relay() as hostile:
        recording.tell(staying, *WHOLE[:3])
        hostile.sendall(encode_batch(HALF) + rubbish)
        with contextlib.suppress(ConnectionResetError):
            assert hostile.recv(1) == b""
        recording.tell(staying, *WHOLE[3:])
        bundles = recording.until(lambda bundles: len(ends(bundles)) == 2)
    assert sorted(ends(bundles)) == [Ending.COMPLETE, Ending.CUT]
    assert recording.stop() == 0
    assert read_incidents(recording.data / "counters")["bad_batch"] == 1


def test_sigkill_loses_what_was_in_flight_and_the_next_process_names_the_ended_instance(
    started: list[Recording], tmp_path: Path
) -> None:
    first = start(started, tmp_path)
    relay = first.relay()
    first.tell(relay, *WHOLE, *HALF)
    first.until(lambda bundles: reads_in(bundles) == 10)
    first.tell(relay, *arrivals(*EVENTS[2:5], stream=9))
    first.process.kill()
    first.process.wait(PATIENCE_S)
    relay.close()

    spool = Spool(first.data / "spool.sqlite")
    stored = spool.waiting().reads
    balance = close_balance_after_crash(spool, first.data / "counters")
    spool.close()
    assert (balance.seen, balance.waiting, balance.dropped["crash"]) == (13, stored, 13 - stored)

    second = start(started, tmp_path)
    with second.relay() as relay:
        second.tell(relay, *WHOLE)
    assert second.stop() == 0
    bundles = second.bundles()
    dead, alive = bundles[0].instance, bundles[-1].instance
    assert dead != alive
    declaring = [bundle for bundle in bundles if bundle.dead]
    assert [(bundle.instance, bundle.number, bundle.dead) for bundle in declaring] == [(alive, 0, [dead])]
    assert {bundle.slot for bundle in bundles} == {bundles[0].slot}
    outcomes = sorted(record.outcome for record in records(bundles))
    assert outcomes == ["abandoned", "completed", "completed"]
    assert second.balance().waiting == stored + 7
    assert sum(second.balance().dropped.values()) == 13 - stored


def test_killed_repeatedly_every_stream_has_one_record(started: list[Recording], tmp_path: Path) -> None:
    """Killed at any moment, also before the spool has its instance: no stream is lost or stored twice."""
    began = 0
    for round_ in range(6):
        recording = start(started, tmp_path)
        relay = recording.relay()
        stored = reads_in(recording.bundles())
        for number in range(round_ + 1):
            recording.tell(relay, *(set_stream(message, number) for message in HALF))
            began += 1
        if round_:
            recording.until(lambda bundles, before=stored: reads_in(bundles) > before)
        time.sleep(0.03 * round_)
        recording.process.kill()
        recording.process.wait(PATIENCE_S)
        relay.close()
    last = start(started, tmp_path)
    assert last.stop() == 0
    bundles = last.bundles()
    found = records(bundles)
    in_log = {segment.stream for bundle in bundles for segment in bundle.segments}
    assert sorted(record.stream_id for record in found) == sorted(str_id(stream) for stream in in_log)
    assert {record.outcome for record in found} <= {"abandoned"}
    assert len(in_log) <= began
    assert last.unfinished() == {}


def set_stream(message: Message, number: int) -> Message:
    return msgspec.structs.replace(message, stream=number)


def str_id(stream: bytes) -> str:
    text = stream.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def test_a_full_spool_keeps_heads_and_ends_and_all_reads_are_counted(started: list[Recording], tmp_path: Path) -> None:
    recording = start(started, tmp_path, capture="full", spool_bytes=1 * MIB)
    streams = 150
    with recording.relay() as relay:
        for number in range(streams):
            event = b"data: {" + os.urandom(10_000).hex().encode() + b"\n\n"
            messages = answer(head(SSE), event, b"data: [DONE]\n\n")
            recording.tell(relay, *(set_stream(message, number) for message in messages))
    assert recording.stop() == 0
    found = records(recording.bundles())
    assert len(found) == streams
    incomplete = [record for record in found if not record.integrity.complete]
    assert 0 < len(incomplete) < streams
    balance = recording.balance()
    assert balance.seen == 3 * streams
    assert balance.dropped["spool_full"] == sum(record.integrity.dropped_reads for record in found) > 0
    assert balance.waiting == reads_in(recording.bundles())
    size = sum(file.stat().st_size for file in recording.data.glob("spool.sqlite*"))
    assert size <= 1 * MIB + 64 * 1024  # the memory-mapped index of the log is additional


def test_a_secret_is_nowhere_in_the_data_directory(started: list[Recording], tmp_path: Path) -> None:
    recording = start(started, tmp_path)
    canary = b"canary-7261"
    request_body = b'{"model":"m","messages":[{"content":"' + canary + b'"}]}'
    first = opened("/v1/messages?key=" + canary.decode(), ("authorization", "Bearer " + canary.decode()))
    text = b'data: {"choices":[{"index":0,"delta":{"content":"' + canary + b'"}}]}\n\n'
    with recording.relay() as relay:
        recording.tell(relay, first, RequestBody(1, request_body), *arrivals(head(SSE), text, text[:-3]), ended())
    assert recording.stop() == 0
    assert len(records(recording.bundles())) == 1
    for file in filter(Path.is_file, recording.data.rglob("*")):
        assert file.stat().st_mode & 0o077 == 0, file
        assert canary not in file.read_bytes(), file
    for bundle in recording.bundles():
        assert canary not in msgspec.msgpack.encode(bundle)


def run(settings: bytes) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.recorder.alone"]
    done = subprocess.run(command, input=settings + b"\n", capture_output=True, timeout=PATIENCE_S, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_wrong_settings_are_reported() -> None:
    for wrong in (b"", b"{}", b"rubbish", b'{"settings":{},"to":"nowhere"}'):
        done = run(wrong)
        assert (done.returncode, done.stdout) == (BUG, "")
        assert done.stderr.startswith("the collector's settings cannot be read: ")
        assert done.stderr.count("\n") == 1


def test_an_unusable_data_directory_or_socket_is_reported_to_the_supervisor(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for socket_path, data, sentence in (
        (tmp_path / "s", tmp_path / "file", "the data directory"),
        (tmp_path / "missing" / "s", tmp_path, "the socket"),
    ):
        done = run(collector_settings(socket_path, data, 0))
        assert done.returncode == UNAVAILABLE
        assert done.stderr == ""
        failure = start_failure(done.stdout.encode())
        assert failure is not None
        assert failure.exit_code == UNAVAILABLE
        assert failure.sentence.startswith(sentence)


def test_reads_that_wait_too_long_are_dropped_and_the_stream_keeps_its_record(
    started: list[Recording], tmp_path: Path
) -> None:
    recording = start(started, tmp_path, spool_age=1.0)
    with recording.relay() as relay:
        recording.tell(relay, *WHOLE)
        deadline = time.monotonic() + PATIENCE_S
        while recording.balance().dropped["too_old"] < 7:  # they may be in two bundles
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert recording.stop() == 0
    balance = recording.balance()
    assert (balance.seen, balance.waiting, balance.dropped["too_old"]) == (7, 0, 7)
    (record,) = records(recording.bundles())
    assert (record.status_code, record.integrity.complete, record.integrity.dropped_reads) == (200, False, 7)
    assert record.usage.output_tokens is None
