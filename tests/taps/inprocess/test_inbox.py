"""What the application's threads report waits, bounded and in order, until the sender's thread takes it."""

import sys
import threading
from collections.abc import Iterator

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.client import CAPACITY_BYTES, MESSAGE_BYTES
from streamgauge.recorder.protocol import ExchangeEnding, ReadsDropped, RequestStarted
from streamgauge.spool.read_counters import DropReason
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.inprocess.capture import start_capture
from streamgauge.taps.inprocess.inbox import RESERVE, WAKE_BYTES, Inbox, Note
from tests.taps.inprocess.rig import report_stream, seen_request


class Shelf(Inbox):
    """An inbox without a thread. `woken`: how often it woke the sender's thread."""

    def __init__(self, capacity: int = CAPACITY_BYTES) -> None:
        super().__init__(capacity)
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def taken(self, held: int = 0) -> list[Note]:
        """What the sender's thread does."""
        notes = self.take(self.waiting)
        self.hold(held)
        return notes

    def is_free(self, capacity: int = CAPACITY_BYTES) -> bool:
        """Whether the batches may have all of the capacity, and no more: no note is counted."""
        fulls = []
        for held in (capacity, capacity + 1, 0):
            self.hold(held)
            fulls.append(self.full)
        return fulls == [False, True, False]


@pytest.fixture
def often() -> Iterator[None]:
    """Makes threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_reads_are_copied() -> None:
    shelf, buffer = Shelf(), bytearray(b"abc")
    capture = start_capture(shelf, seen_request())
    capture.read(1, buffer)  # type: ignore[arg-type]
    buffer[:] = b"xyz"
    capture.read(3, memoryview(b"def"))  # type: ignore[arg-type]
    assert shelf.taken()[1:] == [(capture.stream, 1, b"abc"), (capture.stream, 3, b"def")]


@pytest.mark.parametrize("chunk", ["text", None, object()])
def test_a_chunk_of_a_wrong_type_ends_only_the_capture(chunk: object) -> None:
    shelf = Shelf()
    capture = start_capture(shelf, seen_request())
    capture.read(1, b"a")
    for _ in range(3):
        capture.read(2, chunk)  # type: ignore[arg-type]
    capture.read(4, b"d")
    capture.end(5, Ending.COMPLETE)
    stream = capture.stream
    assert shelf.taken()[1:] == [
        (stream, 1, b"a"),
        (ReadsDropped(stream, 4), 0),
        (ExchangeEnding(stream, 5, Ending.COMPLETE), 0),
    ]
    assert shelf.take_counts() == ({DropReason.CAPTURE_FAULT: 4}, 1)


def test_many_waiting_reads_wake_the_thread_and_are_bounded() -> None:
    shelf = Shelf()
    capture = start_capture(shelf, seen_request())
    piece, count = bytes(64 * 1024), 2 * CAPACITY_BYTES // (64 * 1024)
    for at in range(count):
        capture.read(at, piece)
        assert (shelf.woken > 0) == ((at + 1) * (len(piece) + MESSAGE_BYTES) > WAKE_BYTES - 1_000)
    assert shelf.full
    assert shelf.woken < 3 * CAPACITY_BYTES // WAKE_BYTES
    taken = len(shelf.taken()) - 1
    assert CAPACITY_BYTES < taken * (len(piece) + MESSAGE_BYTES) < CAPACITY_BYTES + 2 * len(piece)
    assert not shelf.full
    capture.read(count, b"again")
    stream = capture.stream
    assert shelf.taken() == [(ReadsDropped(stream, count - taken), 0), (stream, count, b"again")]
    assert shelf.take_counts() == ({DropReason.RECORDER_BEHIND: count - taken}, 0)


def test_bytes_held_by_batches_reduce_the_room() -> None:
    shelf = Shelf(capacity=10_000)
    shelf.taken(held=9_000)
    capture = start_capture(shelf, seen_request())
    capture.read(1, b"x")
    capture.read(2, bytes(1_000))
    assert shelf.full
    shelf.taken(held=10_000 + 10_000 // RESERVE + 1)
    assert shelf.overfull
    report_stream(shelf)
    assert shelf.taken(held=0) == []  # nothing is kept of a stream without a start
    assert (shelf.full, shelf.overfull) == (False, False)


def test_starts_have_a_bounded_reserve() -> None:
    capacity = 10_000
    shelf = Shelf(capacity)
    for _ in range(200):
        report_stream(shelf, bytes(100))
    notes = [note[0] for note in shelf.taken() if len(note) == 2]
    started = sum(isinstance(message, RequestStarted) for message in notes)
    assert 0 < started == sum(isinstance(message, ExchangeEnding) for message in notes) < 30


def test_a_whole_response_in_one_chunk_fits() -> None:
    shelf = Shelf()
    capture = start_capture(shelf, seen_request())
    capture.read(1, bytes(64 * 1024 * 1024))
    capture.read(2, b"more")
    assert shelf.waiting == 2
    assert shelf.take_counts() == ({DropReason.RECORDER_BEHIND: 1}, 0)


def test_after_the_end_nothing_is_kept() -> None:
    shelf = Shelf()
    shelf.close_inbox()
    report_stream(shelf)
    shelf.hold(0)
    assert (shelf.waiting, shelf.full, shelf.overfull) == (0, True, True)


def test_a_message_wakes_a_sleeping_thread() -> None:
    shelf = Shelf()
    capture = start_capture(shelf, seen_request())
    assert shelf.woken == 0
    shelf.asleep = True
    capture.end(1, Ending.COMPLETE)
    assert shelf.woken == 1


@pytest.mark.usefixtures("often")
def test_counts_of_several_threads_lose_nothing() -> None:
    shelf, threads, each = Shelf(), 4, 20_000
    dropped = faults = uncaptured = 0
    running = True

    def take() -> None:
        nonlocal dropped, faults, uncaptured
        while True:
            last = not running
            more, failed = shelf.take_counts()
            dropped += sum(more.values())
            faults += failed
            uncaptured += sum(shelf.take_uncaptured().values())
            if last:
                return

    def add() -> None:
        for at in range(each):
            shelf.count_dropped(DropReason.PACKETS_LOST)
            shelf.count_fault()
            shelf.count_response(f"up-{at % 2}", NotCaptured.NOT_LLM)

    adding = [threading.Thread(target=add) for _ in range(threads)]
    taking = threading.Thread(target=take)
    for thread in (taking, *adding):
        thread.start()
    for thread in adding:
        thread.join()
    running = False
    taking.join()
    assert (dropped, faults, uncaptured) == (threads * each,) * 3


def test_a_thread_may_report_while_it_reports() -> None:
    """As from a signal handler, or from a finalizer that runs while the thread holds the lock."""
    inner = threading.Event()

    class Reporting(Shelf):
        def wake(self) -> None:  # it is called with the lock
            if not inner.is_set():
                inner.set()
                assert self.put_read(2, 1, b"inner")

    shelf, outer = Reporting(), bytes(WAKE_BYTES)
    reporting = threading.Thread(target=lambda: shelf.put_read(1, 1, outer), daemon=True)
    reporting.start()
    reporting.join(10)
    assert inner.is_set()
    assert not reporting.is_alive(), "it waits for itself"
    assert shelf.taken() == [(1, 1, outer), (2, 1, b"inner")]
    assert shelf.is_free()


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    holding, release = threading.Event(), threading.Event()

    class Holding(Shelf):
        def wake(self) -> None:  # it is called with the lock
            if not holding.is_set():
                holding.set()
                release.wait()

    shelf = Holding()
    capture = start_capture(shelf, seen_request())
    holder = threading.Thread(target=lambda: shelf.put_read(capture.stream, 1, bytes(WAKE_BYTES)))
    holder.start()
    holding.wait()
    try:
        shelf.forget()  # as in the child, in which the holder does not run
        reporting = threading.Thread(target=lambda: capture.end(1, Ending.COMPLETE), daemon=True)
        reporting.start()
        reporting.join(10)
        assert not reporting.is_alive()
    finally:
        release.set()
        holder.join()


@pytest.mark.usefixtures("often")
def test_notes_of_several_threads_are_taken_once_and_in_order() -> None:
    shelf, threads, each = Shelf(), 4, 5_000
    taken: list[Note] = []
    running = True

    def take() -> None:
        while running or shelf.waiting:
            taken.extend(shelf.take(100))
            shelf.hold(0)

    def report() -> None:
        capture = start_capture(shelf, seen_request())
        for at in range(each):
            capture.read(at, b"x")
        capture.end(each, Ending.COMPLETE)

    reporting = [threading.Thread(target=report) for _ in range(threads)]
    taking = threading.Thread(target=take)
    for thread in (taking, *reporting):
        thread.start()
    for thread in reporting:
        thread.join()
    running = False
    taking.join()
    by_stream: dict[int, list[int | None]] = {}
    for note in taken:
        if len(note) == 3:
            by_stream.setdefault(note[0], []).append(note[1])
    assert list(by_stream.values()) == [list(range(each))] * threads
    assert shelf.waiting == 0
    assert shelf.is_free()
