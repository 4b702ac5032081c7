"""One direction: any order, duplicates and overlaps of segments give the same bytes; missing bytes are a loss."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.recorder.budget import Budget
from streamgauge.taps.packets.reassembly import (
    MAX_AHEAD_BYTES,
    MAX_AHEAD_PIECES,
    MAX_GAP_BYTES,
    Direction,
    OutOfRangeError,
    Piece,
)

ROOM = 1_000_000
WRAP = 2**32
FIRSTS = st.one_of(st.sampled_from([0, 1, WRAP - 1, WRAP - 5, 2**31 - 3, 2**31]), st.integers(0, WRAP - 1))

Cut = tuple[int, bytes]


def direction(first: int = 0, room: int = ROOM) -> tuple[Direction, Budget]:
    budget = Budget(room)
    return Direction(first, budget), budget


def feed(one: Direction, first: int, cuts: list[Cut]) -> list[Piece]:
    return [piece for at, payload in cuts for piece in one.add((first + at) % WRAP, payload, 5)]


@st.composite
def cut_up(draw: st.DrawFn) -> tuple[bytes, list[Cut]]:
    """Bytes, and segments that cover them: cut, repeated, overlapping and in any order."""
    data = draw(st.binary(min_size=1, max_size=120))
    edges = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=8))})
    cuts = [(a, data[a:b]) for a, b in pairwise(edges)]
    for _ in range(draw(st.integers(0, 6))):
        a = draw(st.integers(0, len(data) - 1))
        cuts.append((a, data[a : draw(st.integers(a + 1, len(data)))]))
    return data, draw(st.permutations(cuts))


@given(first=FIRSTS, cut=cut_up())
def test_any_order_and_any_overlap_give_the_same_bytes(first: int, cut: tuple[bytes, list[Cut]]) -> None:
    data, cuts = cut
    one, budget = direction(first)
    pieces = feed(one, first, cuts)
    assert all(isinstance(piece, bytes) for piece in pieces)
    assert b"".join(piece for piece in pieces if isinstance(piece, bytes)) == data
    assert (one.position, one.waiting, one.hole_ns) == (len(data), 0, None)
    assert budget.free == ROOM


@given(first=FIRSTS, cut=cut_up(), missing=st.sets(st.integers(0, 7)))
def test_missing_bytes_are_a_loss_of_their_size_at_their_place(
    first: int, cut: tuple[bytes, list[Cut]], missing: set[int]
) -> None:
    data, cuts = cut
    kept = [one for number, one in enumerate(cuts) if number not in missing]
    one, budget = direction(first)
    pieces = feed(one, first, kept) + one.acknowledge((first + len(data)) % WRAP)
    seen = bytearray(len(data))
    for at, payload in kept:
        seen[at : at + len(payload)] = b"\1" * len(payload)
    at = 0
    for piece in pieces:
        size = piece if isinstance(piece, int) else len(piece)
        assert size
        assert set(seen[at : at + size]) == ({0} if isinstance(piece, int) else {1})
        if isinstance(piece, bytes):
            assert piece == data[at : at + size]
        at += size
    assert at == len(data) == one.position
    assert budget.free == ROOM


@given(
    first=FIRSTS,
    segments=st.lists(st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=30), st.booleans()), max_size=20),
)
def test_the_first_copy_of_repeated_bytes_counts(first: int, segments: list[tuple[int, bytes, bool]]) -> None:
    """Against a model that writes each byte once."""
    one, budget = direction(first)
    model: dict[int, int] = {}
    data = bytearray()
    for at, payload, acknowledged in segments:
        for place, byte in enumerate(payload, at):
            model.setdefault(place, byte)
        pieces = one.add((first + at) % WRAP, payload, 5)
        if acknowledged:
            pieces += one.acknowledge((first + at + len(payload)) % WRAP)
        for piece in pieces:
            if isinstance(piece, int):
                for place in range(len(data), len(data) + piece):
                    assert model.setdefault(place, 0) == 0
                data += bytes(piece)
            else:
                data += piece
    assert one.position == len(data)
    assert bytes(data) == bytes(model[place] for place in range(len(data)))
    assert one.waiting == sum(place >= one.position for place in model)
    assert budget.free == ROOM - one.waiting


@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, WRAP - 1), st.binary(max_size=40)), max_size=30))
def test_nothing_raises_except_for_numbers_out_of_range(steps: list[tuple[int, int, bytes]]) -> None:
    one, _ = direction()
    for kind, sequence, payload in steps:
        before = one.position
        try:
            if kind == 0:
                one.add(sequence, payload, 1)
            elif kind == 1:
                one.acknowledge(sequence)
            elif kind == 2:
                one.finish(sequence)
            else:
                one.skip_holes()
        except OutOfRangeError:
            assert one.position == before
        assert one.position >= before


def test_bytes_after_a_gap_are_given_with_those_that_fill_it() -> None:
    one, _ = direction(100)
    assert one.add(103, b"def", 7) == []
    assert (one.hole_ns, one.waiting) == (7, 3)
    assert one.add(106, b"ghi", 9) == []
    assert one.hole_ns == 7
    assert one.add(100, b"abc", 11) == [b"abcdefghi"]
    assert (one.hole_ns, one.waiting) == (None, 0)  # type: ignore[comparison-overlap]


def test_a_keep_alive_probe_and_a_retransmission_give_nothing() -> None:
    one, _ = direction(100)
    assert one.add(100, b"abc", 1) == [b"abc"]
    assert one.add(102, b"\0", 2) == []
    assert one.add(102, b"", 2) == []
    assert one.add(100, b"abc", 3) == []
    assert one.add(101, b"bcde", 4) == [b"de"]


def test_an_acknowledgement_of_received_bytes_changes_nothing() -> None:
    one, _ = direction(100)
    one.add(100, b"abc", 1)
    one.add(105, b"xy", 1)
    assert one.acknowledge(103) == one.acknowledge(90) == []
    assert one.acknowledge(107) == [2, b"xy"]


def test_an_acknowledged_fin_is_no_lost_byte() -> None:
    one, _ = direction(100)
    one.add(100, b"abc", 1)
    one.finish(103)
    assert one.over
    assert one.acknowledge(104) == []


def test_a_fin_after_a_gap_waits_for_it() -> None:
    one, _ = direction(100)
    one.finish(103)
    assert not one.over
    assert one.add(100, b"abc", 1) == [b"abc"]
    assert one.over


def test_a_gap_that_is_skipped_is_a_loss_and_the_bytes_after_it_follow() -> None:
    one, _ = direction(0)
    one.add(3, b"d", 1)
    one.add(6, b"g", 1)
    assert one.skip_holes() == [3, b"d", 2, b"g"]
    assert one.skip_holes() == []


@pytest.mark.parametrize(("size", "pieces"), [(64 * 1024, MAX_AHEAD_BYTES // 65536), (1, MAX_AHEAD_PIECES)])
def test_bytes_after_a_gap_are_bounded(size: int, pieces: int) -> None:
    one, budget = direction(0, 2 * MAX_AHEAD_BYTES)
    for number in range(pieces):
        assert one.add(10 + number * (size + 1), bytes(size), 1) == []
    waited = one.waiting
    assert waited <= MAX_AHEAD_BYTES
    pieces_out = one.add(10 + pieces * (size + 1), bytes(size), 1)
    assert pieces_out == [10, bytes(size)]
    assert one.waiting == waited
    one.discard()
    assert budget.free == 2 * MAX_AHEAD_BYTES


def test_without_free_room_bytes_in_order_are_still_given() -> None:
    one, budget = direction(0, 4)
    assert one.add(5, b"fgh", 1) == []
    assert one.add(20, b"uvw", 1) == []
    assert one.waiting == 3
    assert one.add(0, b"abcde", 1) == [b"abcdefgh"]
    assert budget.free == 4


@pytest.mark.parametrize("beyond", [1, WRAP // 4])
def test_numbers_far_ahead_belong_to_another_connection(beyond: int) -> None:
    one, _ = direction(0)
    with pytest.raises(OutOfRangeError):
        one.add(MAX_GAP_BYTES + beyond, b"x", 1)
    with pytest.raises(OutOfRangeError):
        one.acknowledge(MAX_GAP_BYTES + beyond)
    assert one.add(0, b"a", 1) == [b"a"]
