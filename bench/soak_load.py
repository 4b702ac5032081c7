"""What the soak's provider says, stream by stream: so that each record can be held against what is known of its stream.

Of twenty streams twelve are whole, two are left by their client, two are broken by the provider amid an answer, two end
properly in HTTP without the protocol's own end, and two tell of an error amid the answer. Each stream says its number as its
response id: so its record is found.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

# A stream's token events, so many and up to so many more: at the pace of `soak_traffic` it takes 0.2 to 2 s.
_LEAST_EVENTS, _MORE_EVENTS = 10, 90
# How a token event of ours begins its text: so a client counts them without parsing.
TOKEN = b'"delta":{"content":"word '
# Input tokens that each whole stream says it has used.
INPUT_TOKENS = 3
# What the error in band says that it is.
ERROR_TYPE, ERROR_CODE = "server_error", "overloaded"
LAST_CHUNK = b"0\r\n\r\n"
# Outcomes by a stream's last digit; any other is completed.
_OUTCOMES = {1: "stream_error", 3: "client_abort", 5: "upstream_reset", 8: "truncated"}


@dataclass
class Stream:
    """One stream: what the provider sent of it, and what its client got. Counts are of token events."""

    number: int
    sent: int = 0
    got: int = 0
    fault: str = ""

    @property
    def name(self) -> str:
        """Its response id."""
        return f"soak-{self.number}"

    @property
    def outcome(self) -> str:
        """How its record has to say that it ended."""
        return _OUTCOMES.get(self.number % 10, "completed")

    @property
    def cut(self) -> bool:
        """Whether its last bytes may have been on their way when it ended."""
        return self.outcome in ("client_abort", "upstream_reset")

    @property
    def other_way(self) -> bool:
        """Half of the streams of each outcome end in another way than the other half: a reset, or in order."""
        return self.number % 20 >= 10

    @property
    def events(self) -> int:
        """How many token events it has; half of them where it does not come to its end."""
        whole = _LEAST_EVENTS + self.number * 37 % _MORE_EVENTS
        return whole // 2 if self.cut or self.outcome == "stream_error" else whole

    @property
    def usage(self) -> tuple[int | None, int | None, str]:
        """Input tokens, output tokens and their source, as its record has to say."""
        return (INPUT_TOKENS, self.events, "final") if self.outcome == "completed" else (None, None, "absent")

    @property
    def error(self) -> tuple[str, str | None, str | None] | None:
        """Phase, type and code of its record's error; None for none."""
        if self.outcome == "stream_error":
            return "in_stream", ERROR_TYPE, ERROR_CODE
        if self.outcome == "upstream_reset":
            return "transport", None, "reset" if self.other_way else "closed"
        return None


def chunks(one: Stream) -> list[bytes]:
    """A stream's body, a chunk for each write: what begins it, its token events, and what ends it."""
    role = _event(one, delta={"role": "assistant", "content": ""})
    return [role, *(token(one, place) for place in range(one.events)), *_ending(one)]


def token(one: Stream, place: int) -> bytes:
    """The chunk of one token event."""
    return _event(one, delta={"content": text(one, place)})


def text(one: Stream, place: int) -> str:
    """The text of one token event."""
    return f"word {one.number} {place} "


def _ending(one: Stream) -> list[bytes]:
    done = _framed(b"data: [DONE]\n\n") + LAST_CHUNK
    if one.cut:
        return []
    if one.outcome == "truncated":
        return [LAST_CHUNK]
    if one.outcome == "stream_error":
        error = {"message": "too many at once", "type": ERROR_TYPE, "code": ERROR_CODE}
        told = _framed(b"data: " + msgspec.json.encode({"error": error}) + b"\n\n")
        return [told, done if one.other_way else LAST_CHUNK]
    total = INPUT_TOKENS + one.events
    usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": one.events, "total_tokens": total}
    return [_event(one, delta={}, finish_reason="stop"), _chunk(one, [], usage=usage) + done]


def _event(one: Stream, **choice: Any) -> bytes:
    return _chunk(one, [{"index": 0, **choice}])


def _chunk(one: Stream, choices: list[Any], **more: Any) -> bytes:
    said = {"id": one.name, "object": "chat.completion.chunk", "model": "m-1", "choices": choices, **more}
    return _framed(b"data: " + msgspec.json.encode(said) + b"\n\n")


def _framed(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)
