"""The reorder buffer counts waiting segments incrementally: the sums equal those of a full count."""

from unittest.mock import patch

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.assembly import assembler as assembling
from streamgauge.core.assembly.assembler import BUCKETS, PRODUCERS, WAIT_NS, Assembler, bucket_of
from streamgauge.core.assembly.reorder_buffer import MAX_WAITING_BYTES, ReorderBuffer, size_of
from streamgauge.core.capture.segments import Bundle, Ending, Loss, Read, Segment, StreamEnding
from streamgauge.core.record import encode_record
from tests.streams import INSTANCE, opening

# Three streams of one bucket and two of another.
STREAMS = [bytes(14) + bytes((name, name > 3)) for name in range(1, 6)]
KEYS = sorted({bucket_of(stream) for stream in STREAMS})
BOUND = 400

PARTS = st.builds(
    Segment,
    st.sampled_from(STREAMS),
    st.integers(0, 40),
    opening=st.sampled_from([None, None, opening()]),
    reads=st.lists(st.builds(lambda size: Read(1, size, size, b":" * size), st.sampled_from([0, 10, 100])), max_size=3),
    loss=st.sampled_from([None, None, Loss(1, 0, "coding")]),
    end=st.sampled_from([None] * 8 + [StreamEnding(Ending.COMPLETE), StreamEnding(Ending.CUT, tail=b"data: x")]),
)
STEPS = st.lists(st.one_of(st.lists(PARTS, min_size=1, max_size=4), st.sampled_from(["late", "farewell"])), max_size=60)


def with_buffer() -> tuple[Assembler, ReorderBuffer]:
    """An assembler, and the buffer that it uses."""
    made: list[ReorderBuffer] = []

    def make(buckets: int) -> ReorderBuffer:
        made.append(ReorderBuffer(buckets))
        return made[-1]

    with patch.object(assembling, "ReorderBuffer", make):
        assembler = Assembler()
    [buffer] = made
    return assembler, buffer


def counted(assembler: Assembler, buffer: ReorderBuffer) -> None:
    """The sums equal a full count, and are within the bound."""
    waiting: dict[int, dict[bytes, int]] = {key: {} for key in range(BUCKETS)}
    for state in assembler.open_states():
        if state.waiting:
            waiting[bucket_of(state.stream)][state.stream] = sum(map(size_of, state.waiting.values()))
    assert buffer.streams() == sorted(stream for sizes in waiting.values() for stream in sizes)
    for key, sizes in waiting.items():
        assert buffer.total(key) == sum(sizes.values()) <= BOUND
        if sizes:
            assert buffer.largest(key) == min(sizes, key=lambda stream: (-sizes[stream], stream))
    assert bool(buffer) == any(waiting.values())


@given(STEPS, st.integers(1, 9))
def test_the_sums_equal_a_full_count_also_after_a_load(steps: list[list[Segment] | str], every: int) -> None:
    """One assembler reads all of the log; another is dumped and loaded in between, and has the same sums."""
    with patch.object(assembling, "MAX_WAITING_BYTES", BOUND):
        (one, of_one), (other, of_other), tap_ns = with_buffer(), with_buffer(), 0
        for at, step in enumerate(steps):
            tap_ns += WAIT_NS + 1 if step == "late" else 1
            segments = [] if isinstance(step, str) else step
            bundle = Bundle(INSTANCE, 0, 2 * at + 1, tap_ns, segments, farewell=step == "farewell")
            found = [[encode_record(record) for record in each.apply(at, at, bundle)] for each in (one, other)]
            assert found[0] == found[1]
            counted(one, of_one)
            if at % every == 0:
                before, (other, of_other) = other, with_buffer()
                for key in (*range(BUCKETS), PRODUCERS):
                    other.load(key, before.dump(key))
            counted(other, of_other)
        assert [one.dump(key) for key in KEYS] == [other.dump(key) for key in KEYS]


def test_waiting_openings_are_counted() -> None:
    """Openings of the largest size, in segments whose predecessors never come."""
    word = "€" * 4096
    forged = msgspec.structs.replace(opening(), tap=word, path=word, tenant=word, resumed_from=word)
    assembler, buffer = with_buffer()
    for number in range(1, 101):
        segment = Segment(bytes(14) + bytes((number, 0)), 1, opening=forged)
        assembler.apply(number, number, Bundle(INSTANCE, 0, 2 * number, 0, [segment]))
    assert 0 < buffer.total(0) <= MAX_WAITING_BYTES
    waiting = [state.waiting for state in assembler.open_states()]
    assert sum(map(bool, waiting)) == MAX_WAITING_BYTES // size_of(Segment(b"", 1, opening=forged))
