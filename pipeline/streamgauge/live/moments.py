"""Says what each read of a stream brought: how many events, how many of them tokens, and which kinds.

A read is applied to a state of its own, by the code that makes records; the difference shows what it brought. No text is
kept: kinds are words of KINDS.
"""

import msgspec

from streamgauge.core.assembly.state import StreamState
from streamgauge.core.assembly.stream import Stream
from streamgauge.core.capture.segments import Opening, Read, Segment

# In this order in a moment. `tool`: name or arguments of a call; `output`: other generated output, such as audio;
# `finish`: a finish reason; `terminal`: the protocol's own end.
KINDS = ("text", "reasoning", "refusal", "tool", "output", "usage", "finish", "terminal", "error", "comment", "other")


class Moment(msgspec.Struct, frozen=True, gc=False):
    """One read. `index`: its number in the stream; `gap_ns`: the time since the read before it, None if that is unknown."""

    index: int
    at_ns: int | None
    gap_ns: int | None
    stall: bool
    body_bytes: int
    events: int
    tokens: int
    kinds: tuple[str, ...]


class ReadDecoder:
    """Decodes the reads of one stream, in their order. `dialect`: what the stream's content showed, if its first reads may be
    missing.
    """

    def __init__(self, opening: Opening | None, dialect: str | None, stall_ns: int) -> None:
        self._state = StreamState(b"", b"", 0, opening=opening, dialect=dialect, items={})
        self._stall_ns = stall_ns
        self._stream = Stream(self._state, stall_ns)

    def moment(self, index: int, gap_ns: int | None, read: Read) -> Moment:
        """The next read. Reads between this one and the one before may be missing."""
        before = _facts(self._state)
        self._stream.apply(Segment(b"", self._state.next_segment, reads=[read]))
        self._stream.apply_pending_reads()
        after = _facts(self._state)
        grown = tuple([new - old for new, old in zip(after, before, strict=True)])
        events, tokens = grown[0], grown[1]
        kinds = [kind for kind, more in zip(_GROWING, grown[2:], strict=True) if more > 0]
        if tokens and not any(kind in kinds for kind in ("text", "reasoning", "refusal", "tool")):
            kinds.append("output")
        if not kinds and events:
            kinds.append("other")
        ordered = tuple([kind for kind in KINDS if kind in kinds])
        stall = gap_ns is not None and gap_ns > self._stall_ns
        return Moment(index, read.stamp_ns, gap_ns, stall, read.body_bytes, events, tokens, ordered)


# What `_facts` counts after events and token events.
_GROWING = ("text", "reasoning", "refusal", "tool", "usage", "finish", "terminal", "error", "comment")


def _facts(state: StreamState) -> tuple[int, ...]:
    counts, tools = state.counts, [tool for choice in state.choices for tool in choice.tools]
    return (
        counts.events,
        counts.token_events,
        counts.text_chars,
        counts.reasoning_chars,
        counts.refusal_chars,
        len(tools) + sum([tool.argument_chars for tool in tools]),
        len(state.usage.raw),
        sum([choice.finish_raw is not None for choice in state.choices]),
        state.terminal,
        state.error is not None,
        counts.comments,
    )
