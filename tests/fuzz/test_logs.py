"""The assembler with logs that are late, duplicated, reordered, cut and read again; and with bundles of no honest tap."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.assembly.assembler import TICK_INSTANCE, Assembler
from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.capture.segments import (
    Bundle,
    Ending,
    Head,
    Loss,
    Opening,
    Read,
    RequestFacts,
    Segment,
    StreamEnding,
)
from tests.fuzz.drawing import fuzzed
from tests.fuzz.logs import INSTANCES, LIMITS, THE_END_MS, check_log, check_messages
from tests.fuzz.mutations import DONORS

# The wire's integers are those of MessagePack: 64 bits, with or without a sign.
NUMBERS = st.sampled_from((0, 1, 17, 64, -1, 2**53, 2**63 - 1, -(2**63), 2**64 - 1))
SMALL = st.integers(0, 3)
WORDS = st.none() | st.sampled_from(("", "a", "openai-chat", "replay", "/messages", "9" * 5000, "\u00df", "x" * 300))
CONTENT = st.lists(st.sampled_from(DONORS), max_size=3).map(b"".join) | st.binary(max_size=20)
OPENINGS = st.builds(
    Opening,
    tap=st.sampled_from(("proxy", "replay")),
    tap_version=st.just("1"),
    capture=st.sampled_from(("masked", "full")),
    path=WORDS,
    started_at_ns=st.none() | NUMBERS,
    resumed_from=WORDS,
    resumed_after=st.none() | NUMBERS,
    dialect=WORDS,
)
ENDS = st.builds(
    StreamEnding,
    st.sampled_from(Ending),
    stamp_ns=st.none() | NUMBERS,
    client_gone_ns=st.none() | NUMBERS,
    client_blocked_ns=st.none() | NUMBERS,
    client_bytes=st.none() | NUMBERS,
    tail=CONTENT,
    body=st.none() | CONTENT,
    body_capped=st.booleans(),
)
SEGMENTS = st.builds(
    Segment,
    stream=st.sampled_from([bytes((number,)) * 16 for number in range(4)]),
    number=SMALL | NUMBERS,
    opening=st.none() | OPENINGS,
    request=st.none()
    | st.builds(RequestFacts, n=st.none() | NUMBERS, connect_ns=st.none() | NUMBERS, capped=st.booleans()),
    head=st.none()
    | st.builds(Head, status=st.none() | NUMBERS, stamp_ns=st.none() | NUMBERS, event_stream=st.booleans()),
    reads=st.lists(st.builds(Read, st.none() | NUMBERS, NUMBERS, NUMBERS, CONTENT), max_size=3),
    loss=st.none() | st.builds(Loss, NUMBERS, NUMBERS, WORDS),
    end=st.none() | ENDS,
)
BUNDLES = st.builds(
    Bundle,
    instance=st.sampled_from((*INSTANCES, bytes(16))),
    slot=SMALL | NUMBERS,
    number=SMALL | NUMBERS,
    tap_ns=SMALL | NUMBERS,
    segments=st.lists(SEGMENTS, max_size=4),
    farewell=st.booleans(),
    dead=st.lists(st.sampled_from(INSTANCES), max_size=2),
)


@fuzzed(150)
@given(st.binary(min_size=20, max_size=500))
def test_honest_taps_over_a_bad_network(data: bytes) -> None:
    check_log(data)


@fuzzed(200)
@given(st.lists(BUNDLES, max_size=6))
def test_any_bundles(bundles: list[Bundle]) -> None:
    check_messages([encode_bundle(bundle) for bundle in bundles])


TAP = INSTANCES[0]
OPENING = Opening("proxy", "1", "full", path="/chat/completions")
TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
HUGE = 2**64 - 1


def stream(number: int) -> bytes:
    """A stream id in a bucket of its own."""
    return bytes(15) + bytes((number,))


def applied(*bundles: Bundle) -> list[str]:
    """The ids of the records of these messages, after all time-outs."""
    assembler, last = Assembler(LIMITS), Bundle(TICK_INSTANCE, 0, 0, 0)
    log = [*((at, bundle) for at, bundle in enumerate(bundles)), (THE_END_MS, last)]
    return [one.stream_id for at, (now, bundle) in enumerate(log) for one in assembler.apply(at, now, bundle)]


def test_a_first_segment_after_its_stream_was_closed_opens_no_other() -> None:
    late = Bundle(TAP, 0, 0, 0, [Segment(stream(1), 0, OPENING)])
    cut = Bundle(TAP, 0, 1, 0, [Segment(stream(1), 1, reads=[Read(1, 1, 1, TOKEN)])], farewell=True)
    assert applied(cut, late) == [str(UUID(bytes=stream(1)))]


def test_a_stream_that_waited_too_long_for_its_first_segment_is_recorded_once() -> None:
    late = Bundle(TAP, 0, 0, 32 * 10**9, [Segment(stream(1), 0, OPENING)])
    last = Bundle(TAP, 0, 1, 0, [Segment(stream(1), 1, end=StreamEnding(Ending.COMPLETE))])
    assert applied(last, Bundle(TAP, 0, 2, 31 * 10**9), late) == [str(UUID(bytes=stream(1)))]


def test_a_return_of_an_instance_is_noticed_when_its_log_is_read_again() -> None:
    """An abandoned instance begins a stream, a bundle is missing, and the worker crashes with only that stream's bucket."""
    silence_ms = 3_700_000
    log = [
        (0, Bundle(TAP, 0, 0, 0)),
        (silence_ms, Bundle(TICK_INSTANCE, 0, 0, 0)),
        (silence_ms, Bundle(TAP, 0, 1, 0, [Segment(stream(1), 0, OPENING)])),
        (silence_ms, Bundle(TAP, 0, 3, 0, [Segment(stream(2), 1, reads=[Read(1, 1, 1, TOKEN)])])),
        (THE_END_MS, Bundle(TICK_INSTANCE, 0, 0, 0)),
    ]
    whole, dying = Assembler(LIMITS), Assembler(LIMITS)
    expected = [record for at, (now, bundle) in enumerate(log) for record in whole.apply(at, now, bundle)]
    for at, (now, bundle) in enumerate(log[:3]):
        dying.apply(at, now, bundle)
    second = Assembler(LIMITS)
    second.load(1, dying.dump(1))
    records = [record for at, (now, bundle) in enumerate(log) for record in second.apply(at, now, bundle)]
    assert {one.stream_id for one in records} == {one.stream_id for one in expected}


@pytest.mark.parametrize(
    "bundles",
    [
        [Bundle(TAP, 0, 0, 0, [Segment(stream(1), 0, OPENING, reads=[Read(None, 1, HUGE), Read(None, 1, HUGE)])])],
        [Bundle(TAP, 0, 0, 0, [Segment(stream(1), number, OPENING, loss=Loss(HUGE)) for number in (0, 1)])],
        [Bundle(TAP, 0, 0, 0, [Segment(stream(1), 0, OPENING, reads=[Read(at, 1, 1, TOKEN) for at in (0, HUGE, -2)])])],
        [
            Bundle(TAP, 0, 0, 0, [Segment(stream(1), 0, OPENING)]),
            Bundle(TAP, 0, 1, 0, [Segment(stream(1), HUGE)]),
            Bundle(TAP, 0, 2, 31 * 10**9),
        ],
        [
            Bundle(
                *(TAP, 0, 0, 0),
                [
                    Segment(
                        *(stream(1), 0, Opening("proxy", "1", "full", path="/messages", resumed_from="9" * 5000)),
                        reads=[Read(0, 1, 1, b'id: 5\ndata: {"type":"ping"}\n\n')],
                    )
                ],
            )
        ],
    ],
    ids=["bytes", "loss", "stamps", "numbers", "position"],
)
def test_impossible_numbers_do_not_stop_a_partition(bundles: list[Bundle]) -> None:
    check_messages([encode_bundle(bundle) for bundle in bundles])
