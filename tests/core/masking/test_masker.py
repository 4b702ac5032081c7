"""Masking keeps structure, code points and token events, and nothing that the allowlist does not name."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.allowlist import MAX_MEMBERS, OUT_OF_RANGE, Kind, Spec, allowlist_filter, apply_allowlist
from streamgauge.core.dialects import BY_NAME, DIALECTS
from streamgauge.core.formats.json_text import UNPARSED, parse
from streamgauge.core.formats.sse import HALF_EVENT, Event
from streamgauge.core.masking.masker import Masker
from tests.core.masking.interpreted import interpreted

CANARY = "CANARY-7f3a"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def masked(data: object, path: str | None = "/chat/completions", name: str = "") -> object:
    event = Masker(path, full=False).event(Event(name=name, data=msgspec.json.encode(data)))
    assert event.data is not None
    return msgspec.json.decode(event.data)


def test_only_the_number_of_code_points_of_a_text_is_kept() -> None:
    data = {"choices": [{"index": 0, "delta": {"content": "gr\u00fc\u00df \U0001f600\n"}}]}
    assert masked(data) == {"choices": [{"index": 0, "delta": {"content": "x" * 7}}]}


@pytest.mark.parametrize(
    "rest", [b"", b"1", b"2]", b'x"', b"}", b"rue", b"ull", b"alse", b"aN", b"nfinity", b"Infinity", b" {}"]
)
def test_texts_refused_by_their_first_byte_are_refused_by_the_decoders_too(rest: bytes) -> None:
    for first in range(256):
        text = bytes((first,)) + rest
        try:
            json.loads(text.decode("utf-8", "replace"))
        except ValueError:
            assert parse(text) is UNPARSED
        else:
            assert parse(text) is not UNPARSED
    assert parse(b"") is UNPARSED


@pytest.mark.parametrize("kind", [Kind.CODE, Kind.ID, Kind.FLAG])
def test_a_number_that_is_no_code_id_or_flag_is_masked(kind: Kind) -> None:
    """It may be private, as the number of a card. An error's code may be a number up to a limit."""
    secret = 918273645546372.25
    assert apply_allowlist(kind, secret) == OUT_OF_RANGE
    assert apply_allowlist(kind, 2**60) == OUT_OF_RANGE
    assert apply_allowlist(kind, 503) == (503 if kind is Kind.CODE else OUT_OF_RANGE)


def test_values_that_no_path_names_are_masked() -> None:
    data = {
        "id": "chatcmpl-1",
        "choices": [],
        CANARY: CANARY,
        "user": {"name": CANARY},
        "logit": [1, CANARY],
        "seed": 7,
    }
    kept = masked(data)
    assert kept == {
        "id": "chatcmpl-1",
        "choices": [],
        "masked_2": "masked",
        "masked_3": {},
        "masked_4": [],
        "masked_5": 0,
    }


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({"error": {"message": CANARY, "type": CANARY + " ", "code": {"a": CANARY}, "param": CANARY}}, ""),
        ({"error": CANARY + " is wrong"}, ""),
        ({"detail": CANARY}, ""),
        ({"detail": [{"type": "missing", "loc": [CANARY], "msg": CANARY, "input": {CANARY: CANARY}}]}, ""),
        ({"base_resp": {"status_code": 1004, "status_msg": CANARY}}, ""),
        ({"choices": [{"delta": {}, "finish_reason": f"stop sequence {CANARY} met"}]}, ""),
        ({"message": CANARY, "type": "server_error"}, "error"),
        ({"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": CANARY}}]}}]}, ""),
        ({"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [{"token": CANARY, "bytes": [1, 2]}]}}]}, ""),
        ({"choices": [{"delta": {"reasoning_details": [{"text": CANARY, "signature": CANARY}]}}]}, ""),
        ({"type": "content_block_start", "content_block": {"type": "text", "citations": [{"url": CANARY}]}}, ""),
        ({"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": CANARY}}, ""),
        ({"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": CANARY}}, ""),
        ({"type": "response.output_text.delta", "delta": CANARY, "obfuscation": CANARY}, ""),
        ({"type": "response.completed", "response": {"instructions": CANARY, "metadata": {CANARY: CANARY}}}, ""),
        ({"usage": {CANARY: 1, "prompt_tokens": CANARY}, "choices": []}, ""),
        ({"jsonrpc": "2.0", "result": {"content": CANARY}}, "message"),
        ([CANARY], ""),
        (CANARY, ""),
    ],
)
def test_no_canary_survives(data: object, name: str) -> None:
    for path in (None, "/chat/completions", "/messages", "/responses"):
        masker = Masker(path, full=False)
        event = masker.event(Event(name=name, data=msgspec.json.encode(data)))
        assert CANARY not in str(event)
        body = masker.body(msgspec.json.encode(data))
        assert body is not None
        assert CANARY.encode() not in body


def test_names_ids_and_errors_beside_the_data() -> None:
    event = Event(name=CANARY + " x", data=b"no json " + CANARY.encode(), id=CANARY + "\u00fc", error=CANARY.encode())
    out = Masker(None, full=False).event(event)
    assert CANARY not in str(out)
    assert out.data is not None
    assert parse(out.data) is UNPARSED
    assert Masker(None, full=False).event(Event(id="42", data=b"[DONE]")) == Event(id="42", data=b"[DONE]")


def test_a_half_event_becomes_a_placeholder_and_a_whole_one_stays() -> None:
    masker = Masker("/chat/completions", full=False)
    assert masker.tail(Event(data=b'{"choices":[{"delta":{"content":"' + CANARY.encode())) == HALF_EVENT
    assert masker.tail(Event(data=b"[DONE]")).startswith(b"data: [DONE]")
    assert Masker(None, full=True).tail(Event(data=b'{"half')) == HALF_EVENT
    for full in (True, False):  # text that looks like JSON: whether more of it was to come cannot be decided
        assert Masker(None, full).tail(Event(name="output", data=b'{"a": 1}')) == HALF_EVENT


def test_full_capture_changes_no_event() -> None:
    event = Event(name="x", data=b'{"choices":[{"delta":{"content":"secret"}}]}', id="1", comments=2)
    assert Masker(None, full=True).event(event) == event


@given(JSON)
def test_anything_can_be_masked_and_encoded(value: object) -> None:
    for dialect in DIALECTS:
        for spec in (dialect.keep, dialect.keep_body):
            assert isinstance(msgspec.json.encode(apply_allowlist(spec, value)), bytes)


@given(JSON, st.sampled_from(list(Kind)))
def test_masking_twice_is_masking_once(value: object, kind: Kind) -> None:
    spec: dict[str, Any] = {"a": kind, "b": [kind]}
    once: Any = apply_allowlist(spec, {"a": value, "b": value})
    if kind is not Kind.ARGUMENTS:  # a value becomes a text of its length
        assert apply_allowlist(spec, once) == {key: apply_allowlist(spec.get(key), one) for key, one in once.items()}


@given(st.text())
def test_code_points_are_those_of_the_decoded_text(text: str) -> None:
    assert apply_allowlist(Kind.TEXT, text) == "x" * len(text)


def test_lone_surrogates_count_one_each() -> None:
    raw = b'{"choices":[{"delta":{"content":"\\ud800a\\ud83d\\ude00"}}]}'
    event = Masker("/chat/completions", full=False).event(Event(data=raw))
    assert event.data is not None
    assert b'"content":"xxx"' in event.data


@pytest.mark.parametrize(
    "raw", [b"[" * 100_000, b'{"a":' * 100_000, b"1" * 100_000, b"NaN", b"", b"\xff", b'{"a":1,"a":2}']
)
def test_hostile_json_neither_raises_nor_stalls(raw: bytes) -> None:
    event = Masker(None, full=False).event(Event(data=raw))
    assert event.data is not None
    assert len(event.data) < 200


@pytest.mark.parametrize("dialect", BY_NAME)
@pytest.mark.parametrize("kind", [[], {}, ["a"], 1, True, None])
def test_an_event_whose_type_is_no_text_is_masked(kind: object, dialect: str) -> None:
    masker = Masker(None, full=False, dialect=dialect)
    event = masker.event(Event(name="e", data=msgspec.json.encode({"type": kind, "delta": CANARY})))
    assert event.data is not None
    assert CANARY.encode() not in event.data


_KEYS = st.sampled_from(sorted({key for dialect in DIALECTS for key in dialect.keep})) | st.text(max_size=3)
_NUMBERS = st.sampled_from(
    [0, 0.0, -0.0, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 1e300, 1e301, float("nan"), float("inf")]
)
_WORDS = st.sampled_from(["", "stop", "a b", "x" * 129, "x" * 257, "function_call_filter: MALFORMED_FUNCTION_CALL"])
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | _NUMBERS | st.text() | _WORDS


def shaped(spec: Spec) -> st.SearchStrategy[object]:
    """Values that nearly have the shape that a spec names."""
    if isinstance(spec, Kind):
        return _SCALARS
    if isinstance(spec, tuple):
        return st.one_of(*map(shaped, spec)) | JSON
    if isinstance(spec, Mapping):
        named = st.fixed_dictionaries({}, optional={key: shaped(one) for key, one in spec.items()})
        return (
            st.builds(lambda one, other: {**one, **other}, named, st.dictionaries(_KEYS, _SCALARS, max_size=2)) | JSON
        )
    return st.lists(shaped(spec[0]), max_size=2) | _SCALARS


@cache
def shaped_of(name: str) -> list[tuple[Spec, st.SearchStrategy[object]]]:
    """A dialect's specs, each with its strategy: it takes longer to make one than to draw from it."""
    return [(spec, shaped(spec)) for spec in (BY_NAME[name].keep, BY_NAME[name].keep_body)]


@settings(max_examples=settings().max_examples // 3)
@given(st.data())
@pytest.mark.parametrize("name", [dialect.name for dialect in DIALECTS])
def test_a_filter_applies_its_spec(name: str, data: st.DataObject) -> None:
    for spec, values in shaped_of(name):
        value = data.draw(values)
        assert repr(allowlist_filter(spec)(value)) == repr(interpreted(spec, value))


def test_members_beyond_the_limit_are_dropped_unless_they_are_named() -> None:
    value = {str(number): number for number in range(MAX_MEMBERS + 20)} | {"id": "a"}
    kept = apply_allowlist({"id": Kind.ID}, value)
    assert kept == interpreted({"id": Kind.ID}, value)
    assert isinstance(kept, dict)
    assert len(kept) == MAX_MEMBERS + 1


def test_events_masked_together_are_masked_as_one_by_one() -> None:
    events = [
        Event(data=b'{"choices":[{"delta":{"content":"a"}}]}', comments=2),
        Event("output", b"text, unless another dialect was shown"),
        Event(data=b"[DONE]"), Event(data=b""), Event(data=b" \n "), Event(retry=5), Event(error=b'{"type":"a b"}'),
        Event(data=b'{"choices":[1'), Event(data=b"2]}"), Event(data=b'{},{"id":"a"}'), Event(bare=b'{"detail":"x"}'),
        Event(data=b'[{"error":{"type":"b"}}]'), Event("message_stop", b'{"type":"message_stop","x":"y"}', id="\u00fc"),
        Event(data=b'{"choices":[{"delta":{"content":"\\ud800"}}],"a":NaN}'),
    ]  # fmt: skip
    for order in (events, events[::-1]):
        together, alone = Masker(None, full=False), Masker(None, full=False)
        assert together.mask(order) == [alone.event(event) for event in order]
