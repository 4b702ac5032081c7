"""The interface of a dialect: how to recognise it, what may be kept of it, and how it reports events to a stream.

A dialect reports what an event means by calling a Sink. A dialect holds no state and no times; the stream does.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

import msgspec

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.deltas import Deltas
from streamgauge.core.formats.json_text import parse
from streamgauge.core.formats.sse import Event
from streamgauge.core.safe_values import safe_code, safe_id, whole_number
from streamgauge.core.usage import UsageRules

Data = dict[str, object]

# The sentinel that OpenAI and compatible servers send after the last event. OpenAI's own client accepts any data that
# begins with it.
DONE = b"[DONE]"


def looks_whole(event: Event) -> bool:
    """Whether the content of an event is whole JSON, or begins with [DONE]."""
    if event.data is not None:
        return event.data.startswith(DONE) or isinstance(parse(event.data), dict | list)
    return any(
        content is not None and isinstance(parse(content), dict | list | str) for content in (event.error, event.bare)
    )


class ErrorFacts(msgspec.Struct, array_like=True, frozen=True):
    """An in-band or HTTP error in the provider's words, without its message. `status`: an HTTP status code."""

    type: str | None = None
    code: str | None = None
    status: int | None = None
    request_id: str | None = None


class Source(IntEnum):
    """Sources of an item's output (OpenAI Responses): a delta, or an event that closes a text, a part or the item."""

    DELTA = 1
    TEXT_DONE = 2
    PART_DONE = 3
    ITEM_DONE = 4


class WholeCall(NamedTuple):
    """A tool call in an event that repeats the whole output; `client` and `json` as in `Sink.tool`."""

    name: object
    arguments: object
    call_id: object = None
    client: bool = True
    json: bool = True


class Sink(Protocol):
    """The receiver of a dialect's reports: the dialect calls it while it reads one event.

    Dialects pass values as they came, unchecked. A value of a wrong type does not count.
    """

    def identify(
        self, response_id: object = None, model: object = None, tier: object = None, routed_model: object = None
    ) -> None:
        """Reports ids and models of the response, and how it was served: `tier`, or the model a gateway routed it to."""

    def choice(self, index: int) -> object:
        """Reports that the response has a choice with this index, from 0, even if it brings no output.

        What it returns is the sink's own.
        """

    def part(self, item: int | None, source: Source) -> None:
        """Assigns the output that is reported next to this item of the response (None: the event names none).

        Of the output of a closing event, only the kinds count that no other source has carried before.
        """

    def closes(self) -> None:
        """Marks the output that is reported next as the output of the whole response.

        Only kinds of output count that no earlier event reported, and all output of a choice without earlier output.
        Calls are reported by `whole_calls`.
        """

    def text(self, choice: int, value: object) -> None:
        """Reports new text of the answer. An empty text is no output; so in `reasoning`, `refusal` and `media`."""

    def text_so_far(self, choice: int, value: object) -> None:
        """Reports all text of the only choice so far, of which the end is new."""

    def text_or_so_far(self, choice: int, value: object, *, reasoning: bool = False, may_repeat: bool = False) -> None:
        """Reports a text that is new in some streams, and all text so far in others, where the events do not say which.

        It counts as all text so far until one is shorter than the one before, or as long as it. `may_repeat`: the event may
        repeat the text, because it brings something else, or is the last one; then equal lengths show nothing. A text that
        has grown several times may stay as it is, too.
        """

    def reasoning(self, choice: int, value: object, *, summary: bool = False) -> None:
        """Reports new text that the model writes before its answer: thoughts, summaries of them, plans.

        `summary`: by the protocol the text is a summary, so its tokens are not the tokens of the reasoning.
        """

    def reasons(self, *, withheld: bool = False) -> None:
        """Reports that the model reasons, whether or not text of it comes. `withheld`: a part of the text does not come."""

    def refusal(self, choice: int, value: object) -> None:
        """Reports new text in which the model refuses to answer, if the format separates it from the answer."""

    def media(self, choice: int, value: object) -> None:
        """Reports generated output that is no text of the answer: base64 of an image or audio, a URL, a transcript."""

    def tool(
        self,
        choice: int,
        key: int | None,
        name: object,
        *,
        call_id: object = None,
        client: bool = True,
        json: bool = True,
        empty: bool = False,
        indexed: bool = True,
        in_pieces: bool = False,
    ) -> None:
        """Reports a tool call of a choice: a known call with this `key`, or a new call. `key` None always begins a new call.

        `client`: the client has to execute the call. `json` False: its arguments are by contract not JSON text. `empty`: the
        call came with an empty object, which is the value of its arguments if no others follow. `indexed` False: the key is
        only a position in a list, so a call with the same id is the same call. `in_pieces`: `name` may be a fragment. It is
        appended to the name of a call that has no arguments yet, unless it comes with an id or repeats the whole name.
        """

    def arguments(
        self,
        choice: int,
        key: int | None,
        value: object,
        call_id: object = None,
        *,
        indexed: bool = True,
        so_far: bool = False,
    ) -> None:
        """Reports a fragment of arguments as text, or all of them as a JSON value. `key` None: the call that began last.

        `call_id` selects one of several calls with that key; without it the latest one is used. `indexed`: as in `tool`.
        `so_far`: a text is all of the arguments so far, of which the end is new.
        """

    def whole_tool(
        self,
        choice: int,
        key: int,
        name: object,
        arguments: object,
        *,
        call_id: object = None,
        client: bool = True,
        json: bool = True,
    ) -> None:
        """Reports a finished tool call. Its name and its arguments count if no earlier event reported them.

        Nothing counts if earlier events were not seen, because they came before a resumed stream or are missing: those
        events may have reported the call.
        """

    def whole_arguments(self, choice: int, key: int, value: object, *, client: bool = True, json: bool = True) -> None:
        """Reports all arguments of a call at once, without its name; otherwise as `whole_tool`."""

    def whole_calls(self, choice: int, calls: Sequence[WholeCall]) -> None:
        """Reports all calls of a choice, in an event that closes the response.

        Calls, names and arguments count that no earlier event reported. A call is known by its id, else by its name and
        its place among the calls of that name. Nothing counts if earlier events were not seen.
        """

    def finish(self, choice: int, raw: object, normal: str | None = None) -> None:
        """Reports the finish reason of a choice. `normal`: its normal reason, if it differs from `outcome.FINISH_REASONS`."""

    def usage(self, reported: object, *, placeholder: bool = False) -> None:
        """Reports the provider's own usage object, not a copy. `placeholder`: its output count has no meaning yet."""

    def error(self, facts: ErrorFacts) -> None:
        """Reports an in-band error; the outcome is then `stream_error`, also if `facts` has no values."""

    def terminal(self) -> None:
        """Reports the end of the stream by its own protocol. Output after it does not count."""

    def provider_timing(
        self, *, queue_s: object = None, routing_s: object = None, first_token_s: object = None, total_s: object = None
    ) -> None:
        """Reports times that the provider measured itself, each in seconds from when it had the request."""

    def calls_client_tools(self, choice: int) -> bool:
        """Whether a choice has called a tool that the client has to execute."""


class Dialect(Protocol):
    """One wire format.

    `Sink.terminal` always ends a stream. Four properties name what ends it as well.
    """

    @property
    def name(self) -> str:
        """The name in records, metrics and options; lower-case, with hyphens."""

    @property
    def endpoint(self) -> str:
        """The template in records of requests whose path is not in `paths`."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Endpoint templates that hint at the dialect (`endpoint_of`)."""

    @property
    def keep(self) -> Mapping[str, Spec]:
        """The members of an event that masking keeps."""

    @property
    def keep_body(self) -> Mapping[str, Spec]:
        """The members of a whole response that masking keeps, besides KEEP_ERRORS."""

    @property
    def usage(self) -> UsageRules:
        """The paths of the numbers in the object that the dialect passes to `Sink.usage`."""

    @property
    def finish_is_terminal(self) -> bool:
        """Whether a finish reason on every choice ends the stream."""

    @property
    def one_finish_is_enough(self) -> bool:
        """Whether a finish reason on any choice ends the stream."""

    @property
    def done_is_terminal(self) -> bool:
        """Whether a [DONE] ends the stream."""

    @property
    def end_is_terminal(self) -> bool:
        """Whether the proper end of the response ends the stream, since its protocol has no other end."""

    @property
    def may_summarise(self) -> bool:
        """Whether the text of reasoning may be a summary although no event says so: the model decides."""

    @property
    def text_events(self) -> frozenset[str]:
        """The names of events whose data is generated text, not JSON."""

    @property
    def code_events(self) -> frozenset[str]:
        """The types of events whose member `code` is generated text, not the code of an error."""

    @property
    def deltas(self) -> Deltas:
        """The events that `typed_deltas.py` reads in place of `read`, and the members that it reads of them."""

    def recognises(self, event: str, data: Data) -> bool:
        """Whether only this dialect sends such an event. False if `data` has no members, whatever the event's name."""

    def recognises_body(self, data: Data) -> bool:
        """Whether only this dialect sends such a response body without streaming."""

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports an event to the sink. The stream itself reads in-band errors of the common shapes (`error_in`)."""

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports to the sink the whole response to a request that did not ask for a stream.

        A response that is a list of events is read event by event, by `read`.
        """

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """The members of an event over the size limit that the first and the last bytes of its data show, without output.

        None if they do not show whether the event ends the stream; {} if they show only that it does not.
        """

    def usage_after_done(self, data: Data) -> object:
        """The usage of an event that came after [DONE] and carries no output; None if there is none."""


class DialectDefaults:
    """Defaults that most dialects share: only their own terminal ends a stream, and all data is JSON."""

    paths: tuple[str, ...] = ()
    finish_is_terminal: bool = False
    one_finish_is_enough: bool = False
    done_is_terminal: bool = False
    end_is_terminal: bool = False
    may_summarise: bool = False
    text_events: frozenset[str] = frozenset()
    code_events: frozenset[str] = frozenset()
    deltas: Deltas = Deltas()

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """None: an event with so much output may end the stream as well."""
        return None

    def usage_after_done(self, data: Data) -> object:
        """None: only servers of OpenAI's formats send usage after [DONE]."""
        return None


KEEP_ERROR: Mapping[str, Spec] = {
    "type": Kind.CODE,
    "code": Kind.CODE,
    "status": Kind.CODE,
    "status_code": Kind.COUNT,
    "request_id": Kind.ID,
}

# An error that may be a text: only its presence is kept, also if the text is a single word. Types and codes have members of
# their own.
KEEP_ERROR_OR_TEXT: Spec = (KEEP_ERROR, [KEEP_ERROR], Kind.FLAG)

# Members that only messages of Gemini Live have (https://ai.google.dev/api/live, BidiGenerateContentServerMessage), beside
# usage metadata or alone. It is another API than generateContent.
LIVE_MEMBERS = (
    "serverContent",
    "setupComplete",
    "toolCall",
    "toolCallCancellation",
    "goAway",
    "sessionResumptionUpdate",
)

# Types that only events of OpenAI's Realtime API have, by their beginnings (https://github.com/openai/openai-python,
# types/realtime).
_REALTIME = (
    "session.",
    "conversation.",
    "input_audio_buffer.",
    "output_audio_buffer.",
    "transcription_session.",
    "rate_limits.",
    "response.done",
    "response.text.",
    "response.audio_transcript.",
    "response.output_audio",
)

# Shapes of errors: an object under `error`, a flat object (local servers), a request id beside the object (Anthropic),
# a type beside it (text-generation-inference), a list of objects with a trace id (watsonx), `detail` (FastAPI),
# `base_resp` (MiniMax). Other members show the position of an event, and whether its stream comes from an LLM.
KEEP_ERRORS: Mapping[str, Spec] = {
    "jsonrpc": Kind.CODE,
    **dict.fromkeys(LIVE_MEMBERS, Kind.FLAG),  # only their presence is kept
    "sequence_number": Kind.COUNT,
    "event_id": Kind.ID,
    "object": Kind.CODE,
    "error": KEEP_ERROR_OR_TEXT,
    "errors": [KEEP_ERROR],
    "detail": KEEP_ERROR_OR_TEXT,
    "base_resp": {"status_code": Kind.CODE},
    "error_type": Kind.CODE,
    "trace": Kind.ID,
    "type": Kind.CODE,
    "code": Kind.CODE,
    "status": Kind.CODE,
    "status_code": Kind.COUNT,
    "request_id": Kind.ID,
}


def type_of(event: str, data: Data) -> object:
    """The type of an event in a dialect of typed events: its `type`, or its name if it has members but none of that name."""
    kind = data.get("type")
    return event if kind is None and data else kind


def is_realtime(data: Data) -> bool:
    """Whether an event is one of OpenAI's Realtime API, which shares many types with Responses.

    A Responses event has a `sequence_number`. A Realtime event has none, but an `event_id` or a type of its own.
    """
    kind = data.get("type")
    if not isinstance(kind, str) or "sequence_number" in data:
        return False
    has_id = isinstance(data.get("event_id"), str)
    return kind.startswith(_REALTIME) or (has_id and kind.startswith("response."))


def is_no_call(name: object, call_id: object, arguments: object) -> bool:
    """Whether an entry is not a tool call: some servers put an empty entry beside text."""
    return not name and not call_id and not arguments


# An event that does not name itself an error is an error only if it has one of these members.
_ERROR_MEMBERS = frozenset(("error", "errors", "detail", "base_resp"))


def may_be_error(event: str, data: Data) -> bool:
    """Whether an event may be an error: it names itself one, or has a member that may hold one."""
    return _is_named_error(event, data) or not _ERROR_MEMBERS.isdisjoint(data)


def _is_named_error(event: str, data: Data) -> bool:
    return event == "error" or data.get("type") == "error" or data.get("object") == "error"


def error_in(event: str, data: object) -> ErrorFacts | None:
    """The in-band error of an event, in any of the common shapes; None if there is none.

    The shapes are an `error` member, a list of errors, an event named `error`, and an object whose `type` or `object` is
    `error` (`object`: FastChat, and vLLM before 0.10). A `detail` without any other member is a FastAPI error, which servers
    also send as an event. MiniMax sends a `base_resp` with a status code other than 0 (platform.minimax.io/docs, error
    codes). Gemini may send any of these shapes as the only element of a list.
    """
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return ErrorFacts() if event == "error" else None
    if not may_be_error(event, data):
        return None
    is_named = _is_named_error(event, data)
    if not is_named and "error" not in data and "errors" not in data:
        return _bare_error(data)
    if "jsonrpc" in data:
        return None  # an error of a remote procedure call (MCP), not of an LLM
    inner = data.get("error") or data.get("errors")
    beside = data.get("request_id") or data.get("trace")
    status = data.get(
        "status_code", data.get("status")
    )  # the latter: Responses over WebSocket (openai, ResponseWsError)
    if isinstance(inner, list):
        inner = inner[0] if inner else None
    if isinstance(inner, dict) and inner:
        return _facts(inner, beside, status)
    if inner:  # a text, or its masked form
        return _facts({"type": data.get("error_type")}, beside, status)
    bare = _bare_error(data)
    if bare is not None or not is_named:
        return bare
    return _facts({**data, "type": None} if data.get("type") == "error" else data, beside)


def _bare_error(data: Data) -> ErrorFacts | None:
    """The error in a shape that neither has an `error` member nor names itself an error; None if there is none."""
    detail, answer = data.get("detail"), data.get("base_resp")
    if detail and len(data) == 1:
        inner = detail[0] if isinstance(detail, list) else detail
        return _facts(inner, None) if isinstance(inner, dict) else ErrorFacts()
    code = answer.get("status_code") if isinstance(answer, dict) else None
    return ErrorFacts(code=safe_code(code)) if code and safe_code(code) != "0" else None


def _facts(error: Data, request_id: object, status: object = None) -> ErrorFacts:
    named, code = error.get("status"), error.get("code")
    kind = error.get("type")
    if kind is None and isinstance(named, str):
        kind = named
    numbers = (error.get("status_code"), named, status, code)
    return ErrorFacts(
        type=safe_code(kind),
        code=safe_code(code),
        status=next((number for value in numbers if (number := _http_status(value))), None),
        request_id=safe_id(error.get("request_id") or request_id),
    )


def _http_status(value: object) -> int | None:
    number = whole_number(value)
    return number if number is not None and 400 <= number <= 599 else None
