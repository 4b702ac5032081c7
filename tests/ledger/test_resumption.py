"""The usage of an origin with its resumed streams. tests/core/assembly/test_resumption.py finds the origins."""

import itertools
import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.ledger.resumption import Counted, UsagePart
from tests.ledger.counting import count_once

KNOWN: dict[str, Any] = {
    "upstream": "nimbus",
    "credential_id": "key",
    "outcome": "completed",
    "usage_source": "final",
}
ABSENT: dict[str, Any] = {"usage_source": "absent"}


def part(name: str, tokens: tuple[int | None, int | None] = (None, None), **changes: Any) -> UsagePart:
    given, made = tokens
    total = None if given is None or made is None else given + made
    numbers = {"input_tokens": given, "output_tokens": made, "total_tokens": total}
    fields = {**dict.fromkeys(UsagePart._fields), **KNOWN, **numbers, **changes}
    return UsagePart(**{**fields, "stream_id": name})


def stored(name: str, response: str = "resp_1", **changes: Any) -> UsagePart:
    """A resumed stream of Responses: GET /responses/{id}?starting_after=4."""
    return part(name, **{"resumed_from": "4", "response_id": response, **changes})


def again(name: str, position: str, **changes: Any) -> UsagePart:
    """A resumed stream by Last-Event-ID: the same request once more."""
    return part(name, **{"resumed_from": position, "request_digest": "digest", **changes})


def cut(name: str, **changes: Any) -> UsagePart:
    """A stream that broke, of the same request as `again`."""
    known = {"request_digest": "digest", "last_event_id": "17", "outcome": "truncated", "usage_source": "partial"}
    return part(name, **{**known, **changes})


def counted(*parts: UsagePart) -> dict[str, tuple[int | None, int | None, int | None]]:
    """What counts for each record that is continued or continues, by name."""
    lines = count_once(parts, parts)
    return {line.stream_id: (line.input_tokens, line.output_tokens, line.total_tokens) for line in lines}


NOTHING = (None, None, None)


# --- an origin and its resumed streams ---------------------------------------------------------------------------------


def test_a_stored_response_is_continued_by_its_id() -> None:
    origin = part("origin", response_id="resp_1", request_digest="digest", outcome="truncated", **ABSENT)
    first = stored("cut", outcome="upstream_reset", **ABSENT)
    last = stored("last", resumed_from="9", tokens=(30, 12))
    assert counted(origin, first, last) == {"origin": (30, 12, 42), "cut": NOTHING, "last": NOTHING}


def test_a_stored_response_read_again_from_its_start_counts_once() -> None:
    origin = part("origin", (30, 12), response_id="resp_1", request_digest="digest")
    again = (stored(name, resumed_from="start", tokens=(30, 12)) for name in ("a", "b"))
    assert counted(origin, *again) == {"origin": (30, 12, 42), "a": NOTHING, "b": NOTHING}


def test_several_resumed_streams_with_usage_count_once() -> None:
    origin = part("origin", (30, 12), response_id="resp_1")
    assert counted(origin, stored("a", tokens=(30, 12)), stored("b", tokens=(30, 12))) == {
        "origin": (30, 12, 42),
        "a": NOTHING,
        "b": NOTHING,
    }


def test_a_request_sent_again_is_known_by_its_digest() -> None:
    origin = cut("origin", tokens=(41, None), response_id="msg_1")
    resumed = again("resumed", "17", tokens=(None, 20))
    assert counted(origin, resumed) == {"origin": (41, 20, 61), "resumed": NOTHING}


def test_a_cost_that_is_not_divided_stands_for_the_sides_that_its_record_reports() -> None:
    """The provider reports it at the end of the resumed stream; the origin's input cost 3 by the list."""
    for known, tokens, cost in (
        (cut("origin", tokens=(41, None), cost_input=3), (None, 20), (3, 9)),
        (cut("origin", tokens=(41, None), cost_input=3, usage_source="final"), (41, 20), (9, None)),
        (cut("origin", tokens=(41, None), cost_input=3), (41, 20), (9, None)),
    ):
        source = "partial" if known.usage_source == "final" else "final"
        resumed = again("resumed", "17", tokens=tokens, usage_source=source, cost_input=9)
        whole, rest = count_once([known, resumed], [known, resumed])
        assert (whole.cost_input, whole.cost_output) == cost
        assert (rest.cost_input, rest.cost_output) == (None, None)


def test_broken_resumed_stream_is_resumed_itself() -> None:
    resumed = again("first", "17", last_event_id="40", outcome="truncated"), again("second", "40", tokens=(None, 9))
    assert counted(cut("origin", tokens=(41, None)), *resumed) == {
        "origin": (41, 9, 50),
        "first": NOTHING,
        "second": NOTHING,
    }


def test_two_requests_that_share_a_response_id_are_two() -> None:
    one, two = (part(name, (10, 5), response_id="chat-1", request_digest="digest") for name in ("one", "two"))
    assert counted(one, two) == {}


def test_of_two_with_one_response_id_the_broken_one_is_resumed() -> None:
    broke = part("broke", response_id="resp_1", outcome="truncated", **ABSENT)
    done = part("done", (10, 5), response_id="resp_1")
    assert counted(broke, done, stored("resumed", tokens=(30, 12))) == {"broke": (30, 12, 42), "resumed": NOTHING}


def test_resumed_stream_without_an_earlier_origin_counts_by_itself() -> None:
    assert counted(stored("resumed", tokens=(30, 12))) == {}
    assert counted(stored("resumed", tokens=(30, 12)), part("later", response_id="resp_1")) == {}


def test_resumed_streams_of_a_missing_origin_are_one_stream() -> None:
    assert counted(stored("a", tokens=(30, 12)), stored("b", tokens=(30, 12))) == {"a": (30, 12, 42), "b": NOTHING}


# --- what they used together -----------------------------------------------------------------------------------------


def test_field_by_field_the_last_one_wins() -> None:
    origin = cut("origin", tokens=(41, 3))
    resumed = again("a", "17", tokens=(41, 9), usage_source="partial"), again("b", "17", tokens=(None, 20))
    assert counted(origin, *resumed)["origin"] == (41, 20, 61)


def test_final_beats_partial_wherever_it_stands() -> None:
    parts = (
        cut("origin", tokens=(41, 20), usage_source="final"),
        again("resumed", "17", tokens=(41, 7), usage_source="partial"),
    )
    assert counted(*parts)["origin"] == (41, 20, 61)


def test_parts_of_input_and_output_are_the_last_ones_too() -> None:
    origin = cut("origin", tokens=(41, None), input_cached_tokens=30)
    resumed = (
        again("a", "17", tokens=(41, 9), usage_source="partial", input_cached_tokens=30, reasoning_tokens=4),
        again("b", "17", tokens=(None, 20), reasoning_tokens=8),
    )
    first, *others = count_once([origin, *resumed], resumed)
    assert first == Counted("origin", "final", 41, 20, 61, input_cached_tokens=30, reasoning_tokens=8)
    assert others == [Counted("a", "partial"), Counted("b", "final")]


def test_unreported_usage_stays_null_and_zero_stays_zero() -> None:
    assert counted(cut("origin"), again("resumed", "17"))["origin"] == NOTHING
    assert counted(cut("origin"), again("resumed", "17", tokens=(0, 0)))["origin"] == (0, 0, 0)


def test_a_total_is_the_providers_own_where_it_belongs_to_both() -> None:
    origin = part("origin", response_id="resp_1", **ABSENT)
    assert counted(origin, stored("resumed", tokens=(30, 12), total_tokens=50))["origin"] == (30, 12, 50)
    stale = cut("origin", tokens=(41, 5))
    assert counted(stale, again("resumed", "17", tokens=(None, 20)))["origin"] == (41, 20, 61)
    half = again("resumed", "17", tokens=(None, 20), total_tokens=25)
    assert counted(stale, half)["origin"] == (41, 20, 61)
    assert counted(cut("origin"), again("resumed", "17", total_tokens=8))["origin"] == (None, None, 8)


def test_the_source_is_that_of_what_is_counted() -> None:
    parts = [cut("origin", tokens=(41, None)), again("resumed", "17", tokens=(None, 20))]
    assert count_once(parts, parts) == [
        Counted("origin", "final", 41, 20, 61),
        Counted("resumed", "final"),
    ]
    unknown = [cut("origin", **ABSENT), again("resumed", "17", **ABSENT)]
    assert [line.usage_source for line in count_once(unknown, unknown)] == ["absent", "absent"]


# --- whatever comes ---------------------------------------------------------------------------------------------------

IDS = st.sampled_from([None, "1", "a", "b", "masked"])
PARTS = st.lists(
    st.builds(
        UsagePart,
        stream_id=st.just(""),
        upstream=st.sampled_from([None, "a"]),
        credential_id=st.sampled_from([None, "k"]),
        request_digest=IDS,
        response_id=IDS,
        last_event_id=IDS,
        resumed_from=IDS,
        outcome=st.sampled_from(["completed", "truncated"]),
        usage_source=st.sampled_from(["final", "partial", "absent"]),
        input_tokens=st.none() | st.integers(0, 2**53),
        output_tokens=st.none() | st.integers(0, 2**53),
        total_tokens=st.none() | st.integers(0, 2**60),
        input_cached_tokens=st.none() | st.integers(0, 2**53),
        reasoning_tokens=st.none() | st.integers(0, 2**53),
    ),
    max_size=12,
).map(lambda parts: [one._replace(stream_id=str(number)) for number, one in enumerate(parts)])


@given(PARTS)
def test_an_origin_is_never_a_part_of_another(parts: list[UsagePart]) -> None:
    """Whichever ids are shared: the usage that an origin or one of its resumed streams reported counts for the origin."""
    lines = {line.stream_id: line for line in count_once(parts, parts)}
    for one in parts:
        line = lines.get(one.stream_id)
        if line is not None and one.resumed_from is None:
            assert line.input_tokens is not None or one.input_tokens is None
            assert line.output_tokens is not None or one.output_tokens is None


@given(PARTS)
def test_nothing_is_counted_without_a_record(parts: list[UsagePart]) -> None:
    lines = count_once(parts, parts)
    assert len({line.stream_id for line in lines}) == len(lines)
    assert {line.output_tokens for line in lines} <= {one.output_tokens for one in parts} | {None}


@given(PARTS)
def test_records_without_resumed_streams_do_not_change(parts: list[UsagePart]) -> None:
    origins = [one._replace(resumed_from=None) for one in parts]
    assert count_once(origins, origins) == []


def test_f7_resumed_stream_beside_many_equal_requests_stores_none_of_them() -> None:
    """A probe sends the same body for ever; one of its streams is resumed."""
    resumed = [again("resumed", "17", response_id="resp_7", tokens=(None, 20))]
    origins = (
        cut(f"{number}", response_id=f"resp_{number}", last_event_id="9", tokens=(41, None)) for number in range(20_000)
    )
    tracemalloc.start()
    try:
        lines = count_once(itertools.chain(origins, resumed), resumed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [line.stream_id for line in lines] == ["7", "resumed"]
    # 20,000 of them would take 8 MB. CPython itself keeps up to 2,000 freed tuples of a length for the next ones: 0.4 MB.
    assert peak < 1_000_000
