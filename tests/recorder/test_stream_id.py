"""Stream ids are UUIDs of version 7; derived ones depend on each fact and on nothing else."""

import uuid

import pytest

from streamgauge.recorder.stream_id import FREE_BITS, derived_stream_id, stream_id

BEGAN = 1_700_000_000_123_456_789


@pytest.mark.parametrize("free_bits", [0, 1, 1 << 61, 1 << 62, (1 << FREE_BITS) - 1, 1 << 200])
def test_an_id_is_a_uuid_of_version_7_with_the_time_in_milliseconds(free_bits: int) -> None:
    made = uuid.UUID(bytes=stream_id(BEGAN, free_bits))
    assert (made.version, made.variant, made.int >> 80) == (7, uuid.RFC_4122, BEGAN // 10**6)


def test_each_random_bit_changes_the_id() -> None:
    assert len({stream_id(BEGAN, 1 << place) for place in range(FREE_BITS)} | {stream_id(BEGAN, 0)}) == FREE_BITS + 1
    assert stream_id(BEGAN, 1 << FREE_BITS) == stream_id(BEGAN, 0)


@pytest.mark.parametrize(("wall_ns", "milliseconds"), [(-5, 0), (0, 0), (2**80, 2**80 // 10**6 % 2**48)])
def test_any_time_gives_an_id(wall_ns: int, milliseconds: int) -> None:
    assert uuid.UUID(bytes=stream_id(wall_ns, 0)).int >> 80 == milliseconds


def test_a_derived_id_is_the_same_in_every_process_and_version() -> None:
    made = uuid.UUID(bytes=derived_stream_id(BEGAN, b"client", b"server", 7, 0))
    assert str(made) == "018bcfe5-687b-736d-9ad5-6414951f281e"
    assert made.version == 7


def test_a_derived_id_depends_on_each_fact_and_on_their_boundaries() -> None:
    facts = (
        (BEGAN, b"ab", b"c", 7),
        (BEGAN + 1, b"ab", b"c", 7),  # within the same millisecond
        (BEGAN, b"a", b"bc", 7),
        (BEGAN, b"ab", b"c", 8),
        (BEGAN, b"ab", b"c"),
    )
    assert len({derived_stream_id(*each) for each in facts}) == len(facts)
