"""Compares a record, and what a client received, with the scenario's expected results."""

from collections.abc import Iterator, Mapping

from streamgauge_demo.scenario import ClientEnd, Expected, Scenario
from streamgauge_demo.tally import Seen

# A record as decoded JSON (`core.record.Record`).
Json = Mapping[str, object]

_ENDS_WITHOUT_FINISH = (ClientEnd.ERROR, ClientEnd.STATUS, ClientEnd.CONNECTION, ClientEnd.TIMEOUT)


def record_differences(scenario: Scenario, record: Json) -> list[str]:
    """The differences of a record from the expected one, one line each; empty if it is right."""
    return [
        f"{path}: {value!r} instead of {expected!r}"
        for path, expected in _owed(scenario)
        if (value := member(record, path)) != expected
    ]


def client_differences(scenario: Scenario, seen: Seen) -> list[str]:
    """The same for what the official client received."""
    expected, content = scenario.expected, scenario.expected.content
    pairs: list[tuple[str, object, object]] = [("end", seen.end, expected.client)]
    if expected.exact:
        pairs += [
            ("text", seen.text, content.text),
            ("reasoning", seen.reasoning, content.reasoning),
            ("arguments", seen.arguments, content.arguments),
        ]
        if expected.client not in _ENDS_WITHOUT_FINISH:
            pairs.append(("finish", next(iter(seen.finish_raw), None), expected.finish_raw))
    else:
        pairs.append(("text", content.text.startswith(seen.text) and bool(seen.text), True))
    return [
        f"client's {name}: {received!r} instead of {expected_value!r}"
        for name, received, expected_value in pairs
        if received != expected_value
    ]


def member(record: Json, path: str) -> object:
    """The value at a dotted path; None if any part of the path is null."""
    value: object = record
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _owed(scenario: Scenario) -> Iterator[tuple[str, object]]:
    """Yields each member of the record that the scenario determines, with its value."""
    expected = scenario.expected
    yield "outcome", expected.outcome
    yield "upstream", scenario.upstream
    yield "request_model", scenario.model
    yield "dialect", scenario.dialect
    yield "status_code", expected.status
    yield "streaming", expected.streaming
    yield "finish_reason", expected.finish
    yield "finish_reason_raw", expected.finish_raw
    yield "response_model", expected.response_model
    yield "routed_model", expected.routed_model
    yield "integrity.complete", True
    error = expected.error
    yield "error.phase", error.phase if error else None
    yield "error.type", error.type if error else None
    yield "error.code", error.code if error else None
    yield "error.status", error.status if error else None
    yield from _usage_owed(expected)
    if expected.exact:
        yield "counts.token_events", expected.content.token_events
        yield "counts.text_chars", len(expected.content.text)
        yield "counts.reasoning_chars", len(expected.content.reasoning)


def _usage_owed(expected: Expected) -> Iterator[tuple[str, object]]:
    usage = expected.usage
    yield "usage.source", usage.source
    yield "usage.input_tokens", usage.input
    yield "usage.output_tokens", usage.output
    yield "usage.total_tokens", usage.total
    yield "usage.input_cached_tokens", usage.cached
    yield "usage.reasoning_tokens", usage.reasoning
