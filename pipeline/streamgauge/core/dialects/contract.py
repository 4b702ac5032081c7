"""What a dialect is: how to know it, what of it may be kept, and how its events are told to a stream.

A dialect says what an event means by calling a Sink. It holds no state and knows no time: the stream does both.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Protocol

import msgspec

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.formats.json_text import parse
from streamgauge.core.formats.sse import Event
from streamgauge.core.safe_values import safe_code, safe_id, whole_number
from streamgauge.core.usage import UsageRules

Data = dict[str, object]

# The sentinel that OpenAI and those who follow it send behind the last event; their own client looks at its beginning.
DONE = b"[DONE]"


def looks_whole(event: Event) -> bool:
    """Whether what an event holds is whole JSON, or a stream's end."""
    if event.data is not None:
        return event.data.startswith(DONE) or isinstance(parse(event.data), dict | list)
    return any(one is not None and isinstance(parse(one), dict | list | str) for one in (event.error, event.bare))


class ErrorFacts(msgspec.Struct, array_like=True, frozen=True):
    """An in-band or HTTP error as the provider words it, without its message."""

    type: str | None = None
    code: str | None = None
    status: int | None = None
    request_id: str | None = None


class Source(IntEnum):
    """What brings the output of an item of an answer (OpenAI's Responses): a delta, or an event that closes something."""

    DELTA = 1
    TEXT_DONE = 2
    PART_DONE = 3
    ITEM_DONE = 4


class Sink(Protocol):
    """The stream, as a dialect sees it while it reads one event. Values are taken as they came: wrong types count nothing."""

    def identify(
        self, response_id: object = None, model: object = None, tier: object = None, routed_model: object = None
    ) -> None: ...
    def choice(self, index: int) -> None: ...
    def part(self, item: int | None, source: Source) -> None:
        """The output that the event tells from here on is of this item of the answer (None: the event names none).

        Of a closing event's output only those kinds count that no other source brought before.
        """

    def closes(self) -> None:
        """The event tells from here on the answer as a whole: of that only those kinds of output count that no event told."""

    def text(self, choice: int, value: object) -> None: ...
    def reasoning(self, choice: int, value: object) -> None: ...
    def refusal(self, choice: int, value: object) -> None: ...
    def media(self, choice: int, value: object) -> None: ...
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
        """A tool call of a choice: a known one by its `key`, or a new one; `key` None always begins one.

        `client`: the client has to carry it out. `json` False: its arguments are no JSON text by contract. `empty`: an
        empty object came with it, which is what its arguments are if no others follow. `indexed` False: the key is only a
        position in a list, so a call with the same id is the same call. `in_pieces`: `name` may be a piece of one: it is
        added to the name of a call that has no arguments yet, unless it has an id or says the same name again.
        """

    def arguments(
        self, choice: int, key: int | None, value: object, call_id: object = None, *, indexed: bool = True
    ) -> None:
        """A fragment of arguments as text, or all of them as a JSON value; `key` None: of the call that began last.

        `call_id`: which of the calls with that key, where it says so; else the latest. `indexed`: as in `tool`.
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
        """A tool call as it is once it is over: its name and its arguments count where they were not told before.

        Where events are not seen, since they came before a leg or are missing, they may have told them: then nothing counts.
        """

    def whole_arguments(self, choice: int, key: int, value: object, *, client: bool = True, json: bool = True) -> None:
        """All arguments of a call at once, without its name: as in `whole_tool`."""

    def finish(self, choice: int, raw: object, normal: str | None = None) -> None: ...
    def usage(self, given: object, *, placeholder: bool = False) -> None: ...
    def error(self, facts: ErrorFacts) -> None: ...
    def terminal(self) -> None: ...
    def provider_timing(
        self, *, queue_s: object = None, routing_s: object = None, first_token_s: object = None, total_s: object = None
    ) -> None: ...
    def calls_client_tools(self, choice: int) -> bool:
        """Whether a choice has called a tool that the client has to carry out."""


class Dialect(Protocol):
    """One wire format.

    `paths`: endpoint templates that hint at it; `endpoint`: the one it goes by. `finish_is_terminal`: a finish reason on
    every choice ends a stream (`one_finish_is_enough`: on any), `done_is_terminal`: a [DONE] does; else only what calls
    `Sink.terminal` does.
    `text_events`: names of the events whose data is generated text as it stands, no JSON. `volatile`: members, as paths with
    dots, that change from event to event and that `read` does not look at (so that its deltas can be learnt).
    """

    @property
    def name(self) -> str: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def paths(self) -> tuple[str, ...]: ...
    @property
    def keep(self) -> Mapping[str, Spec]: ...
    @property
    def keep_body(self) -> Mapping[str, Spec]: ...
    @property
    def usage(self) -> UsageRules: ...
    @property
    def finish_is_terminal(self) -> bool: ...
    @property
    def one_finish_is_enough(self) -> bool: ...
    @property
    def done_is_terminal(self) -> bool: ...
    @property
    def text_events(self) -> frozenset[str]: ...
    @property
    def volatile(self) -> frozenset[str]: ...

    def recognises(self, event: str, data: Data) -> bool:
        """Whether only this dialect sends such an event. Without a member it never does, whatever the event is called."""

    def recognises_body(self, data: Data) -> bool:
        """Whether only this dialect answers so without streaming."""

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Tell the sink what an event says. In-band errors of the common shapes are read elsewhere."""

    def read_body(self, data: Data, sink: Sink) -> None:
        """The same for the whole answer of a request that did not ask for a stream.

        An answer that is a list of events is read event by event, by `read`.
        """

    def usage_after_done(self, data: Data) -> object:
        """The usage of an event that came after [DONE] and tells nothing else; None if there is none."""


class Usual:
    """What most dialects have in common: only their own terminal ends a stream, and all data is JSON."""

    paths: tuple[str, ...] = ()
    finish_is_terminal: bool = False
    one_finish_is_enough: bool = False
    done_is_terminal: bool = False
    text_events: frozenset[str] = frozenset()
    volatile: frozenset[str] = frozenset()

    def usage_after_done(self, data: Data) -> object:
        return None


KEEP_ERROR: Mapping[str, Spec] = {
    "type": Kind.CODE,
    "code": Kind.CODE,
    "status": Kind.CODE,
    "status_code": Kind.COUNT,
    "request_id": Kind.ID,
}

# Error objects under `error`, flat ones (local servers), a request id beside it (Anthropic), a type beside it
# (text-generation-inference), or a list of them with a trace id (watsonx); `detail` (FastAPI), `base_resp` (MiniMax). And
# what is read of every event: its place in the stream, and whether it is an LLM's.
KEEP_ERRORS: Mapping[str, Spec] = {
    "jsonrpc": Kind.CODE,
    "sequence_number": Kind.COUNT,
    "event_id": Kind.ID,
    "object": Kind.CODE,
    "error": (KEEP_ERROR, [KEEP_ERROR], Kind.CODE),
    "errors": [KEEP_ERROR],
    "detail": (KEEP_ERROR, [KEEP_ERROR], Kind.FLAG),  # of a text no more than that there is one
    "base_resp": {"status_code": Kind.CODE},
    "error_type": Kind.CODE,
    "trace": Kind.ID,
    "type": Kind.CODE,
    "code": Kind.CODE,
    "status": Kind.CODE,
    "status_code": Kind.COUNT,
    "request_id": Kind.ID,
}


def is_no_call(name: object, call_id: object, arguments: object) -> bool:
    """Whether an entry is no tool call: some servers put an empty one beside text."""
    return not name and not call_id and not arguments


def error_in(event: str, data: object) -> ErrorFacts | None:
    """The in-band error of an event, in any of the common shapes.

    An `error` member, a list of them, an event named `error`, or an object that says that it is one: by its `type`, or
    by `object` (FastChat, and vLLM before 0.10). A `detail` without any other member: FastAPI's errors, which its servers
    also send as an event. MiniMax's `base_resp` with a status code other than 0 (platform.minimax.io/docs, error codes).
    Gemini may send any of them as the one element of a list.
    """
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return ErrorFacts() if event == "error" else None
    says = "error" in (event, data.get("type"), data.get("object"))
    if not says and "error" not in data and "errors" not in data:
        return _bare_error(data)
    if "jsonrpc" in data:
        return None  # a remote procedure call's (MCP): no LLM's stream
    inner = data.get("error") or data.get("errors")
    beside = data.get("request_id") or data.get("trace")
    if isinstance(inner, list):
        inner = inner[0] if inner else None
    if isinstance(inner, dict) and inner:
        return _facts(inner, beside, data.get("status_code"))
    if inner:  # a text, or no more than that there is one
        return _facts({"type": data.get("error_type")}, beside, data.get("status_code"))
    bare = _bare_error(data)
    if bare is not None or not says:
        return bare
    return _facts({**data, "type": None} if data.get("type") == "error" else data, beside)


def _bare_error(data: Data) -> ErrorFacts | None:
    """An error in a shape that has no `error` member and does not say that it is one."""
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
