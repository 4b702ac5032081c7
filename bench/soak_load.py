"""The streams of the soak's provider, and what the record of each must say.

Of twenty streams twelve are complete, two are left by their client, two are broken by the provider within the response,
two end properly in HTTP without the end of their own protocol, and two have an in-band error. The response id of each
stream is its number, which connects it with its record.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from streamgauge_demo.provider import LAST_CHUNK, chunk

# The least number of a stream's token events, and the range above: at the pace of `soak_traffic` 0.2 to 2 s.
_LEAST_EVENTS, _MORE_EVENTS = 10, 90
# The beginning of the text in each token event, by which a client counts them without parsing.
TOKEN = b'"delta":{"content":"word '
# The input tokens that each complete stream reports.
INPUT_TOKENS = 3
# Type and code of the in-band error.
ERROR_TYPE, ERROR_CODE = "server_error", "overloaded"
# Outcomes by the last digit of a stream's number; all others are completed.
_OUTCOMES = {1: "stream_error", 3: "client_abort", 5: "upstream_reset", 8: "truncated"}


@dataclass
class Stream:
    """One stream. `sent`, `received`: token events, by the provider and its client. `fault`: what was wrong, if anything."""

    number: int
    sent: int = 0
    received: int = 0
    fault: str = ""

    @property
    def name(self) -> str:
        """Its response id."""
        return f"soak-{self.number}"

    @property
    def outcome(self) -> str:
        """The outcome that its record must have."""
        return _OUTCOMES.get(self.number % 10, "completed")

    @property
    def cut(self) -> bool:
        """Whether its last bytes may have been in flight when it ended."""
        return self.outcome in ("client_abort", "upstream_reset")

    @property
    def second_variant(self) -> bool:
        """Whether it ends by a reset, or with [DONE] after an error: half of the streams of these outcomes do."""
        return self.number % 20 >= 10

    @property
    def events(self) -> int:
        """How many token events it has: half of them if it does not end normally."""
        whole = _LEAST_EVENTS + self.number * 37 % _MORE_EVENTS
        return whole // 2 if self.cut or self.outcome == "stream_error" else whole

    @property
    def usage(self) -> tuple[int | None, int | None, str]:
        """Input tokens, output tokens and their source, as its record must have them."""
        return (INPUT_TOKENS, self.events, "final") if self.outcome == "completed" else (None, None, "absent")

    @property
    def error(self) -> tuple[str, str | None, str | None] | None:
        """Phase, type and code of the error that its record must have, or None."""
        if self.outcome == "stream_error":
            return "in_stream", ERROR_TYPE, ERROR_CODE
        if self.outcome == "upstream_reset":
            return "transport", None, "reset" if self.second_variant else "closed"
        return None


def chunks(stream: Stream) -> list[bytes]:
    """A stream's body, one chunk for each write: its first event, its token events, and its end."""
    role = _event(stream, delta={"role": "assistant", "content": ""})
    return [role, *(token(stream, place) for place in range(stream.events)), *_ending(stream)]


def token(stream: Stream, place: int) -> bytes:
    """The chunk of one token event."""
    return _event(stream, delta={"content": text(stream, place)})


def text(stream: Stream, place: int) -> str:
    """The text of one token event."""
    return f"word {stream.number} {place} "


def _ending(stream: Stream) -> list[bytes]:
    done = chunk(b"data: [DONE]\n\n") + LAST_CHUNK
    if stream.cut:
        return []
    if stream.outcome == "truncated":
        return [LAST_CHUNK]
    if stream.outcome == "stream_error":
        error = {"message": "too many at once", "type": ERROR_TYPE, "code": ERROR_CODE}
        failure = chunk(b"data: " + msgspec.json.encode({"error": error}) + b"\n\n")
        return [failure, done if stream.second_variant else LAST_CHUNK]
    total = INPUT_TOKENS + stream.events
    usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": stream.events, "total_tokens": total}
    return [_event(stream, delta={}, finish_reason="stop"), _chunk(stream, [], usage=usage) + done]


def _event(stream: Stream, **choice: Any) -> bytes:
    return _chunk(stream, [{"index": 0, **choice}])


def _chunk(stream: Stream, choices: list[Any], **more: Any) -> bytes:
    event = {"id": stream.name, "object": "chat.completion.chunk", "model": "m-1", "choices": choices, **more}
    return chunk(b"data: " + msgspec.json.encode(event) + b"\n\n")
