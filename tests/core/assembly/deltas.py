"""Deltas and envelopes for the tests of what is learnt and what fits it."""

import json

from streamgauge.core.assembly.envelope import EVENT_ID, Delta, Envelope
from streamgauge.core.assembly.learning import learn
from streamgauge.core.dialects import BY_NAME
from streamgauge.core.formats.sse import Event
from streamgauge.core.usage import UsageRules

CHAT = BY_NAME["openai-chat"].usage
GEMINI = BY_NAME["gemini"].usage


def delta(text: str, value: object = None, name: str = "", event_id: str | None = None, **more: object) -> Delta:
    data = json.dumps({"d": text} if value is None else value, separators=(",", ":"), ensure_ascii=False).encode()
    known = value if isinstance(value, dict) else {}
    more = {"is_numbered": "sequence_number" in known, "is_named": EVENT_ID in known, **more}
    return Delta(Event(name, data, event_id), 1, 0, None, text, **more)  # type: ignore[arg-type]


def block(one: Delta) -> bytes:
    name = f"event: {one.event.name}\n" if one.event.name else ""
    event_id = f"id: {one.event.id}\n" if one.event.id is not None else ""
    return f"{name}{event_id}data: ".encode() + (one.event.data or b"") + b"\n\n"


def learnt(one: Delta, other: Delta, rules: UsageRules = CHAT) -> Envelope:
    envelope = learn(one, other, rules)
    assert envelope is not None
    return envelope
