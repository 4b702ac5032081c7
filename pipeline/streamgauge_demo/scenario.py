"""What a scenario is: what is asked, what is answered and how, and what must be seen of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

EVENT_STREAM = "text/event-stream"
JSON = "application/json"


class Endpoint(StrEnum):
    """The path that a request of a format goes to."""

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
    CHUNKED = "chunked"
    LENGTH = "length"
    CLOSE = "close"  # HTTP's oldest: the body ends with the connection


class Finale(StrEnum):
    """What the server does after the last byte of its answer."""

    WHOLE = "whole"  # ends the framing properly
    EARLY_FIN = "early_fin"  # closes the connection in the middle of the framing
    RESET = "reset"  # resets the connection
    SILENT = "silent"  # says nothing more, until the other side leaves


class ClientEnd(StrEnum):
    """How the exchange ends for an official client."""

    WHOLE = "whole"  # its iteration ends, or its call returns: also where the stream was cut and it cannot tell
    ERROR = "error"  # it raises what came in band
    STATUS = "status"  # it raises the HTTP status
    CONNECTION = "connection"  # it raises that the connection broke
    TIMEOUT = "timeout"  # it raises that its own time is up
    LEFT = "left"  # it went before the end


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of the body that leave together, `delay_s` after the ones before. `tokens`: token events within."""

    delay_s: float
    data: bytes
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response. `cut`: the wire is written in slices of so many bytes, wherever that falls."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFacts:
    """The record's error: its phase, and how the provider names it."""

    phase: str
    type: str | None = None
    code: str | None = None
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFacts:
    """The record's usage, tokens; `source` says where in the stream it came."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    source: str = "final"


NO_USAGE = UsageFacts(source="absent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The generated output of an answer, all choices together, and the number of events that brought it."""

    token_events: int = 0
    text: str = ""
    reasoning: str = ""
    arguments: str = ""


NOTHING = Content()


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What must be seen: by the record, and by the client (`client`, `content`, `finish_raw`).

    `streaming`: the response is an event stream; None where no response came.
    `exact`: False where the client leaves while tokens flow; then what it and the tap saw is some beginning.
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
    """`model` is what a request names to get it: `<upstream>/<name>`. `asks`: arguments of the request beside the usual.

    `leave_after`: the client goes when it has read so many events. `timeout_s`: the client's own patience. `tap_only`: the
    tap ends it, or answers for the upstream, so that a client cannot see the same without a tap.
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
        return self.model.partition("/")[0]

    @property
    def name(self) -> str:
        return self.model.partition("/")[2]

    @property
    def dialect(self) -> str:
        return DIALECTS[self.endpoint]
