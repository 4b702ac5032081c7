"""Usage of resumed streams counts once within this process, whose memory of earlier streams is bounded."""

import tracemalloc
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.record import Record
from streamgauge.core.token_kinds import REPORTED
from streamgauge.ledger.resumption import UsagePart
from streamgauge.metrics.resumed_usage import MAX_GENERATION_KEYS, MAX_ID_CHARS, Recent, ResumedUsage
from tests.ledger.counting import count_once
from tests.metrics.records import make_record

BASE = make_record(credential_id="key")
MODEL = "gpt-4o"


def record(**changes: Any) -> Record:
    return msgspec.structs.replace(BASE, **changes)


def broken(**changes: Any) -> Record:
    return record(**{"response_id": "r", "outcome": "truncated", **changes})


def resumed(**changes: Any) -> Record:
    return record(**{"response_id": "r", "resumed_from": "4", **changes})


def added(continued: ResumedUsage, one: Record, **reported: int) -> dict[str, int]:
    """What a record adds that reports these numbers."""
    return continued.share_of(one, MODEL, reported).tokens


@pytest.fixture
def continued() -> ResumedUsage:
    return ResumedUsage()


# --- what a record adds -----------------------------------------------------------------------------------------------


def test_resumed_stream_adds_only_usage_above_that_of_its_origin(continued: ResumedUsage) -> None:
    assert added(continued, broken(), input=41, output=3) == {"input": 41, "output": 3}
    assert added(continued, resumed(outcome="client_abort"), input=41, output=12) == {"output": 9}
    assert added(continued, resumed(), output=20, reasoning=5) == {"output": 8, "reasoning": 5}


def test_resumed_stream_that_reports_less_changes_nothing(continued: ResumedUsage) -> None:
    added(continued, broken(), input=41, output=20)
    assert added(continued, resumed(), input=41, output=7) == {}
    assert added(continued, resumed(), output=21) == {"output": 1}, "above the most, not above the last"


def test_resumed_stream_of_a_completed_origin_adds_nothing_twice(continued: ResumedUsage) -> None:
    added(continued, broken(outcome="completed"), input=30, output=12)
    assert added(continued, resumed(), input=30, output=12) == {}


def test_a_stored_response_read_again_from_its_start_adds_nothing(continued: ResumedUsage) -> None:
    assert added(continued, record(response_id="resp_1"), input=30, output=12) == {"input": 30, "output": 12}
    for _ in range(2):
        again = resumed(resumed_from="start", response_id="resp_1", request_digest=None)
        assert added(continued, again, input=30, output=12) == {}


def test_two_requests_that_share_an_id_count_twice(continued: ResumedUsage) -> None:
    for one in (broken(request_digest="d"), record(response_id="r", request_digest="d")):
        assert added(continued, one, input=3, output=2) == {"input": 3, "output": 2}


def test_resumed_stream_of_another_credential_continues_nothing(continued: ResumedUsage) -> None:
    added(continued, broken(), output=12)
    assert added(continued, resumed(credential_id="other"), output=12) == {"output": 12}


def test_resumed_stream_counts_under_the_model_of_its_origin(continued: ResumedUsage) -> None:
    """A resumed stream by the id of a stored response has no request that names a model."""
    continued.share_of(broken(), "asked for", {"input": 3})
    share = continued.share_of(resumed(), "unknown", {"input": 3, "output": 2})
    assert (share.model, share.tokens) == ("asked for", {"output": 2})


def test_resumed_streams_of_an_unknown_origin_count_as_one_stream(continued: ResumedUsage) -> None:
    assert added(continued, resumed(), input=30, output=12) == {"input": 30, "output": 12}
    assert added(continued, resumed(), input=30, output=12) == {}
    assert added(continued, broken(), input=30) == {"input": 30}, (
        "an origin that ends after its resumed stream is not found"
    )


def test_first_usage_of_an_unknown_origin_is_not_counted(continued: ResumedUsage) -> None:
    one = resumed(dialect="anthropic-messages")
    assert added(continued, one, input=41, cached=8, output=20) == {"output": 20}
    assert added(continued, one, input=43, cached=8, output=25) == {"input": 2, "output": 5}
    origin = broken(dialect="anthropic-messages", response_id="another")
    assert added(continued, origin, input=41) == {"input": 41}


def test_first_usage_counts_if_the_origin_is_known(continued: ResumedUsage) -> None:
    """Its beginning may be among the reads that were dropped: then its resumed stream reports first."""
    added(continued, broken(dialect="anthropic-messages"))
    assert added(continued, resumed(dialect="anthropic-messages"), input=41, output=20) == {"input": 41, "output": 20}


def test_zero_adds_nothing(continued: ResumedUsage) -> None:
    assert added(continued, broken(), input=0) == {}


# --- what is known, and for how long ----------------------------------------------------------------------------------


def test_the_last_generation_is_known_and_the_one_before_the_last_is_not() -> None:
    recent: Recent[int] = Recent(3)
    for number in range(7):
        recent[(number,)] = number
    assert [recent.get((number,)) for number in range(7)] == [None, None, None, 3, 4, 5, 6]


def test_latest_value_of_a_key_counts_and_is_stored_once() -> None:
    recent: Recent[int] = Recent(2)
    for number in range(9):
        recent[("same",)] = number
    assert (recent.get(("same",)), len(recent)) == (8, 1)
    recent[("b",)] = 1
    recent[("same",)] = 9
    assert (recent.get(("same",)), len(recent)) == (9, 2), "a full generation still takes what it has"


def test_a_stream_that_broke_is_known_through_any_number_that_completed(continued: ResumedUsage) -> None:
    added(continued, broken(), input=30, output=12)
    for number in range(3 * MAX_GENERATION_KEYS):
        added(continued, record(response_id=f"r{number}"), input=1)
    assert added(continued, resumed(), input=30, output=12) == {}


def test_a_stream_is_known_through_a_generation_that_broke_and_not_through_two() -> None:
    """Then its resumed stream counts by itself."""
    continued = ResumedUsage(10)
    for name, others in (("early", 20), ("late", 10)):
        added(continued, broken(response_id=name), output=12)
        for number in range(others):
            added(continued, broken(response_id=f"{name} {number}"), output=1)
    assert added(continued, resumed(response_id="late"), output=12) == {}
    assert added(continued, resumed(response_id="early"), output=12) == {"output": 12}


@pytest.mark.parametrize("outcome", ["completed", "truncated"])
@pytest.mark.parametrize("resumed_from", [None, "17", "evt_17"])
def test_the_memory_does_not_grow(outcome: str, resumed_from: str | None) -> None:
    continued = ResumedUsage(64)
    for number in range(2_000):
        known = {"response_id": f"r{number}", "request_digest": f"d{number}", "last_event_id": f"e{number}"}
        added(continued, record(outcome=outcome, resumed_from=resumed_from, **known), input=1)
        assert len(continued) <= 2 * 64
    assert len(continued) > 64


# What MAX_GENERATION_KEYS promises for two tables of two generations, in bytes.
MOST_BYTES = 20_000_000


def test_a_key_takes_no_more_than_its_limit() -> None:
    """Records of one key each, with the longest id, all numbers, and a credential of its own: the most there is for a key."""
    continued = ResumedUsage(512)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(2 * 512):
            for outcome in ("completed", "truncated"):
                name = f"{outcome} {number}"
                one = record(
                    outcome=outcome, response_id=name.ljust(MAX_ID_CHARS), credential_id=name.ljust(32, "c")
                )  # fmt: skip
                reported = {kind: 2**40 + place + number * 10 for place, kind in enumerate(REPORTED.values())}
                added(continued, one, **reported)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(continued) == 4 * 512
    assert held / len(continued) < MOST_BYTES / (4 * MAX_GENERATION_KEYS)


@pytest.mark.parametrize("name", ["upstream", "credential_id", "request_digest", "response_id", "last_event_id"])
def test_a_forged_record_with_an_endless_id_is_counted_and_not_remembered(continued: ResumedUsage, name: str) -> None:
    known = {"request_digest": "d", "response_id": "r", "last_event_id": "e", name: "x" * (MAX_ID_CHARS + 1)}
    assert added(continued, broken(**known), output=12) == {"output": 12}
    assert len(continued) == 0


# --- the ledger agrees ------------------------------------------------------------------------------------------------

Reported = tuple[Record, str, dict[str, int]]
IDS = st.sampled_from([None, "1", "a", "b", "masked"])
KINDS = tuple(REPORTED.values())
MODELS = ("a", "b")
LINKS = st.fixed_dictionaries(
    {
        "credential_id": st.sampled_from([None, "k", "k"]),
        "request_digest": IDS,
        "response_id": IDS,
        "last_event_id": IDS,
        "resumed_from": IDS,
        "outcome": st.sampled_from(["completed", "truncated", "client_abort"]),
        "endpoint": st.sampled_from(["/responses", "/responses", "/responses/{id}"]),
    }
)
NUMBERS = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 2**53))


def in_ledger(reported: Sequence[Reported], finals_from: int) -> Counter[tuple[str, str]]:
    """Tokens by model and kind, as the ledger counts them that holds these records."""
    sums: Counter[tuple[str, str]] = Counter()
    for kind in KINDS:
        parts = [
            UsagePart(
                str(place), one.upstream, one.credential_id, one.request_digest, one.response_id, one.last_event_id,
                one.resumed_from, one.endpoint, one.outcome, "final" if place >= finals_from else "partial",
                numbers.get(kind),
                *[None] * 4,
            )
            for place, (one, _, numbers) in enumerate(reported)
        ]  # fmt: skip
        counts = {part.stream_id: part.input_tokens for part in parts}
        counts |= {line.stream_id: line.input_tokens for line in count_once(parts, parts)}
        for place, (_, model, _) in enumerate(reported):
            sums[model, kind] += counts[str(place)] or 0
    return sums


def in_counters(reported: Iterable[Reported]) -> Counter[tuple[str, str]]:
    continued, sums = ResumedUsage(), Counter[tuple[str, str]]()
    for one, model, numbers in reported:
        share = continued.share_of(one, model, numbers)
        assert all(tokens > 0 for tokens in share.tokens.values()), "a counter cannot go down"
        sums.update({(share.model, kind): tokens for kind, tokens in share.tokens.items()})
    return sums


def rising(reported: Sequence[Reported]) -> list[Reported]:
    """The same records, changed so that none reports less than an earlier one."""
    so_far: Counter[str] = Counter()
    made: list[Reported] = []
    for one, model, numbers in reported:
        so_far.update(numbers)
        made.append((one, model, {kind: so_far[kind] for kind in numbers}))
    return made


RECORDS = st.lists(
    st.tuples(LINKS.map(lambda links: record(**links)), st.sampled_from(MODELS), NUMBERS), max_size=14
)  # fmt: skip


@given(RECORDS.map(rising), st.integers(0, 14))
def test_where_no_number_shrinks_the_counters_are_the_ledgers_sums(reported: list[Reported], finals_from: int) -> None:
    assert +in_counters(reported) == +in_ledger(reported, finals_from)


@given(RECORDS, st.integers(0, 14))
def test_where_numbers_shrink_the_counters_are_never_below_the_ledgers_sums(
    reported: list[Reported], finals_from: int
) -> None:
    counters, ledger = in_counters(reported), in_ledger(reported, finals_from)
    assert all(counters[key] >= tokens for key, tokens in ledger.items())
