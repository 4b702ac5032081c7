"""The sender's thread: with a recorder, without one, with one that stops; the application never waits for it."""

import itertools
import logging
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.client import RecorderClient
from streamgauge.recorder.protocol import (
    Encoded,
    ExchangeEnding,
    Message,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
)
from streamgauge.spool.read_counters import DropReason, read_incidents
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.inprocess import background_sender as sender_module
from streamgauge.taps.inprocess.background_sender import PIECE_BYTES, BackgroundSender
from streamgauge.taps.inprocess.capture import start_capture
from streamgauge.taps.inprocess.counter_slot import TooManyError
from tests.taps.asking import WHOLE
from tests.taps.inprocess.rig import (
    PATIENCE_S,
    balance_of,
    reads_of,
    recorder_at,
    report_stream,
    seen_request,
    wait_until,
)
from tests.taps.proxy.rig import arrived, kinds
from tests.taps.talk import BODY, EVENTS

_OTHERS: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _others() -> None:
    """Threads that other tests of this process left running are not counted."""
    _OTHERS.clear()
    _OTHERS.update(threading.enumerate())


def threads() -> list[str]:
    """Threads of senders started since the test began."""
    running = set(threading.enumerate()) - _OTHERS
    return [thread.name for thread in running if thread.name == "streamgauge-sender"]


def test_streams_of_several_threads_arrive(tmp_path: Path) -> None:
    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path)
        assert threads() == []
        running = [threading.Thread(target=lambda: [report_stream(sender) for _ in range(20)]) for _ in range(5)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        messages = recorder.ended(100)
        assert len({message.stream for message in messages}) == 100
        assert threads() == ["streamgauge-sender"]
        for stream in {message.stream for message in messages}:
            mine = [message for message in messages if message.stream == stream]
            assert kinds(mine) == WHOLE
            assert arrived(mine) == BODY
        sender.close(PATIENCE_S)
    assert threads() == []
    assert balance_of(tmp_path).seen == balance_of(tmp_path).waiting == 100 * len(EVENTS)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_recorder_that_starts_later_gets_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sender = BackgroundSender(tmp_path)
    open_one = report_stream(sender, end=False)
    report_stream(sender)
    wait_until(lambda: bool(warnings_in(caplog)))
    with recorder_at(tmp_path) as recorder:
        recorder.ended(1)
        open_one.end(1, Ending.COMPLETE)
        assert arrived(recorder.ended(2)) == BODY + BODY
        sender.close(PATIENCE_S)
    assert balance_of(tmp_path).dropped["recorder_gone"] == 0


def test_a_missing_agent_is_logged_once_an_outage_with_the_command_that_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sender_module, "RETRY_S", 0.05)
    data_dir = tmp_path / "the data"
    sender = BackgroundSender(data_dir)
    report_stream(sender)
    wait_until(lambda: bool(warnings_in(caplog)))
    time.sleep(0.3)  # several attempts
    [line] = warnings_in(caplog)
    assert line.startswith(
        f"streamgauge: no agent runs at {data_dir}: streams are not affected, and up to 32 MiB of captured data wait in"
    )
    assert f"`streamgauge up --agent --data-dir '{data_dir}'`" in line
    assert f"`streamgauge tap --agent --data-dir '{data_dir}' --kafka HOST:PORT`" in line
    with recorder_at(data_dir) as recorder:
        recorder.ended()
    report_stream(sender)
    wait_until(lambda: len(warnings_in(caplog)) == 2)
    with recorder_at(data_dir) as recorder:
        recorder.ended()
        sender.close(PATIENCE_S)
    assert warnings_in(caplog) == [line, line]


def test_attempts_to_connect_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[float] = []

    def refused(self: RecorderClient) -> bool:
        attempts.append(time.monotonic())
        return False

    monkeypatch.setattr(RecorderClient, "connect", refused)
    monkeypatch.setattr(sender_module, "RETRY_S", 0.3)
    sender = BackgroundSender(tmp_path)
    began = time.monotonic()
    open_one = report_stream(sender, end=False)
    while time.monotonic() - began < 1.0:  # reads arrive, so the thread has turns
        open_one.read(1, b"x")
        time.sleep(0.001)
    assert len(attempts) > 1
    assert all(later - earlier >= 0.3 for earlier, later in itertools.pairwise(attempts))
    sender.close(PATIENCE_S)


def test_a_recorder_that_never_starts_costs_only_reads(tmp_path: Path) -> None:
    sender = BackgroundSender(tmp_path, capacity=50_000)
    for _ in range(30):
        report_stream(sender, *[bytes(1_000)] * 10)
    wait_until(lambda: balance_of(tmp_path).seen == 300)
    assert balance_of(tmp_path).dropped["recorder_behind"] > 200
    wait_until(lambda: sender.full)
    begun = time.monotonic()
    sender.close(PATIENCE_S)
    assert time.monotonic() - begun < PATIENCE_S / 2  # no recorder is expected, so the end does not wait for one
    balance = balance_of(tmp_path)
    assert (balance.seen, balance.waiting) == (300, 0)
    assert balance.dropped["recorder_gone"] == 300 - balance.dropped["recorder_behind"]


def test_reads_that_are_waiting_at_the_end_are_counted_as_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in batches, and those that came after the last turn had begun."""
    connecting, go_on = threading.Event(), threading.Event()

    def refused(self: RecorderClient) -> bool:
        connecting.set()
        return not go_on.wait(PATIENCE_S)

    monkeypatch.setattr(RecorderClient, "connect", refused)
    sender = BackgroundSender(tmp_path)
    report_stream(sender)
    assert connecting.wait(PATIENCE_S)
    report_stream(sender)
    sender.close(0.0)
    go_on.set()
    wait_until(lambda: threads() == [])
    balance = balance_of(tmp_path)
    assert (balance.seen, balance.dropped["recorder_gone"], balance.waiting) == (2 * len(EVENTS), 2 * len(EVENTS), 0)


def test_a_recorder_that_restarts_is_connected_again(tmp_path: Path) -> None:
    sender = BackgroundSender(tmp_path)
    with recorder_at(tmp_path) as recorder:
        report_stream(sender)
        recorder.ended()
    open_one = report_stream(sender, end=False)
    with recorder_at(tmp_path) as recorder:
        wait_until(lambda: reads_of(recorder.messages)[0] == len(EVENTS))
        open_one.end(5, Ending.COMPLETE)
        assert arrived(recorder.ended()) == BODY
        sender.close(PATIENCE_S)


def test_the_reads_of_a_slow_recorder_are_bounded_and_dropped_ones_reported(tmp_path: Path) -> None:
    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path, capacity=300_000)
        recorder.hold()
        streams = [start_capture(sender, seen_request()) for _ in range(10)]
        for number in range(400):
            for stream in streams:
                stream.read(number, bytes(1_000))
            if number % 50 == 0:
                time.sleep(0.06)
        recorder.release()
        for stream in streams:
            stream.end(1_000, Ending.COMPLETE)
        messages = recorder.ended(10)
        sender.close(PATIENCE_S)
    reported, missing = reads_of(messages)
    assert (reported + missing, reported > 0, missing > 0) == (4_000, True, True)
    balance = balance_of(tmp_path)
    assert (balance.seen, balance.dropped["recorder_behind"], balance.waiting) == (4_000, missing, reported)


def test_an_idle_sender_holds_no_connection_and_takes_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "IDLE_S", 0.2)
    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path)
        report_stream(sender)
        recorder.ended()
        wait_until(lambda: not sender.connected)
        wait_until(lambda: sender.asleep)
        turns: list[BackgroundSender] = []

        def counted(self: BackgroundSender) -> tuple[dict[DropReason, int], int]:
            turns.append(self)
            return {}, 0

        with monkeypatch.context() as counting:  # each turn takes the counts
            counting.setattr(BackgroundSender, "take_counts", counted)
            time.sleep(0.5)
        assert sender not in turns
        report_stream(sender)
        recorder.ended(2)
        assert recorder.connections == 2
        sender.close(PATIENCE_S)


def test_a_flush_sends_what_was_reported(tmp_path: Path) -> None:
    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path)
        sender.flush(PATIENCE_S)  # no stream ever began: nothing to wait for
        for number in range(20):
            open_one = report_stream(sender, end=False)
            sender.flush(PATIENCE_S)
            balance = balance_of(tmp_path)
            assert balance.seen == (number + 1) * len(EVENTS)
            wait_until(lambda seen=balance.seen: reads_of(recorder.messages)[0] == seen)  # type: ignore[misc]
            open_one.end(1, Ending.COMPLETE)
        sender.close(PATIENCE_S)


def test_an_unusable_data_directory_costs_only_the_capture(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    sender = BackgroundSender(tmp_path / "file")
    captures = []
    for _ in range(5):
        captures.append(report_stream(sender, *EVENTS * 100))
        sender.flush(PATIENCE_S)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    assert "not captured" in caplog.text
    assert sender.waiting < 10  # without a place to send it, nothing is kept
    sender.close(PATIENCE_S)


def test_a_response_that_is_only_counted_claims_no_slot_again_after_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim costs file operations, and counts as the beginning of a capture (`app_refused`)."""
    claims: list[Path] = []

    def taken(data_dir: Path) -> None:
        claims.append(data_dir)
        raise TooManyError("all slots are taken")

    monkeypatch.setattr(sender_module, "CounterSlot", taken)
    sender = BackgroundSender(tmp_path)
    for _ in range(20):
        sender.count_response("up", NotCaptured.NOT_LLM)
        time.sleep(0.01)
    assert len(claims) == 1
    report_stream(sender)
    wait_until(lambda: len(claims) > 1)
    sender.close(PATIENCE_S)


def test_a_data_directory_that_is_created_again_is_used(tmp_path: Path) -> None:
    data = tmp_path / "data"
    sender = BackgroundSender(data)
    with recorder_at(data) as recorder:
        report_stream(sender)
        recorder.ended()
    shutil.rmtree(data)
    report_stream(sender)
    with recorder_at(data) as recorder:
        assert arrived(recorder.ended()) == BODY
        sender.close(PATIENCE_S)
    balance = balance_of(data)
    assert (balance.seen, balance.waiting, sum(balance.dropped.values())) == (len(EVENTS), len(EVENTS), 0)


def test_a_bug_in_a_turn_does_not_end_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path)
        report_stream(sender)
        recorder.ended()
        with monkeypatch.context() as broken:
            broken.setattr(BackgroundSender, "take_counts", raising)
            report_stream(sender)
            wait_until(lambda: read_incidents(tmp_path / "counters")["capture_fault"] > 0)
        recorder.ended(2)
        sender.close(PATIENCE_S)


def test_after_its_end_streams_are_not_captured(tmp_path: Path) -> None:
    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path)
        before = report_stream(sender, end=False)
        sender.close(PATIENCE_S)
        after = report_stream(sender)
        before.read(1, b"x")
        before.end(2, Ending.COMPLETE)
        assert sender.waiting < 10
        after.read(1, b"x")
        messages = recorder.wait(lambda some: reads_of(some)[0] == len(EVENTS))
    assert kinds(messages) == ["RequestStarted", "RequestBody", "RequestSent", "ResponseHead", "ResponseRead"]


def test_one_thread_however_many_streams_begin_at_once(tmp_path: Path) -> None:
    for round_ in range(10):
        sender, barrier = BackgroundSender(tmp_path / str(round_)), threading.Barrier(8)

        def begin(sender: BackgroundSender = sender, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            report_stream(sender)

        running = [threading.Thread(target=begin) for _ in range(8)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        wait_until(lambda: threads() == ["streamgauge-sender"])  # the thread of the previous round may still be ending
        sender.close(PATIENCE_S)
        assert balance_of(tmp_path / str(round_)).seen == 8 * len(EVENTS)


def test_processes_use_different_stream_numbers(tmp_path: Path) -> None:
    sender = BackgroundSender(tmp_path)
    numbers = [report_stream(sender).stream for _ in range(3)]
    assert numbers == [(os.getpid() & 0xFFFFFF) << 36 | at for at in range(3)]
    sender.close(PATIENCE_S)


# --- the turns, by hand ---------------------------------------------------------------------------------------------


class KeepingClient(RecorderClient):
    """Keeps what it was given, in order."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.messages: list[Message] = []

    def put(self, message: Message | Encoded, size: int) -> None:
        super().put(message, size)
        assert not isinstance(message, Encoded)
        self.messages.append(message)

    def put_read(self, stream: int, at_ns: int | None, data: bytes) -> bool:
        kept = super().put_read(stream, at_ns, data)
        if kept:
            self.messages.append(ResponseRead(stream, at_ns, data))
        return kept

    def put_reads(self, reads: list[Message | Encoded], size: int) -> None:
        super().put_reads(reads, size)
        self.messages += [read for read in reads if not isinstance(read, Encoded)]


class ByHand(BackgroundSender):
    """A sender without a thread: the test runs its turns."""

    def _start(self) -> None:
        pass

    def turn(self) -> list[Message]:
        """Processes what was reported. Gives what waits for the recorder."""
        with patch.object(sender_module, "RecorderClient", KeepingClient):
            client = self._client or self._make_client()
        self._collect(client)
        assert isinstance(client, KeepingClient)
        assert client.waiting_reads == reads_of(client.messages)[0]
        return list(client.messages)


def test_a_large_chunk_is_sent_in_pieces(tmp_path: Path) -> None:
    sender, large = ByHand(tmp_path, 1 << 30), bytes(range(256)) * (PIECE_BYTES // 100)
    capture = start_capture(sender, seen_request())
    capture.request_body(large)
    capture.request_sent(1, None, len(large))
    capture.read(5, large)
    capture.read(6, b"")
    capture.read(7, b"x")
    messages = sender.turn()
    pieces = -(-len(large) // PIECE_BYTES)
    bodies = [message.data for message in messages if isinstance(message, RequestBody)]
    reads = [(message.at_ns, message.data) for message in messages if isinstance(message, ResponseRead)]
    assert (len(bodies), b"".join(bodies)) == (pieces, large)
    assert [at_ns for at_ns, _ in reads] == [5] * pieces + [7]
    assert b"".join(data for _, data in reads) == large + b"x"
    assert balance_of(tmp_path).seen == pieces + 1
    assert next(message for message in messages if isinstance(message, RequestSent)).whole
    assert sender.open_streams == {capture.stream}


def test_an_empty_chunk_is_not_reported(tmp_path: Path) -> None:
    sender = ByHand(tmp_path)
    report_stream(sender, b"a", b"", b"b")
    assert reads_of(sender.turn()) == (2, 0)
    assert (balance_of(tmp_path).seen, sender.open_streams, sender.waiting) == (2, set(), 0)


def test_a_stream_whose_start_was_not_kept_is_not_open(tmp_path: Path) -> None:
    sender = ByHand(tmp_path)
    capture = report_stream(sender, end=False)
    sender.refuse_reads()  # as when the data directory cannot be used
    capture.read(1, b"x")
    capture.end(2, Ending.COMPLETE)
    assert reads_of(sender.turn()) == (0, 1)
    assert not sender.open_streams
    balance = balance_of(tmp_path)
    assert (balance.seen, balance.dropped["recorder_behind"], balance.waiting) == (1, 1, 0)


def test_without_room_reads_are_dropped_in_order_and_counted(tmp_path: Path) -> None:
    sender = ByHand(tmp_path, capacity=20_000)
    for _ in range(4):
        report_stream(sender, *[bytes(200)] * 40)
        messages = sender.turn()
    reported, dropped = reads_of(messages)
    balance = balance_of(tmp_path)
    assert (balance.seen, balance.dropped["recorder_behind"], balance.waiting) == (160, dropped, reported)
    assert reported and dropped
    for kind in (RequestStarted, RequestSent, ResponseHead, ExchangeEnding):
        assert sum(isinstance(message, kind) for message in messages) == 4, kind


def test_a_bug_at_a_read_makes_only_its_stream_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RecorderClient.put_read

    def raising(client: RecorderClient, stream: int, at_ns: int | None, data: bytes) -> bool:
        if data == b"boom":
            raise ZeroDivisionError
        return real(client, stream, at_ns, data)

    sender = ByHand(tmp_path)
    monkeypatch.setattr(RecorderClient, "put_read", raising)
    broken = report_stream(sender, b"a", b"\0" * 100_000, b"boom", b"b")
    whole = report_stream(sender)
    messages = sender.turn()
    mine = [message for message in messages if message.stream == broken.stream]
    assert mine[-3:] == [
        ReadsDropped(broken.stream, 1),
        ResponseRead(broken.stream, 3_003, b"b"),
        ExchangeEnding(broken.stream, 9_000, Ending.COMPLETE),
    ]
    assert reads_of([message for message in messages if message.stream == whole.stream]) == (len(EVENTS), 0)
    assert balance_of(tmp_path).dropped["capture_fault"] == 1
    assert read_incidents(tmp_path / "counters")["capture_fault"] == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("rrrRbfle")), max_size=60),
    st.lists(st.integers(0, 60)),
    st.sampled_from([3_000, 1 << 30]),
)
def test_every_read_is_reported_or_counted(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]], turns: list[int], capacity: int
) -> None:
    folder = tmp_path_factory.mktemp("sender")
    sender = ByHand(folder, capacity)
    captures = [start_capture(sender, seen_request()) for _ in range(3)]
    ended: set[int] = set()
    seen = 0
    for place, (stream, step) in enumerate(steps):
        capture = captures[stream]
        seen += step in "rRl" and (step == "l" or stream not in ended)
        match step:
            case "r" | "R":
                capture.read(place, b"x" if step == "r" else b"y" * 70_000)
            case "b":
                capture.request_body(b"q" * 500)
            case "f":
                capture.fail()
            case "l":
                capture.lose_read(DropReason.PACKETS_LOST)
            case "e":
                capture.end(place, Ending.COMPLETE)
                ended.add(stream)
        if place in turns:
            sender.turn()
    for capture in captures:
        capture.end(99, Ending.COMPLETE)
    messages = sender.turn()
    reported, missing = reads_of(messages)
    balance = balance_of(folder)
    assert (balance.seen, balance.waiting) == (seen, reported)
    assert missing <= sum(balance.dropped.values()) == seen - reported
    for capture in captures:
        mine = [message for message in messages if message.stream == capture.stream]
        assert isinstance(mine[0], RequestStarted) and isinstance(mine[-1], ExchangeEnding)
        times = [message.at_ns or 0 for message in mine if isinstance(message, ResponseRead)]
        assert times == sorted(times)
    assert not sender.open_streams
