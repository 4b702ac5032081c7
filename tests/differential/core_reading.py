"""The core's reading of a vector: texts and arguments from a sink that keeps them, all else from the record."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from streamgauge.core.capture.segments import FROM_START
from streamgauge.core.dialects import (
    BY_NAME,
    DONE,
    Dialect,
    ErrorFacts,
    Source,
    dialect_of_endpoint,
    dialect_of_text_event,
    endpoint_of,
    is_whole,
    recognised,
)
from streamgauge.core.dialects.contract import WholeCall
from streamgauge.core.formats.json_text import UNPARSED, parse
from streamgauge.core.formats.sse import Event, SseDecoder
from streamgauge.core.safe_values import MASKED, safe_id
from tests.differential.reading import Call, Ended, Output, Reading, TokenUsage
from tests.vectors.drive import Live, live, wire
from tests.vectors.load import Vector

_ENDED: dict[str, Ended] = {
    "completed": "whole",
    "truncated": "whole",  # the clients do not check for the terminal
    "stream_error": "error",
    "http_error": "error",
    "upstream_reset": "broken",
    "client_abort": "broken",
    "timeout": "broken",
}


class TextSink:
    """Implements `dialects.contract.Sink`: keeps the exact texts and arguments. `resumed`: of a resumed stream."""

    def __init__(self, resumed: bool = False) -> None:
        self._resumed = resumed
        self.outputs: dict[int, Output] = {}
        self.ended = False
        self._undecided: dict[tuple[int, str], list[str]] = {}  # texts that are new, or all text so far
        self._calls: dict[int, list[tuple[int | None, object, bool, Call]]] = {}
        # Of the current event: its item and source; or, if it closes the response, the kinds of output already reported.
        self._source: tuple[int | None, Source] | None = None
        self._known_kinds: set[str] | None = None
        self._heard: set[int] = set()  # the choices with output before the event that closes the response
        # The sources that reported an item's text, reasoning or refusal: up to now, and up to the current event.
        self._sources: dict[tuple[int | None, str], set[Source]] = {}
        self._earlier_sources: dict[tuple[int | None, str], set[Source]] = {}

    def begin(self) -> None:
        """Begins an event."""
        self._source = self._known_kinds = None

    def identify(
        self, response_id: object = None, model: object = None, tier: object = None, routed_model: object = None
    ) -> None:
        return

    def choice(self, index: int) -> None:
        self._output(index)

    def part(self, item: int | None, source: Source) -> None:
        self._source = item, source
        self._earlier_sources = {key: set(sources) for key, sources in self._sources.items()}

    def closes(self) -> None:
        kinds = ("text", "reasoning", "refusal")
        outputs = self.outputs.values()
        self._known_kinds = {
            kind for kind in kinds if self._resumed or any(getattr(output, kind) for output in outputs)
        }
        self._heard = {
            index
            for index, output in self.outputs.items()
            if self._resumed or output.calls or any(getattr(output, kind) for kind in kinds)
        }

    def text(self, choice: int, value: object) -> None:
        self._add(choice, "text", value)

    def text_so_far(self, choice: int, value: object) -> None:
        if isinstance(value, str):
            self._add(choice, "text", value[len(self._output(choice).text) :])

    def text_or_so_far(self, choice: int, value: object, *, reasoning: bool = False, may_repeat: bool = False) -> None:
        """By the contents: texts that each begin with the one before are all text so far."""
        name = "reasoning" if reasoning else "text"
        texts = self._undecided.setdefault((choice, name), [])
        if isinstance(value, str):
            texts.append(value)
            is_so_far = all(later.startswith(earlier) for earlier, later in pairwise(texts))
            setattr(self._output(choice), name, value if is_so_far else "".join(texts))

    def reasoning(self, choice: int, value: object, *, summary: bool = False) -> None:
        self._add(choice, "reasoning", value)

    def reasons(self, *, withheld: bool = False) -> None:
        """No output."""

    def refusal(self, choice: int, value: object) -> None:
        self._add(choice, "refusal", value)

    def _add(self, choice: int, name: str, value: object) -> None:
        output = self._output(choice)
        text = value if isinstance(value, str) else ""
        is_first = self._known_kinds is not None and not self._resumed and choice not in self._heard
        if text and (is_first or self._counts(name)):
            setattr(output, name, getattr(output, name) + text)

    def _counts(self, name: str) -> bool:
        """Whether no other source reported this kind of output of the item. An item may have several texts and parts."""
        if self._known_kinds is not None:
            return name not in self._known_kinds
        if self._source is None:
            return True
        item, source = self._source
        items = {known for known, _ in self._earlier_sources} if item is None else {item, None}
        earlier = set[Source]().union(*(self._earlier_sources.get((known, name), set()) for known in items))
        repeatable = {source} if source in (Source.TEXT_DONE, Source.PART_DONE) else set()
        counts = source is Source.DELTA or (not self._resumed and earlier <= repeatable)
        if counts:
            self._sources.setdefault((item, name), set()).add(source)
        return counts

    def media(self, choice: int, value: object) -> None:
        return

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
        known_name, in_pieces = _name(name), in_pieces and not call_id
        call = self._call(choice, key, call_id or None, client, known_name, indexed=indexed, in_pieces=in_pieces)
        if known_name is not None and call.name is None:
            call.name = known_name
        elif known_name is not None and in_pieces and call.name != known_name and not call.arguments:
            call.name = f"{call.name}{known_name}"

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
        if value is None or value == "":
            return
        if key is None and not self._calls.get(choice):
            return  # they belong to no call
        call = (
            self._calls[choice][-1][3]
            if key is None
            else self._call(choice, key, call_id or None, True, indexed=indexed)
        )
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        call.arguments = text if so_far else f"{call.arguments}{text}"

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
        self.tool(choice, key, name, call_id=call_id, client=client, json=json)
        if not self._resumed and not self._call(choice, key, call_id or None, client, _name(name)).arguments:
            self.arguments(choice, key, arguments, call_id)

    def whole_arguments(self, choice: int, key: int, value: object, *, client: bool = True, json: bool = True) -> None:
        if not self._resumed:
            self.whole_tool(choice, key, None, value, client=client, json=json)

    def whole_calls(self, choice: int, calls: Sequence[WholeCall]) -> None:
        if self._resumed:
            return
        known = list(self._calls.get(choice, []))
        for whole in sorted(calls, key=lambda one: one.call_id not in [known_id for _, known_id, _, _ in known]):
            same_id = [one for one in known if one[1] is not None and one[1] == whole.call_id]
            same_name = [one for one in known if _name(whole.name) is None or one[3].name in (None, _name(whole.name))]
            for one in (same_id or same_name)[:1]:
                known.remove(one)
                call = one[3]
                break
            else:
                call = self._call(choice, None, whole.call_id, whole.client)
            call.name = call.name or _name(whole.name)
            if not call.arguments and whole.arguments:
                given = whole.arguments
                call.arguments = given if isinstance(given, str) else msgspec.json.encode(given).decode()

    def finish(self, choice: int, raw: object, normal: str | None = None) -> None:
        return

    def usage(self, reported: object, *, placeholder: bool = False) -> None:
        return

    def error(self, facts: ErrorFacts) -> None:
        return

    def terminal(self) -> None:
        self.ended = True

    def provider_timing(
        self, *, queue_s: object = None, routing_s: object = None, first_token_s: object = None, total_s: object = None
    ) -> None:
        return

    def calls_client_tools(self, choice: int) -> bool:
        return any(client for _, _, client, _ in self._calls.get(choice, ()))

    def _output(self, index: int) -> Output:
        return self.outputs.setdefault(index, Output(calls=[]))

    def _call(
        self,
        choice: int,
        key: int | None,
        call_id: object,
        client: bool,
        name: str | None = None,
        *,
        indexed: bool = True,
        in_pieces: bool = False,
    ) -> Call:
        """The latest call with this key, or a new call if that one has another id or name.

        Without an index: the call with this id under any key, if the id is one that the record may hold.
        """
        calls = self._calls.setdefault(choice, [])
        if not indexed and safe_id(call_id) not in (None, MASKED):
            for _, known_id, _, call in reversed(calls):
                if known_id == call_id:
                    return call
        for known_key, known_id, _, call in reversed(calls if key is not None else ()):
            if known_key != key:
                continue
            if call_id is not None and known_id is not None:
                if known_id == call_id:
                    return call
            elif name is None or call.name in (None, name) or (in_pieces and not call.arguments):
                return call
            else:
                break
        calls.append((key, call_id, client, Call()))
        self._output(choice).calls.append(calls[-1][3])
        return calls[-1][3]


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def outputs_of(vector: Vector) -> dict[int, Output]:
    """The output that the dialects report for a vector's events up to the terminal, by choice."""
    sink, decoder = TextSink(vector.record.get("resumed_from") not in (None, FROM_START)), SseDecoder()
    dialect = (
        BY_NAME[vector.dialect]
        if vector.name_dialect
        else dialect_of_endpoint(endpoint_of(vector.method, vector.target))
    )
    pending = [*decoder.feed(vector.body), decoder.finish()]
    for event in pending[:-1] + [event for event in pending[-1:] if event is not None and is_whole(event, dialect)]:
        if event is not None and event.data is not None and not sink.ended:
            dialect = _read_event(event, event.data, dialect, sink)
    return sink.outputs


def _read_event(event: Event, data: bytes, dialect: Dialect | None, sink: TextSink) -> Dialect | None:
    """Reads one event into the sink. Returns the dialect that it is recognised by, or else the one known before."""
    text_dialect = dialect_of_text_event(event.name, dialect)
    if text_dialect is not None:
        sink.text(0, data.decode("utf-8", "replace"))
        return text_dialect
    if data.startswith(DONE):
        sink.ended = dialect is None or dialect.done_is_terminal
        return dialect
    value = parse(data)
    if value is UNPARSED or not isinstance(value, dict):
        return dialect
    dialect = recognised(event.name, value) or dialect
    if dialect is not None:
        sink.begin()
        dialect.read(event.name, value, sink)
    return dialect


def record_of(vector: Vector) -> dict[str, Any]:
    """The record of the vector as a tap and a worker make it."""
    how = Live()
    return live(vector, how, [wire(vector, how)])


def ours(vector: Vector) -> Reading:
    """The core's reading: texts and arguments from the sink; names, finish reasons, usage and end from the record."""
    record, outputs = record_of(vector), outputs_of(vector)
    choices: dict[int, Output] = {}
    for choice in record["choices"]:
        output = outputs.get(choice["index"], Output())
        pairs = zip(choice["tool_calls"], output.calls, strict=False)
        calls = [Call(recorded["name"], kept.arguments) for recorded, kept in pairs]
        choices[choice["index"]] = msgspec.structs.replace(output, calls=calls, finish=choice["finish_reason_raw"])
    recorded = record["usage"]
    names = ("input_tokens", "output_tokens", "total_tokens", "input_cached_tokens", "reasoning_tokens")
    usage = None if recorded["source"] == "absent" else TokenUsage(*(recorded[name] for name in names))
    return Reading(choices, usage, _ENDED[record["outcome"]])
