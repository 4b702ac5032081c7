"""Alters streams: damages the bytes of some events, or changes single members of some events."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from bench.wires import Wire
from hypothesis import strategies as st

from streamgauge.core.formats.sse import Event, SseDecoder

# Parts of a delta, each with a replacement that is nearly valid: fast paths must not accept it.
_HOSTILE = (
    b'"', b"\\", b'\\"', b"\\u0041", b"\\ud800", b"\\ud83d\\ude00", b"\\x", b"\x00", b"\x01", b"\x7f", b"\xff", b"\xc3\xa9",
    b"\t", b'","x":"', b"]}", b"0", b"-1", b"1.5", b"99999999999999999999", b"007", b"null", b"true", b"", b" ", b"a\\",
    b'"},"finish_reason":"stop"', b"[DONE]", b'"error":{"message":"x"}',
)  # fmt: skip


def damage(draw: st.DrawFn, blocks: Sequence[bytes]) -> list[bytes]:
    """Events as bytes, some of them damaged; two may have changed places."""
    events = list(blocks)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(events) - 1))
        event = events[at]
        place = draw(st.integers(0, max(0, len(event) - 3)))
        width = draw(st.integers(0, 6))
        hostile = draw(st.sampled_from(_HOSTILE))
        events[at] = event[:place] + hostile + event[place + width : -2] + b"\n\n"
    if draw(st.booleans()):
        one_place, other = draw(st.integers(0, len(events) - 1)), draw(st.integers(0, len(events) - 1))
        events[one_place], events[other] = events[other], events[one_place]
    return events


# Values that one member of one event may get, after which the stream returns to its usual values.
_OTHERWISE: tuple[Any, ...] = (0, 1, 2, 7, -1, 2.5, "other", "tool", "", None, True, [], {}, ["x"], {"x": 1})


def _leaves(value: object) -> Iterator[tuple[dict | list, str | int]]:  # type: ignore[type-arg]
    """Each member without members of its own, with its parent."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from _leaves(member)
        if not isinstance(member, dict | list):
            yield value, key  # type: ignore[misc]


def alter(draw: st.DrawFn, one: Wire) -> list[Event]:
    """The stream, with single members of some events changed."""
    events = [event for block in one.events for event in SseDecoder().feed(block)]
    for _ in range(draw(st.integers(1, 5))):
        event = events[draw(st.integers(0, len(events) - 1))]
        try:
            value = json.loads(event.data or b"")
        except ValueError:
            continue
        leaves = list(_leaves(value))
        if leaves:
            holder, key = draw(st.sampled_from(leaves))
            holder[key] = draw(st.sampled_from(_OTHERWISE))
        again = Event(event.name, json.dumps(value, separators=(",", ":")).encode(), event.id)
        events.insert(draw(st.integers(0, len(events))), again)
    return events
