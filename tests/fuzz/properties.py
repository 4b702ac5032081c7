"""What must hold for every record, of any stream. Takes records as decoded from their JSON."""

import copy
import itertools
import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from streamgauge.records import Record
from tests.fuzz.hostile import WORD
from tests.vectors.load import differences

Json = dict[str, Any]

SCHEMA = Path(__file__).parents[2] / "schemas" / "record.v1.json"
_VALIDATOR = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))

# Each must not be later than the next, if both are set (seconds).
IN_ORDER = ("first_byte_s", "first_event_s", "first_token_s", "last_token_s", "end_s")
FIRST_KINDS = ("first_reasoning_s", "first_content_s", "first_tool_s")
TOKENS = ("input_tokens", "output_tokens", "total_tokens", "input_cached_tokens", "reasoning_tokens")


def check(record: Json) -> None:
    """Raises AssertionError for an impossible record."""
    check_values(record)
    error = next(_VALIDATOR.iter_errors(record), None)
    assert error is None, error


def check_values(record: Json) -> None:
    """The same without the JSON Schema, which takes longer than everything else."""
    assert Record.model_validate(record).model_dump(mode="json") == record
    _check_counts(record)
    integrity = record["integrity"]
    gapless = (
        not integrity["missing_segments"] and not integrity["dropped_reads"] and "log_gap" not in integrity["reasons"]
    )
    _check_times(record["timing"], gapless=gapless)
    _check_gaps(record["timing"], record["counts"]["token_events"])
    _check_usage(record["usage"])
    _check_ending(record)
    assert WORD not in json.dumps(record, ensure_ascii=False), "a character that no label allows is in the record"


def _check_counts(record: Json) -> None:
    counts = record["counts"]
    assert all(number is None or number >= 0 for number in counts.values()), counts
    for part in ("token_events", "unparsed_events", "after_terminal_events", "repeated_events"):
        assert counts[part] <= counts["events"], part
    assert counts["token_events"] + counts["unparsed_events"] <= counts["events"]
    choices = record["choices"]
    indices = [choice["index"] for choice in choices]
    assert indices == sorted(set(indices))
    assert all(choice["token_events"] <= counts["token_events"] for choice in choices)
    if "state_limit" not in record["integrity"]["reasons"]:
        assert sum(choice["token_events"] for choice in choices) >= counts["token_events"]
    assert all(call["argument_chars"] >= 0 for choice in choices for call in choice["tool_calls"])


def _check_times(timing: Json, *, gapless: bool) -> None:
    known = [timing[name] for name in IN_ORDER if timing[name] is not None]
    assert known == sorted(known), timing
    kinds = [timing[name] for name in FIRST_KINDS if timing[name] is not None]
    first, last = timing["first_token_s"], timing["last_token_s"]
    assert not kinds or first is not None
    assert all(first <= moment and (last is None or moment <= last) for moment in kinds)
    assert None in (timing["finish_s"], timing["first_event_s"]) or timing["first_event_s"] <= timing["finish_s"]
    if gapless:
        assert (first is None) == (last is None)
        assert timing["finish_s"] is None or timing["first_event_s"] is not None
    assert timing["wire_max_gap_s"] is None or timing["wire_max_gap_s"] >= 0
    assert timing["inter_token_latency_s"] is None or timing["inter_token_latency_s"] >= 0
    if timing["first_byte_s"] is None:
        gaps = {name: value for name, value in timing["gaps"].items() if name != "count"}
        assert {timing["first_token_s"], timing["burst"], *gaps.values()} == {None}


def _check_gaps(timing: Json, token_events: int) -> None:
    gaps = timing["gaps"]
    assert gaps["count"] == max(token_events - 1, 0)
    ranks = [gaps[name] for name in ("p50_s", "p95_s", "p99_s") if gaps[name] is not None]
    assert ranks == sorted(ranks)
    assert len(ranks) in (0, 3)
    if gaps["buckets"] is not None:
        bounds = [bound for bound, _ in gaps["buckets"]]
        numbers = [number for _, number in gaps["buckets"]]
        assert bounds[-1] is None
        assert all(one < two for one, two in itertools.pairwise(bounds[:-1]))
        assert numbers == sorted(numbers)
        assert numbers[-1] == gaps["count"]
        assert 0 <= gaps["stalls"] <= gaps["count"]
    if gaps["max_s"] is not None:
        assert 0 <= gaps["mean_s"] <= gaps["max_s"]


def _check_usage(usage: Json) -> None:
    assert usage["source"] in ("final", "partial", "absent")
    assert (usage["source"] == "absent") == (usage["raw"] is None)
    assert usage["bad_values"] >= 0
    for name in TOKENS:
        assert usage[name] is None or (type(usage[name]) is int and usage[name] >= 0), name
    sums = [usage[name] for name in ("input_tokens", "output_tokens", "total_tokens")]
    if usage["identity_failed"] is None and None not in sums:
        assert sums[0] + sums[1] == sums[2]


def _check_ending(record: Json) -> None:
    outcome, error = record["outcome"], record["error"]
    phases = {"upstream_reset": "transport", "timeout": "transport"}
    if outcome in phases:
        assert error["phase"] == phases[outcome]
    elif outcome in ("stream_error", "http_error"):
        assert error["phase"] in ("before_stream", "in_stream")
    else:
        assert error is None
    for one in (record, *record["choices"]):
        assert one["finish_reason"] is None or one["finish_reason_raw"] is not None
        assert one["finish_reason_raw"] != ""
    lacks_of_response = {*record["integrity"]["reasons"]} - {"request_capped"}
    assert record["integrity"]["complete"] == (not lacks_of_response)


def same(got: Json, expected: Json, *leave_out: str) -> None:
    """Equal except for the stream's id, the counts of reads and segments, and these names."""
    one, two = _without(got, leave_out), _without(expected, leave_out)
    assert one == two, list(differences(two, one))


def _without(record: Json, names: tuple[str, ...]) -> Json:
    out = copy.deepcopy(record)
    for path in ("stream_id", "counts.reads", "counts.segments", *names):
        parent, _, name = path.rpartition(".")
        (out[parent] if parent else out)[name] = None
    return out


def without_validity(record: Json) -> Json:
    """Without what a masked capture cannot contain: whether tool arguments are valid JSON."""
    out = copy.deepcopy(record)
    for choice in out["choices"]:
        for call in choice["tool_calls"]:
            call["arguments_valid"] = None
    return out


def without_times(record: Json) -> Json:
    """Without what only a capture with stamps contains."""
    out = copy.deepcopy(record)
    out["timing"] = None
    for choice in out["choices"]:
        choice["first_token_s"] = None
    return out
