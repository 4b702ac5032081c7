"""Usage: the token counts that a stream reports in its provider's own fields, as one set of numbers.

For each field the last value that is present counts; nothing is summed over events. Absent, explicit zero and placeholder
are three different things. These zeros are placeholders, and bad values:

- an input, an output or a total of 0 after a positive one, with all that is a part of it
- an input of 0, without any token that was read from a cache or written to it
- an output of 0 beside token events
- every count of a usage whose counts are all 0

Some providers include reasoning in output and the cache in input, others report them separately. `normalised` decides this
by the stream's own numbers where they show it, not by the vendor. No count is dropped because it contradicts another one.
"""

from collections.abc import Mapping
from functools import cache

import msgspec

from streamgauge.core.allowlist import Kind, Spec, apply_allowlist
from streamgauge.core.capture.segments import Head
from streamgauge.core.record import Usage
from streamgauge.core.reported_cost import reported_cost
from streamgauge.core.safe_values import finite_number, whole_number
from streamgauge.core.usage_parts import parts_of

# Amazon Bedrock's own measures of an invocation, beside the last event of any vendor
# (https://docs.aws.amazon.com/nova/latest/userguide/modalities-video-examples.html shows them; times are in milliseconds).
INVOCATION_METRICS = "amazon-bedrock-invocationMetrics"
_INVOCATION_COUNTS = ("inputTokenCount", "outputTokenCount", "cacheReadInputTokenCount", "cacheWriteInputTokenCount")
KEEP_INVOCATION_METRICS: Mapping[str, Spec] = {
    **dict.fromkeys(_INVOCATION_COUNTS, Kind.COUNT),
    **dict.fromkeys(("invocationLatency", "firstByteLatency"), Kind.NUMBER),
}

_SUM = "input+output=total"
# Elements of a list that are kept (parts, details by modality); the longest recorded list has 4.
MAX_PARTS = 32


class UsageRules(msgspec.Struct, frozen=True):
    """The possible paths of each number in a dialect's usage object. The first positive count applies, else a 0.

    A path is keys joined by dots. In `details.modality=AUDIO.tokens`, `modality=AUDIO` selects the list element with
    that member; `modality=4` also selects the number 4. `input_parts`: further parts of input that the input field does not
    include (Anthropic's cache fields).
    `cache_write_split`: counts whose sum is the cache write, where no path of `cache_write` has a positive count.
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
    cache_write_split: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    audio_input: tuple[str, ...] = ()
    audio_output: tuple[str, ...] = ()
    input_parts: tuple[str, ...] = ()
    reasoning_outside: bool = False
    zero_is_absent: frozenset[str] = frozenset()

    @property
    def input_side(self) -> tuple[str, ...]:
        """The paths of all input counts: input, its parts and its cache."""
        return (*self.input, *self.input_parts, *self.cached, *self.cache_write, *self.cache_write_1h)

    @property
    def wholes(self) -> frozenset[str]:
        """The paths whose 0 may be a placeholder, by what came before it."""
        return frozenset((*self.input_side, *self.output, *self.total))


_METRICS: Mapping[str, Spec] = {INVOCATION_METRICS: KEEP_INVOCATION_METRICS}


def _invocation_rules() -> UsageRules:
    """The rules of Bedrock's metrics, for a vendor that reports no usage of its own. The input leaves out the cache."""
    input_count, output_count, read, written = (f"{INVOCATION_METRICS}.{name}" for name in _INVOCATION_COUNTS)
    return UsageRules(
        spec=_METRICS,
        input=(input_count,),
        input_parts=(read, written),
        output=(output_count,),
        cached=(read,),
        cache_write=(written,),
    )


_INVOCATION_RULES = _invocation_rules()


class UsageState(msgspec.Struct, array_like=True, gc=False):
    """Usage of an open stream: the provider's object, merged field by field, without bad values.

    `earlier_output`: the last total came without an output count, so the output count in `raw` belongs to an earlier
    total.
    """

    raw: dict[str, object] = {}
    seen: bool = False
    final: bool = False
    placeholder: bool = False
    bad_values: int = 0
    earlier_output: bool = False


def take(state: UsageState, rules: UsageRules, reported: object, *, final: bool, placeholder: bool = False) -> bool:
    """Merge one usage object into the state; return whether it held a number.

    `final`: it is the stream's final usage. `placeholder`: its output count has no meaning yet. A value that is not an
    object is a bad value. An empty object (Snowflake), nulls, and nothing but bad values are no usage.
    """
    if reported is None:
        return False
    if not isinstance(reported, dict):
        state.bad_values += 1
        return False
    if rules.zero_is_absent:
        reported = {key: value for key, value in reported.items() if value != 0 or key not in rules.zero_is_absent}
    fallen = _fallen_to_zero(state, rules, reported) if state.seen and _may_fall(state.raw, reported) else ()
    for path in fallen:
        reported = _without(reported, _keys(path))
    stored, bad = _merge(state.raw, rules.spec, reported)
    if INVOCATION_METRICS in reported:
        more_stored, more_bad = _merge(state.raw, _METRICS, reported)
        stored, bad = stored + more_stored, bad + more_bad
    state.bad_values += bad + len(fallen)
    if not stored:
        return False
    state.seen = True
    state.final = state.final or final
    if rules.reasoning_outside and _first(reported, rules.total) is not None:
        state.earlier_output = _first(reported, rules.output) is None
    if placeholder:
        state.placeholder = True
    elif state.placeholder and _first(reported, rules.output) is not None:
        state.placeholder = False
    return True


def _may_fall(raw: object, reported: object) -> bool:
    """Whether a usage may have a 0 in place of a positive count: few do, and many servers send a usage with each event."""
    if isinstance(reported, dict) and isinstance(raw, dict):
        return any(_may_fall(raw[key], value) for key, value in reported.items() if key in raw)
    if isinstance(reported, list):
        return any(
            _may_fall(raw, value) for element in reported if isinstance(element, dict) for value in element.values()
        )
    return reported == 0 and raw != 0


def _fallen_to_zero(state: UsageState, rules: UsageRules, reported: Mapping[str, object]) -> list[str]:
    """The paths of counts of this usage that are 0, were positive before, and are placeholders.

    Some proxies that translate another format fill the last usage with zeros. A part of the input alone may fall to 0: after
    a compaction Anthropic's last call reads nothing from the cache.
    """
    raw = state.raw
    zeros = _zeros_alone(reported, rules.input_side)
    if zeros is None and not set(rules.cached) & set(rules.input_parts):
        zeros = _zeros_alone(reported, rules.input)  # beside a cache that is a part of it
    fallen = dict.fromkeys(zeros or ())  # a path may be among several kinds of counts
    if zeros:
        fallen |= dict.fromkeys(_zeros_alone(reported, rules.audio_input) or ())
    if not state.placeholder:
        zeros = _zeros_alone(reported, (*rules.output, *rules.reasoning, *rules.audio_output))
        if zeros and not set(rules.output).isdisjoint(zeros):
            fallen |= dict.fromkeys(zeros)
    fallen |= dict.fromkeys(_zeros_alone(reported, rules.total) or ())
    return [path for path in fallen if whole_number(_at(raw, path))]


def _zeros_alone(reported: Mapping[str, object], paths: tuple[str, ...]) -> list[str] | None:
    """The paths at which a usage has 0; None if another of them has a positive count."""
    counts = [(path, whole_number(_at(reported, path))) for path in paths]
    return None if any(count for _, count in counts) else [path for path, count in counts if count is not None]


def _without(members: dict[str, object], keys: tuple[str, ...]) -> dict[str, object]:
    """A copy of an object without the member at a path; of a list of elements that it selects from, without the list."""
    first, *rest = keys
    inner = members.get(first)
    if rest and isinstance(inner, dict):
        return {**members, first: _without(inner, tuple(rest))}
    return {key: value for key, value in members.items() if key != first}


def _merge(into: dict[str, object], spec: Mapping[str, Spec], reported: Mapping[str, object]) -> tuple[int, int]:
    """Put the numbers that `spec` names into `into`; return how many were put in, and how many were bad."""
    stored = bad = 0
    for key in spec:
        value = reported.get(key)
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
        return [_named(spec[0], element) for element in value[:MAX_PARTS]]
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
            value = next(
                (element for element in value if isinstance(element, dict) and str(element.get(name)) == wanted), None
            )
        else:
            return None
    return value


def _first(raw: Mapping[str, object], paths: tuple[str, ...]) -> int | None:
    """The first positive count at these paths; else 0 if there is one."""
    known = None
    for path in paths:
        number = whole_number(_at(raw, path))
        if number:
            return number
        known = number if known is None else known
    return known


def normalised(
    state: UsageState,
    rules: UsageRules | None,
    head: Head | None = None,
    response_id: str | None = None,
    token_events: int = 0,
) -> Usage:
    """The record's usage. `identity_failed` names the equation or inequality that does not hold, or is None.

    `head`, `response_id`: of the response; they may show its cost, and who reports it. `token_events`: how many it had.
    """
    if rules is None or not state.seen:
        return _absent(state, head)
    raw = state.raw
    if INVOCATION_METRICS in raw and _first(raw, (*rules.input, *rules.output)) is None:
        rules = _INVOCATION_RULES
    total, reasoning, audio = _first(raw, rules.total), _first(raw, rules.reasoning), _first(raw, rules.audio_input)
    cached, written = _first(raw, rules.cached), _written(raw, rules)
    outside, inside = _input(raw, rules, cached or 0, written or 0)
    reported = None if state.placeholder else _first(raw, rules.output)
    zeros = 0
    if total == 0:
        total, zeros = None, 1
    input_tokens, (output, failed) = outside, _output_of(outside, reported, reasoning, total, rules, state)
    for more in (audio, inside):
        if failed == _SUM and more and outside is not None:
            # What the input field does not include, as the total shows: audio (Voxtral), or the cache.
            other = _output_of(outside + more, reported, reasoning, total, rules, state)
            if other[1] != _SUM:
                input_tokens, (output, failed) = outside + more, other
    if input_tokens == 0:
        input_tokens, zeros = None, zeros + 1
    if output == 0 and (token_events or not (input_tokens or total)):
        output, zeros = None, zeros + 1
    if failed == _SUM and (input_tokens is None or output is None):
        failed = None
    usage = Usage(
        input_tokens=input_tokens,
        output_tokens=output,
        total_tokens=total,
        input_cached_tokens=cached,
        input_cache_write_tokens=written,
        input_cache_write_1h_tokens=_first(raw, rules.cache_write_1h),
        reasoning_tokens=reasoning,
        audio_input_tokens=audio,
        audio_output_tokens=_first(raw, rules.audio_output),
        parts=parts_of(raw),
        source="final" if state.final else "partial",
        identity_failed=failed,
        bad_values=state.bad_values + zeros,
        raw=raw,
        reported_cost=reported_cost(raw, head, response_id),
    )
    if total is None and input_tokens is not None and output is not None:
        usage.total_tokens = input_tokens + output
    counts = [getattr(usage, name) for name in _COUNTS]
    if not any(counts) and (zeros or 0 in counts):
        _drop_zeros(usage)
    return usage


_COUNTS = tuple(name for name in Usage.__struct_fields__ if name.endswith("_tokens"))


def _drop_zeros(usage: Usage) -> None:
    """Remove the counts and `raw` of a usage whose counts are all 0. Its parts and its cost stay."""
    for name in _COUNTS:
        if getattr(usage, name) is not None:
            usage.bad_values += 1
            setattr(usage, name, None)
    usage.source, usage.raw = "absent", None


def _input(raw: Mapping[str, object], rules: UsageRules, cached: int, written: int) -> tuple[int | None, int]:
    """The input count, parts outside of the input field included; and the tokens of the cache that may be outside as well.

    If more tokens were read from a cache, or written to it, than the input field has, the field does not include the cache
    (Grok on Azure, gateways in front of Anthropic). It never includes the parts that `input_parts` names.
    """
    tokens = _first(raw, rules.input)
    if tokens is None:
        return None, 0
    tokens += sum([_first(raw, (path,)) or 0 for path in rules.input_parts])
    if set(rules.cached) & set(rules.input_parts):
        return tokens + (0 if _first(raw, rules.cache_write) else written), 0
    if cached > tokens or written > tokens:
        return tokens + cached + written, 0
    return tokens, cached + written


def _written(raw: Mapping[str, object], rules: UsageRules) -> int | None:
    """The tokens that were written to the cache."""
    written = _first(raw, rules.cache_write)
    return written or sum([_first(raw, (path,)) or 0 for path in rules.cache_write_split]) or written


def _output_of(
    input_tokens: int | None,
    output: int | None,
    reasoning: int | None,
    total: int | None,
    rules: UsageRules,
    state: UsageState,
) -> tuple[int | None, str | None]:
    """The output count including reasoning, and the identity that does not hold, if any.

    Of the possible readings of the output field, the first that adds up to the stream's total counts.
    """
    with_reasoning, outside = (output or 0) + reasoning if reasoning else output, rules.reasoning_outside
    if input_tokens is None or total is None or (output is None and not outside):
        reported = with_reasoning if outside else output
        return reported, _beyond_output(reasoning, reported)
    readings = (with_reasoning, output) if outside else (output, with_reasoning)
    # A total that came without an output count does not include an earlier one.
    for reading in (*readings, reasoning) if state.earlier_output else readings:
        if reading is not None and input_tokens + reading == total:
            return reading, _beyond_output(reasoning, reading)
    return readings[0], None if readings[0] is None else _SUM


def _beyond_output(reasoning: int | None, output: int | None) -> str | None:
    """The identity that does not hold if there is more reasoning than output, which includes it; else None."""
    return "reasoning<=output" if output is not None and (reasoning or 0) > output else None


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
