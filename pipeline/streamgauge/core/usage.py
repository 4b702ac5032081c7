"""Usage: the token counts that a stream reports in its provider's own fields, as one set of numbers.

For each field the last value that is present counts; nothing is summed over events. Absent, explicit zero and placeholder
are three different things. If all input counts of an event are 0, those that were positive before are placeholders, and
count as bad values.

Some providers include reasoning in output and the cache in input, others report them separately. `normalised` decides this
by the stream's own numbers where they show it, not by the vendor.
"""

from collections.abc import Mapping
from functools import cache

import msgspec

from streamgauge.core.allowlist import Kind, Spec, apply_allowlist
from streamgauge.core.capture.segments import Head
from streamgauge.core.record import Usage
from streamgauge.core.reported_cost import reported_cost
from streamgauge.core.safe_values import finite_number, whole_number

# Types of Anthropic's iterations that the top level of its usage counts already: the model's own, and that of the model
# that took over after a refusal (server-side fallback: the top level is then the usage of the last model).
_TOP_LEVEL = (None, "message", "fallback_message")
# Elements of a list that are kept (parts, details by modality); the longest recorded list has 4.
MAX_PARTS = 32


class UsageRules(msgspec.Struct, frozen=True):
    """Where a dialect reports each number: its possible paths, of which the first that holds a count applies.

    A path is keys joined by dots. In `details.modality=AUDIO.tokens`, `modality=AUDIO` selects the list element with
    that member. `input_parts`: further parts of input that the input field does not include (Anthropic's cache fields).
    `reasoning_outside`: the output field does not include reasoning, unless the stream's own total shows that it does.
    `zero_is_absent`: members whose value 0 in an event means that the event does not report them.
    """

    spec: Mapping[str, Spec]
    input: tuple[str, ...]
    output: tuple[str, ...]
    total: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    cache_write: tuple[str, ...] = ()
    cache_write_1h: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    audio_input: tuple[str, ...] = ()
    audio_output: tuple[str, ...] = ()
    input_parts: tuple[str, ...] = ()
    parts: str | None = None
    reasoning_outside: bool = False
    zero_is_absent: frozenset[str] = frozenset()

    @property
    def input_side(self) -> tuple[str, ...]:
        """The paths of all input counts: input, its parts and its cache."""
        return (*self.input, *self.input_parts, *self.cached, *self.cache_write, *self.cache_write_1h)


class UsageState(msgspec.Struct, array_like=True, gc=False):
    """Usage of an open stream: the provider's object, merged field by field, without bad values."""

    raw: dict[str, object] = {}
    seen: bool = False
    final: bool = False
    placeholder: bool = False
    bad_values: int = 0


def take(state: UsageState, rules: UsageRules, given: object, *, final: bool, placeholder: bool = False) -> bool:
    """Merge one usage object into the state; return whether it held a number.

    `final`: it is the stream's final usage. `placeholder`: its output count has no meaning yet. A value that is not an
    object is a bad value. An empty object (Snowflake), nulls, and nothing but bad values are no usage.
    """
    if given is None:
        return False
    if not isinstance(given, dict):
        state.bad_values += 1
        return False
    if rules.zero_is_absent:
        given = {key: value for key, value in given.items() if value != 0 or key not in rules.zero_is_absent}
    fallen = _fallen_to_zero(state.raw, rules, given) if state.seen else ()
    for path in fallen:
        given = _without(given, _keys(path))
    stored, bad = _merge(state.raw, rules.spec, given)
    state.bad_values += bad + len(fallen)
    if not stored:
        return False
    state.seen = True
    state.final = state.final or final
    if placeholder:
        state.placeholder = True
    elif state.placeholder and _first(given, rules.output) is not None:
        state.placeholder = False
    return True


def _fallen_to_zero(raw: Mapping[str, object], rules: UsageRules, given: Mapping[str, object]) -> list[str]:
    """The paths of input counts that were positive before, if all input counts of this usage are 0; else none.

    Some proxies that translate another format to Anthropic's fill the message_delta with zeros. A single count may fall
    to 0: after a compaction Anthropic's last call reads nothing from the cache.
    """
    zeros: dict[str, None] = {}  # a path may be among several kinds of counts
    for path in rules.input_side:
        count = whole_number(_at(given, path))
        if count:
            return []
        if count is not None:
            zeros[path] = None
    return [path for path in zeros if whole_number(_at(raw, path))]


def _without(given: dict[str, object], keys: tuple[str, ...]) -> dict[str, object]:
    """A copy of an object without the member at a path."""
    first, *rest = keys
    inner = given.get(first)
    if rest and isinstance(inner, dict):
        return {**given, first: _without(inner, tuple(rest))}
    return {key: value for key, value in given.items() if key != first}


def _merge(into: dict[str, object], spec: Mapping[str, Spec], given: Mapping[str, object]) -> tuple[int, int]:
    """Put the numbers that `spec` names into `into`; return how many were put in, and how many were bad."""
    stored = bad = 0
    for key in spec:
        value = given.get(key)
        if value is None:
            continue
        kind = spec[key]
        if kind is Kind.COUNT or kind is Kind.NUMBER:
            number = whole_number(value) if kind is Kind.COUNT else value if finite_number(value) is not None else None
            if number is None:
                bad += 1
            else:
                into[key] = number
                stored += 1
        elif isinstance(kind, Mapping):
            inner = into.setdefault(key, {}) if isinstance(value, dict) else None
            if isinstance(value, dict) and isinstance(inner, dict):
                more_stored, more_bad = _merge(inner, kind, value)
                stored, bad = stored + more_stored, bad + more_bad
        else:
            into[key] = _named(kind, value)
    return stored, bad


def _named(spec: Spec, value: object) -> object:
    """The members of a list or object that the spec names. The others would take room in the state of an open stream."""
    if isinstance(spec, Kind):
        return apply_allowlist(spec, value)
    if isinstance(value, list) and isinstance(spec, list):
        return [_named(spec[0], one) for one in value[:MAX_PARTS]]
    if isinstance(value, dict) and isinstance(spec, Mapping):
        return {key: _named(kind, value[key]) for key, kind in spec.items() if key in value}
    return apply_allowlist(spec, value)


@cache
def _keys(path: str) -> tuple[str, ...]:
    """A path's keys. All paths come from the dialects' tables, so the cache stays small."""
    return tuple(path.split("."))


def _at(raw: Mapping[str, object], path: str) -> object:
    value: object = raw
    for key in _keys(path):
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list):
            name, _, wanted = key.partition("=")
            value = next((one for one in value if isinstance(one, dict) and one.get(name) == wanted), None)
        else:
            return None
    return value


def _first(raw: Mapping[str, object], paths: tuple[str, ...]) -> int | None:
    for path in paths:
        number = whole_number(_at(raw, path))
        if number is not None:
            return number
    return None


def normalised(
    state: UsageState, rules: UsageRules | None, head: Head | None = None, response_id: str | None = None
) -> Usage:
    """The record's usage. `identity_failed` names the equation or inequality that does not hold, or is None.

    `head`, `response_id`: of the response; they may show its cost, and who reports it.
    """
    if rules is None or not state.seen:
        return _absent(state, head)
    raw = state.raw
    given_input, output = _first(raw, rules.input), _first(raw, rules.output)
    if state.placeholder:
        output = None
    total, reasoning, cached = _first(raw, rules.total), _first(raw, rules.reasoning), _first(raw, rules.cached)
    input_tokens = _input(raw, rules, given_input)
    if cached is not None and input_tokens is not None and cached > input_tokens:
        # The input field does not include the cache (Grok on Azure). `_input` has added those parts of it that
        # `input_parts` names.
        input_tokens += 0 if set(rules.cached) & set(rules.input_parts) else cached
    output, failed = _output_of(input_tokens, output, reasoning, total, rules.reasoning_outside)
    if total is None and input_tokens is not None and output is not None:
        total = input_tokens + output
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output,
        total_tokens=total,
        input_cached_tokens=cached,
        input_cache_write_tokens=_first(raw, rules.cache_write),
        input_cache_write_1h_tokens=_first(raw, rules.cache_write_1h),
        reasoning_tokens=reasoning,
        audio_input_tokens=_first(raw, rules.audio_input),
        audio_output_tokens=_first(raw, rules.audio_output),
        parts=_parts(raw, rules),
        source="final" if state.final else "partial",
        identity_failed=failed,
        bad_values=state.bad_values,
        raw=raw,
        reported_cost=reported_cost(raw, head, response_id),
    )


def _input(raw: Mapping[str, object], rules: UsageRules, given: int | None) -> int | None:
    if given is None or not rules.input_parts:
        return given
    return given + sum([_first(raw, (path,)) or 0 for path in rules.input_parts])


def _output_of(
    input_tokens: int | None, output: int | None, reasoning: int | None, total: int | None, outside: bool
) -> tuple[int | None, str | None]:
    """The output count including reasoning, and the identity that does not hold, if any.

    Of the possible readings of the output field, the first that adds up to the stream's total counts.
    """
    with_reasoning = (output or 0) + reasoning if reasoning else output
    if input_tokens is None or total is None or (output is None and not outside):
        reported = with_reasoning if outside else output
        return reported, _beyond_output(reasoning, reported)
    # The last usage of a Gemini stream may lack output. Its total then excludes the output of an earlier usage.
    readings = (with_reasoning, output, reasoning) if outside else (output, with_reasoning)
    for reading in readings:
        if reading is not None and input_tokens + reading == total:
            return reading, _beyond_output(reasoning, reading)
    return readings[0], None if readings[0] is None else "input+output=total"


def _beyond_output(reasoning: int | None, output: int | None) -> str | None:
    """The identity that does not hold if there is more reasoning than output, which includes it; else None."""
    return "reasoning<=output" if output is not None and (reasoning or 0) > output else None


def _parts(raw: Mapping[str, object], rules: UsageRules) -> list[dict[str, object]]:
    given = _at(raw, rules.parts) if rules.parts else None
    if not isinstance(given, list):
        return []
    return [part for part in given if isinstance(part, dict) and part.get("type") not in _TOP_LEVEL]


def _absent(state: UsageState, head: Head | None) -> Usage:
    return Usage(
        input_tokens=None,
        output_tokens=None,
        total_tokens=None,
        input_cached_tokens=None,
        input_cache_write_tokens=None,
        input_cache_write_1h_tokens=None,
        reasoning_tokens=None,
        audio_input_tokens=None,
        audio_output_tokens=None,
        parts=[],
        source="absent",
        identity_failed=None,
        bad_values=state.bad_values,
        raw=None,
        reported_cost=reported_cost(None, head, None),
    )
