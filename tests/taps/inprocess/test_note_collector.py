"""Notes become messages: every read is told or counted, in order, however they were taken."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import (
    ExchangeEnded,
    Message,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
)
from streamgauge.spool.read_counters import Counters, DropReason, Incident, read_balance, read_incidents
from streamgauge.taps.inprocess import note_collector as collector_module
from streamgauge.taps.inprocess.capture import Asking, Fault, Lost, Note, NotedStream
from streamgauge.taps.inprocess.note_collector import PIECE_BYTES, TURN_NOTES, NoteCollector
from streamgauge.taps.inprocess.outbox import RESERVE, MessageBatches
from tests.taps.inprocess.rig import asking, note_stream, reads_told
from tests.taps.talk import EVENTS


class Desk:
    """A collector by hand, its counters in a file, its outbox with nobody to send to."""

    def __init__(self, folder: Path, capacity: int = 1 << 20) -> None:
        self.full = False
        self.path = folder / "counters"
        self.counters = Counters(self.path, "app-3")
        self.outbox = MessageBatches(lambda: str(folder / "nobody.sock"), self.counters, capacity)
        self.collector = NoteCollector(self.outbox, self.counters)
        self._numbers = itertools.count(1)

    def begin(self, capture: NotedStream) -> int:
        capture.stream = next(self._numbers)
        self.collector.begin(capture)
        return capture.stream

    def wake(self) -> None:
        pass

    def take(self) -> list[int]:
        return list(self.collector.collect())

    @property
    def messages(self) -> list[Message]:
        """All that waits to be sent."""
        batches = [*self.outbox._batches, self.outbox._gathering]
        return [message for batch in batches for message in batch.messages]


def test_a_stream_as_it_comes(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    capture = note_stream(desk)
    assert sum(desk.take()) == 5 + len(EVENTS)
    kinds = [type(message) for message in desk.messages]
    assert kinds == [
        RequestStarted,
        RequestBody,
        RequestSent,
        ResponseHead,
        *[ResponseRead] * len(EVENTS),
        ExchangeEnded,
    ]
    arrived = [message for message in desk.messages if isinstance(message, ResponseRead)]
    assert [(message.stream, message.at_ns, message.data) for message in arrived] == [
        (capture.stream, 3_000 + at, event) for at, event in enumerate(EVENTS)
    ]
    assert (desk.collector.open_streams, desk.take(), capture.noted_bytes) == (0, [], capture.taken_bytes)
    assert read_balance(desk.path).waiting == len(EVENTS)


def test_turns_are_short(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    note_stream(desk, *EVENTS * 200)
    for _ in range(40):
        note_stream(desk, b"x", end=False)
    turns = desk.take()
    assert sum(turns) == 5 + 200 * len(EVENTS) + 40 * 5
    assert max(turns) < 2 * TURN_NOTES
    assert desk.collector.open_streams == 40
    assert desk.collector.untaken_bytes == 0


def test_a_large_piece_travels_in_several(tmp_path: Path) -> None:
    desk, large = Desk(tmp_path, 1 << 30), bytes(range(256)) * (PIECE_BYTES // 100)
    capture = NotedStream(desk, asking())
    capture.asked(large)
    capture.sent(1, len(large))
    capture.arrived(5, large)
    capture.arrived(6, b"x")
    desk.take()
    pieces = -(-len(large) // PIECE_BYTES)
    asked = [message.data for message in desk.messages if isinstance(message, RequestBody)]
    arrived = [(message.at_ns, message.data) for message in desk.messages if isinstance(message, ResponseRead)]
    assert (len(asked), b"".join(asked)) == (pieces, large)
    assert [at_ns for at_ns, _ in arrived] == [5] * pieces + [6]
    assert b"".join(data for _, data in arrived) == large + b"x"
    assert read_balance(desk.path).seen == pieces + 1
    assert next(message for message in desk.messages if isinstance(message, RequestSent)).whole


def test_without_room_reads_are_dropped_and_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path, capacity=20_000)
    for _ in range(4):
        note_stream(desk, *[bytes(200)] * 40)
        desk.take()
    arrived, dropped = reads_told(desk.messages)
    balance = read_balance(desk.path)
    assert (balance.seen, balance.dropped["recorder_behind"], balance.waiting) == (160, dropped, arrived)
    assert arrived and dropped
    for kind in (RequestStarted, RequestSent, ResponseHead, ExchangeEnded):
        assert sum(isinstance(message, kind) for message in desk.messages) == 4, kind
    assert next(message for message in desk.messages if isinstance(message, RequestSent)).whole
    assert not [message for message in desk.messages if isinstance(message, RequestSent)][-1].whole


def test_when_the_reserve_is_used_up_nothing_is_told_of_a_new_stream(tmp_path: Path) -> None:
    desk = Desk(tmp_path, capacity=10_000)
    for _ in range(200):
        note_stream(desk, b"x" * 100)
        desk.take()
    opened = sum(isinstance(message, RequestStarted) for message in desk.messages)
    assert opened == sum(isinstance(message, ExchangeEnded) for message in desk.messages) < 100
    assert desk.outbox.held < 10_000 + 10_000 // RESERVE + 5_000
    balance = read_balance(desk.path)
    assert (balance.seen, balance.waiting) == (200, reads_told(desk.messages)[0])


def test_a_note_of_a_fault_ends_what_is_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    capture = note_stream(desk, end=False)
    capture.arrived(5, "no bytes")  # type: ignore[arg-type]
    capture.arrived(6, b"x")
    capture.ended(7, Ending.COMPLETE)
    desk.take()
    assert desk.messages[-2:] == [ReadsDropped(capture.stream, 2), ExchangeEnded(capture.stream, 7, Ending.COMPLETE)]
    assert read_balance(desk.path).dropped["capture_fault"] == 2
    assert read_incidents(desk.path)["capture_fault"] == 1


class BugError(Exception):
    """Something nobody thought of."""


@pytest.mark.parametrize("ends", [True, False])
def test_a_bug_costs_one_stream_its_completeness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    def raising(data: bytes) -> list[bytes]:
        if data == b"boom":
            raise BugError
        return [data]

    desk = Desk(tmp_path)
    capture = note_stream(desk, b"a", b"\0" * 100_000, b"b", end=False)
    capture.notes.insert(6, (5, b"boom"))
    if ends:
        capture.ended(9, Ending.COMPLETE)
    monkeypatch.setattr(collector_module, "_pieces", raising)
    monkeypatch.setattr(collector_module, "_reads_of", lambda note: int(isinstance(note, tuple)))
    desk.take()
    monkeypatch.undo()
    if not ends:
        capture.ended(9, Ending.COMPLETE)
        desk.take()
    whole = note_stream(desk)
    desk.take()
    mine = [message for message in desk.messages if message.stream == capture.stream]
    assert mine[-2:] == [ReadsDropped(capture.stream, 2), ExchangeEnded(capture.stream, 9, Ending.COMPLETE)]
    assert reads_told([message for message in desk.messages if message.stream == whole.stream]) == (len(EVENTS), 0)
    assert read_balance(desk.path).dropped["capture_fault"] == 2
    assert read_incidents(desk.path)["capture_fault"] == 1


NOTES = st.one_of(
    st.tuples(st.integers(0, 9), st.sampled_from([b"x", b"y" * 300, b"z" * 70_000])),
    st.builds(Lost, st.integers(1, 3), st.sampled_from(DropReason)),
    st.builds(RequestBody, st.just(0), st.sampled_from([b"q", b"q" * 5_000])),
    st.builds(RequestSent, st.just(0), st.none(), st.none(), st.just(1), st.booleans()),
    st.builds(ResponseHead, st.just(0), st.none(), st.just(200)),
    st.builds(Fault),
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 2), NOTES), max_size=60),
    st.lists(st.integers(0, 60)),
    st.sampled_from([3_000, 1 << 30]),
)
def test_every_read_is_told_or_counted(
    tmp_path_factory: pytest.TempPathFactory, notes: Sequence[tuple[int, Note]], turns: list[int], capacity: int
) -> None:
    desk = Desk(tmp_path_factory.mktemp("desk"), capacity)
    captures = [NotedStream(desk, Asking("t", None, "POST", "/", [], 0)) for _ in range(3)]
    for place, (stream, note) in enumerate(notes):
        captures[stream].notes.append(note)
        if place in turns:
            desk.take()
    for capture in captures:
        capture.ended(1, Ending.COMPLETE)
    desk.take()
    seen = sum(1 if isinstance(note, tuple) else note.reads for _, note in notes if isinstance(note, tuple | Lost))
    arrived, missing = reads_told(desk.messages)
    balance = read_balance(desk.path)
    assert (balance.seen, balance.waiting) == (seen, arrived)
    told = {message.stream for message in desk.messages if isinstance(message, RequestStarted)}
    assert missing <= sum(balance.dropped.values()) == seen - arrived
    if len(told) == 3:
        assert missing == seen - arrived
    for capture in captures:
        mine = [message for message in desk.messages if message.stream == capture.stream]
        assert [isinstance(message, ExchangeEnded) for message in mine[:-1]].count(True) == 0
        assert (capture.stream in told) == bool(mine) and (not mine or isinstance(mine[-1], ExchangeEnded))
        data = [note[1] for number, note in notes if captures[number] is capture and isinstance(note, tuple)]
        it = iter(data)
        assert all(
            message.data in it for message in mine if isinstance(message, ResponseRead)
        )  # in order, none invented
    assert Incident.CAPTURE_FAULT.value in read_incidents(desk.path)
    desk.counters.close()
