"""The type of a scenario: its request, its response with its timing, and the expected results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

EVENT_STREAM = "text/event-stream"
JSON = "application/json"


class Endpoint(StrEnum):
    """The path of a format's requests."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    MESSAGES = "/v1/messages"
    RESPONSES = "/v1/responses"


DIALECTS: Mapping[Endpoint, str] = {
    Endpoint.CHAT: "openai-chat",
    Endpoint.COMPLETIONS: "openai-completions",
    Endpoint.MESSAGES: "anthropic-messages",
    Endpoint.RESPONSES: "openai-responses",
}


class Framing(StrEnum):
    """How a response's body is delimited."""

    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"  # the oldest framing: the body ends with the connection


class Finale(StrEnum):
    """What the server does after the last byte of its response."""

    WHOLE = "whole"  # ends the framing properly
    EARLY_FIN = "early_fin"  # closes the connection in the middle of the framing
    RESET = "reset"  # resets the connection
    SILENT = "silent"  # sends nothing more until the other side leaves
    COMMENTS = "comments"  # sends comments until the other side leaves


class ClientEnd(StrEnum):
    """How the exchange ends for an official client."""

    WHOLE = "whole"  # its iteration ends, or its call returns; also if it cannot see that the stream was cut
    ERROR = "error"  # it raises an in-band error
    STATUS = "status"  # it raises the HTTP status
    CONNECTION = "connection"  # it raises that the connection broke
    TIMEOUT = "timeout"  # it raises its own timeout
    LEFT = "left"  # it left before the end


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of the body that are sent together, `delay_s` seconds after the ones before. `tokens`: token events in them."""

    delay_s: float
    data: bytes
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response. `cut`: the bytes are written in slices of this size, wherever the boundaries fall."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = EVENT_STREAM
    head_delay_s: float = 0.05
    pieces: tuple[Piece, ...] = ()
    framing: Framing = Framing.CHUNKED
    gzip: bool = False
    cut: int | None = None
    finale: Finale = Finale.WHOLE
    no_head: bool = False

    @property
    def ends(self) -> bool:
        """Whether the response ends even if the other side does not leave."""
        return self.finale not in (Finale.SILENT, Finale.COMMENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFacts:
    """The record's error: its phase, and the provider's type and code."""

    phase: str
    type: str | None = None
    code: str | None = None
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFacts:
    """The record's usage (tokens). `source`: where in the stream it came from."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    source: str = "final"


NO_USAGE = UsageFacts(source="absent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The generated output of a response, all choices together, and the number of token events."""

    token_events: int = 0
    text: str = ""
    reasoning: str = ""
    arguments: str = ""


NOTHING = Content()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected results: of the record, and of the client (`client`, `content`, `finish_raw`).

    `streaming`: the response is an event stream; None if no response came. `exact`: False if the client leaves while tokens
    arrive; the client and the tap then saw only a part of the output, from its beginning.
    """

    outcome: str
    client: ClientEnd = ClientEnd.WHOLE
    exact: bool = True
    streaming: bool | None = True
    status: int | None = 200
    finish: str | None = None
    finish_raw: str | None = None
    error: ErrorFacts | None = None
    usage: UsageFacts = NO_USAGE
    response_model: str | None = None
    routed_model: str | None = None
    content: Content = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario. `model`: the model name that selects it, `<upstream>/<name>`. `asks`: additional arguments of the
    request.

    `leave_after`: the client leaves after this many events. `timeout_s`: the client's own timeout. `tap_only`: the tap ends
    the stream, or answers for the upstream, so a client without a tap sees something else.
    """

    model: str
    endpoint: Endpoint
    title: str
    answer: Answer
    expected: Expected
    asks: Mapping[str, object] = field(default_factory=dict)
    leave_after: int | None = None
    timeout_s: float | None = None
    tap_only: bool = False

    @property
    def upstream(self) -> str:
        """The name of the upstream: the first part of the model name."""
        return self.model.partition("/")[0]

    @property
    def name(self) -> str:
        """The name of the scenario: the second part of the model name."""
        return self.model.partition("/")[2]

    @property
    def dialect(self) -> str:
        """The dialect that its record should have."""
        return DIALECTS[self.endpoint]
