"""Of an error's text nothing is kept, also if it is a single word: only members that hold a type or a code are."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from streamgauge.core.allowlist import Kind, Spec, apply_allowlist, encoded
from streamgauge.core.dialects import DIALECTS
from streamgauge.core.dialects.contract import KEEP_ERRORS, Dialect
from streamgauge.core.formats.sse import Event, write_event
from streamgauge.core.masking.masker import Masker

WORD = "canaryword"
# Members that hold texts in some provider's errors (as documented, or seen in clients' sources), where each may be.
TEXTS: tuple[Any, ...] = (
    {"error": WORD},
    {"error": WORD, "error_type": "generation"},  # text-generation-inference
    {"error": [WORD]},
    {"errors": [WORD]},
    {"error": {"message": WORD, "param": WORD, "type": "t", "code": 1}},
    {"errors": [{"message": WORD}]},
    {"detail": WORD},
    {"detail": [{"msg": WORD, "loc": [WORD], "type": "missing"}]},
    {"message": WORD, "type": "error"},
    {"message": WORD, "object": "error", "code": 40001},
    {"id": "1", "object": "chat.completion.chunk", "choices": [], "x_groq": {"id": "1", "error": WORD}},
    {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "error": WORD}]},
    {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": WORD}},
    {"type": "response.failed", "response": {"id": "1", "error": WORD, "status": "failed"}},
    {"type": "response.failed", "response": {"id": "1", "error": {"code": "server_error", "message": WORD}}},
    {"base_resp": {"status_code": 1004, "status_msg": WORD}},
    {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": WORD}},
    {"response": {"error": WORD}},
)
# The names of members that hold a text, if they hold no object.
_TEXT_NAMES = frozenset({"error", "errors", "detail", "details", "message", "msg", "status_msg", "status_message"})


def specs() -> Iterator[tuple[str, Spec | None]]:
    yield "no dialect", KEEP_ERRORS
    for dialect in DIALECTS:
        yield dialect.name, dialect.keep
        yield f"{dialect.name}, a whole body", {**KEEP_ERRORS, **dialect.keep_body}


@pytest.mark.parametrize(("name", "spec"), list(specs()))
def test_no_text_of_an_error_is_kept(name: str, spec: Spec) -> None:
    for value in TEXTS:
        assert WORD.encode() not in encoded(apply_allowlist(spec, value)), (name, value)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_no_text_of_an_error_is_in_what_a_tap_stores(dialect: Dialect) -> None:
    for value in TEXTS:
        for name in ("", "error"):
            (masked,) = Masker(None, full=False, dialect=dialect.name).mask([Event(name, encoded(value))])
            assert WORD.encode() not in write_event(masked), (name, value)
        assert WORD.encode() not in (Masker(None, full=False, dialect=dialect.name).body(encoded(value)) or b"")


@pytest.mark.parametrize(("name", "spec"), list(specs()))
def test_no_member_for_texts_may_keep_a_word(name: str, spec: Spec) -> None:
    assert [path for path, kinds in members(spec) if path[-1] in _TEXT_NAMES and kinds & {Kind.CODE, Kind.ID}] == []


def members(spec: Spec, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[Kind]]]:
    """Each member that a spec names, with the kinds of scalars that are kept of it."""
    if isinstance(spec, Mapping):
        for name, inner in spec.items():
            yield (*path, name), kinds_of(inner)
            yield from members(inner, (*path, name))
    elif isinstance(spec, (list, tuple)):
        for inner in spec:
            yield from members(inner, path)


def kinds_of(spec: Spec) -> set[Kind]:
    if isinstance(spec, Kind):
        return {spec}
    return set().union(*map(kinds_of, spec)) if isinstance(spec, (list, tuple)) else set()


def test_types_and_codes_are_kept() -> None:
    kept = apply_allowlist(KEEP_ERRORS, {"error": {"type": "overloaded_error", "code": 529, "message": WORD}})
    assert kept == {"error": {"type": "overloaded_error", "code": 529, "masked_2": "masked"}}
    assert apply_allowlist(KEEP_ERRORS, {"error": WORD}) == {"error": "masked"}
    assert apply_allowlist(KEEP_ERRORS, {"error": ""}) == {"error": ""}, "an empty text is no error"


@pytest.mark.parametrize("code", [WORD, "1+1", "print"])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    "kind", ["response.code_interpreter_call_code.done", "response.code_interpreter_call.code.done"]
)
def test_code_that_a_model_wrote_is_masked_although_it_may_look_like_the_code_of_an_error(
    code: str, named: bool, kind: str
) -> None:
    value = {"output_index": 0, "item_id": "i", "code": code} | ({"type": kind} if named else {})
    events = [
        Event("response.created", b'{"type":"response.created","response":{"id":"r","object":"response"}}'),
        Event(kind, encoded(value)),
        Event("error", b'{"type":"error","code":"server_error","message":"m"}'),
    ]
    masker = Masker("/responses", full=False)
    _, masked, error = masker.mask(events)
    assert masked.data is not None and error.data is not None
    assert b'"code":"' + b"x" * len(code) + b'"' in masked.data
    assert b'"code":"server_error"' in error.data
    assert masker.event(events[1]).data == masked.data
