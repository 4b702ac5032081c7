"""Declarations of plain deltas: events that carry one piece of output, and otherwise repeat what the stream's state has.

`typed_deltas.py` makes a type of each declaration. Nearly all events of a stream fit one of these types; any other event is
read by the dialect itself (`Dialect.read`), which also defines what a plain delta means. Only the four dialects that carry
most of the traffic declare any: openai-chat, openai-responses, anthropic-messages and gemini.

Paths are member names joined by dots, from the top of the event. A list on a path holds exactly one element.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec


class Output(Enum):
    """Kinds of a delta's text. ARGUMENTS: a fragment of the arguments of a known tool call."""

    TEXT = "text"
    REASONING = "reasoning"
    REFUSAL = "refusal"
    ARGUMENTS = "arguments"


class _Absent(Enum):
    ABSENT = "absent"


# In `Delta.when`: the member may be absent.
ABSENT = _Absent.ABSENT

Value = str | bool | None | _Absent


class Delta(msgspec.Struct, frozen=True):
    """One kind of plain delta: an event whose only output is a text at the path `text`.

    `when`: members that must have one of these values. `unread`: members that `Dialect.read` does not look at in such an
    event, beside those of `Deltas.unread`. `client`: for ARGUMENTS, what `read` reports as `client` of the call; None if it
    reports nothing but the arguments.
    """

    output: Output
    text: str
    when: Mapping[str, tuple[Value, ...]] = {}
    unread: frozenset[str] = frozenset()
    client: bool | None = None


class Deltas(msgspec.Struct, frozen=True):
    """The plain deltas of a dialect.

    `when`, `unread`: for each of `kinds`. `choice`: the choice's index (None, or no such member: 0). `key`: the index of
    the tool call. `item`: the index of the item of the response, reported by `Sink.part`. `response_id`, `model`: reported
    by `Sink.identify`. `tier`: the service tier; the first of these that has a value. `usage`: the usage object. `numbered`:
    events have a `sequence_number`. `absent`: members outside of the allowlist that a plain delta may not have. `timed`:
    members of the usage that are times of the provider: a plain delta does not have them.
    """

    kinds: tuple[Delta, ...] = ()
    when: Mapping[str, tuple[Value, ...]] = {}
    unread: frozenset[str] = frozenset()
    choice: str | None = None
    key: str | None = None
    item: str | None = None
    response_id: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    tier: tuple[str, ...] = ()
    usage: str | None = None
    numbered: bool = False
    absent: frozenset[str] = frozenset()
    timed: frozenset[str] = frozenset()
