"""Judging results: records and clients' reports against scenarios, counts, and the limits."""

from collections.abc import Mapping

import pytest

from streamgauge_demo.results import MAX_LINES, Results, outcome_text
from streamgauge_demo.scenario import ClientEnd, Scenario
from streamgauge_demo.scenarios import BY_MODEL, SCENARIOS
from streamgauge_demo.tally import Seen
from streamgauge_demo.truth import Told, Wrote
from streamgauge_demo.verdict import client_differences, member, record_differences
from tests.each import each


def good_record(scenario: Scenario) -> dict[str, object]:
    """A record as the scenario defines it; written by hand, so that the comparison is tested on its own."""
    expected, error, usage = scenario.expected, scenario.expected.error, scenario.expected.usage
    return {
        "outcome": expected.outcome,
        "upstream": scenario.upstream,
        "request_model": scenario.model,
        "response_model": expected.response_model,
        "routed_model": expected.routed_model,
        "provider_request_id": "req_1",
        "dialect": scenario.dialect,
        "status_code": expected.status,
        "streaming": expected.streaming,
        "finish_reason": expected.finish,
        "finish_reason_raw": expected.finish_raw,
        "error": {"phase": error.phase, "type": error.type, "code": error.code, "status": error.status}
        if error
        else None,
        "timing": {"first_token_s": 0.5, "gaps": {"p50_s": 0.03, "p95_s": 0.06}},
        "usage": {
            "source": usage.source,
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "total_tokens": usage.total,
            "input_cached_tokens": usage.cached,
            "reasoning_tokens": usage.reasoning,
        },
        "counts": {
            "token_events": expected.content.token_events,
            "text_chars": len(expected.content.text),
            "reasoning_chars": len(expected.content.reasoning),
        },
        "integrity": {"complete": True},
    }


def good_client(scenario: Scenario) -> Seen:
    content = scenario.expected.content
    seen = Seen(
        scenario.model, scenario.expected.client, "req_1", 1, content.text, content.reasoning, content.arguments
    )
    seen.finish_raw = [scenario.expected.finish_raw] if scenario.expected.finish_raw else []
    return seen


@each(SCENARIOS, lambda scenario: scenario.model)
def test_expected_results_have_no_difference(scenario: Scenario) -> None:
    assert record_differences(scenario, good_record(scenario)) == []
    assert client_differences(scenario, good_client(scenario)) == []


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("outcome", "truncated"),
        ("finish_reason", "length"),
        ("routed_model", None),
        ("usage.output_tokens", 0),
        ("usage.source", "partial"),
        ("counts.token_events", 1),
        ("counts.text_chars", 1),
        ("integrity.complete", False),
        ("error", {"phase": "in_stream"}),
    ],
)
def test_each_wrong_member_is_reported(path: str, wrong: object) -> None:
    scenario = BY_MODEL["sansa/auto-stop"]
    record = good_record(scenario)
    name, _, inner = path.partition(".")
    part = record[name]
    record[name] = {**part, inner: wrong} if inner and isinstance(part, dict) else wrong
    (line,) = record_differences(scenario, record)
    assert line.startswith(path)


def test_a_missing_part_is_a_difference_and_no_crash() -> None:
    assert "usage.source: None instead of 'final'" in record_differences(BY_MODEL["sansa/auto-stop"], {})
    assert member({"a": {"b": None}}, "a.b.c") is None


@pytest.mark.parametrize(
    ("change", "line_start"),
    [
        ({"end": ClientEnd.CONNECTION}, "client's end"),
        ({"text": "something else"}, "client's text"),
        ({"finish_raw": ["length"]}, "client's finish"),
        ({"finish_raw": []}, "client's finish"),
    ],
)
def test_a_client_that_saw_something_else_is_reported(change: Mapping[str, object], line_start: str) -> None:
    scenario = BY_MODEL["nanogpt/chat-stop"]
    seen = good_client(scenario)
    for name, value in change.items():
        setattr(seen, name, value)
    (line,) = client_differences(scenario, seen)
    assert line.startswith(line_start)


@pytest.mark.parametrize("text", ["", "Something that was never said"])
def test_a_client_that_left_must_have_seen_a_beginning(text: str) -> None:
    scenario = BY_MODEL["gateway/abort"]
    seen = good_client(scenario)
    assert client_differences(scenario, seen) == []
    seen.text = text
    assert len(client_differences(scenario, seen)) == 1


def played(*models: str) -> Results:
    results = Results(BY_MODEL[model] for model in models)
    for scenario in results.scenarios:
        results.add_seen(good_client(scenario))
        results.add_record(good_record(scenario))
    return results


def test_results_count_requests_and_records() -> None:
    results = played("sansa/auto-stop", "local/chat-error")
    assert results.as_expected
    assert results.missing == 0
    results.add_seen(good_client(BY_MODEL["sansa/auto-stop"]))
    assert results.missing == 1
    assert results.differences(BY_MODEL["sansa/auto-stop"]) == ["1 records of 2 requests"]
    assert not results.as_expected


def test_a_record_too_many_is_a_difference() -> None:
    results = played("sansa/auto-stop")
    results.add_record(good_record(BY_MODEL["sansa/auto-stop"]))
    assert results.differences(BY_MODEL["sansa/auto-stop"]) == ["2 records of 1 requests"]


def test_an_unrequested_record_is_not_a_success() -> None:
    results = played("sansa/auto-stop")
    results.add_record({"request_model": "who/knows"})
    assert list(results.unknown) == ["who/knows"]
    assert not results.as_expected


def test_a_scenario_that_was_not_played_is_not_a_success() -> None:
    results = Results([BY_MODEL["sansa/auto-stop"]])
    assert results.differences(BY_MODEL["sansa/auto-stop"]) == ["no request was sent"]
    assert not results.as_expected


def test_interrupted_scenarios_are_not_judged() -> None:
    results = Results([BY_MODEL["sansa/auto-stop"]])
    results.interrupted.add("sansa/auto-stop")
    results.add_record({"request_model": "sansa/auto-stop", "outcome": "client_abort"})
    assert results.as_expected


def test_differences_are_limited_and_not_repeated() -> None:
    scenario = BY_MODEL["sansa/auto-stop"]
    results = played("sansa/auto-stop")
    for number in range(1000):
        results.add_seen(good_client(scenario))
        results.add_record({**good_record(scenario), "outcome": f"strange {number}"})
    assert len(results.differences(scenario)) == MAX_LINES


def test_first_tokens_are_compared_with_the_simulators_clock() -> None:
    results = played("sansa/auto-stop", "nanogpt/chat-stop")
    second = 1_000_000_000
    wrote = [Wrote(10 * second, 1, 0), Wrote(10 * second + 499_000_000, 1, 1)]
    request = Told("req_1", "sansa/auto-stop", "/", 10 * second, wrote)
    assert results.first_token_errors({"req_1": request}) == pytest.approx([0.001, 0.001])
    assert results.first_token_errors({}) == []
    assert results.first_token_errors({"req_1": Told("req_1", "x", "/", 0)}) == []


def test_an_ending_in_words() -> None:
    assert outcome_text("completed", "stop") == "completed, stop"
    assert outcome_text("truncated", None) == "truncated"
