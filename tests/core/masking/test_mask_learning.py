"""What is learnt of two events that were masked alike; that it holds for others is shown in test_known_masks.py."""

import json

from streamgauge.core.allowlist import apply_allowlist, encoded
from streamgauge.core.dialects import BY_NAME
from streamgauge.core.formats.sse import Event
from streamgauge.core.masking.mask_forms import MaskForm
from streamgauge.core.masking.mask_learning import Masked, learn_mask

KEEP = BY_NAME["openai-chat"].keep


def masked(value: object, name: str = "", event_id: str | None = None) -> Masked:
    """An event, masked in the ordinary way."""
    data = json.dumps(value, separators=(",", ":")).encode()
    head = (b"event: " + name.encode() + b"\n" if name else b"") + (
        b"id: " + event_id.encode() + b"\n" if event_id else b""
    )
    became = Event(name, encoded(apply_allowlist(KEEP, value)), event_id)
    return Masked(head + b"data: " + data, Event(name, data, event_id), became, KEEP)


def chunk(content: object, **more: object) -> dict[str, object]:
    return {"id": "c", "choices": [{"index": 0, "delta": {"content": content}}], **more}


def learnt(one: Masked, other: Masked) -> MaskForm:
    form = learn_mask(one, other)
    assert form is not None
    return form


def test_a_text_is_a_hole() -> None:
    form = learnt(masked(chunk("ab")), masked(chunk("xyz")))
    third = masked(chunk("hello"))
    assert form.each([third.block]) == [b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"xxxxx"}}]}\n\n']


def test_what_no_path_names_is_gone() -> None:
    form = learnt(masked(chunk("a", secret="k1")), masked(chunk("b", secret="k2")))
    (became,) = form.each([masked(chunk("c", secret="k3")).block])
    assert b"k3" not in became


def test_ids_of_events_are_holes() -> None:
    form = learnt(masked(chunk("a"), "m", "1"), masked(chunk("b"), "m", "2"))
    (became,) = form.each([masked(chunk("cc"), "m", "17").block])
    assert became.startswith(b"event: m\nid: 17\ndata: ")


def test_what_may_mean_something_is_no_hole() -> None:
    first = masked(chunk("a"))
    assert learn_mask(first, masked(chunk("b"), "error")) is None
    assert learn_mask(first, masked(chunk(None))) is None
    assert learn_mask(first, masked(chunk("b", error={"message": "x"}))) is None
