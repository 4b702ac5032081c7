"""Our own reading: the very text and arguments by a sink that keeps them, all else from the record."""

from typing import Any

import msgspec

from streamgauge.core.capture.segments import FROM_START
from streamgauge.core.dialects import (
    BY_NAME,
    DONE,
    Dialect,
    ErrorFacts,
    Source,
    dialect_of_text_event,
    endpoint_of,
    is_whole,
    recognised,
)
from streamgauge.core.dialects import dialect_of_endpoint as hinted
from streamgauge.core.formats.json_text import UNPARSED, parse
from streamgauge.core.formats.sse import Event, SseDecoder
from streamgauge.core.safe_values import MASKED, safe_id
from tests.differential.answer import Answer, Call, Ended, Said, Used
from tests.vectors.drive import Live, live, wire
from tests.vectors.load import Vector

_ENDED: dict[str, Ended] = {
    "completed": "whole",
    "truncated": "whole",  # the clients do not ask for the terminal
    "stream_error": "error",
    "http_error": "error",
    "upstream_reset": "broken",
    "client_abort": "broken",
    "timeout": "broken",
}


class Keeper:
    """Implements `dialects.contract.Sink`: keeps what the dialect says, to the letter. `leg`: it continues a stream."""

    def __init__(self, leg: bool = False) -> None:
        self._leg = leg
        self.said: dict[int, Said] = {}
        self.ended = False
        self._calls: dict[int, list[tuple[int | None, object, bool, Call]]] = {}
        # What the event at hand belongs to: an item and what brings it, or the answer as a whole.
        self._part: tuple[int | None, Source] | None = None
        self._before: dict[tuple[int | None, str], set[Source]] = {}
        self._told_whole: set[str] | None = None
        self._brought: dict[tuple[int | None, str], set[Source]] = {}

    def begin(self) -> None:
        """Another event."""
        self._part = self._told_whole = None

    def identify(
        self, response_id: object = None, model: object = None, tier: object = None, routed_model: object = None
    ) -> None:
        return

    def choice(self, index: int) -> None:
        self._said(index)

    def part(self, item: int | None, source: Source) -> None:
        self._part = item, source
        self._before = {key: set(sources) for key, sources in self._brought.items()}

    def closes(self) -> None:
        names = ("text", "reasoning", "refusal")
        told = {name for name in names if any(getattr(said, name) for said in self.said.values())}
        self._told_whole = (
            {*names, "calls"} if self._leg else told | ({"calls"} if any(self._calls.values()) else set())
        )

    def text(self, choice: int, value: object) -> None:
        self._say(choice, "text", value)

    def reasoning(self, choice: int, value: object) -> None:
        self._say(choice, "reasoning", value)

    def refusal(self, choice: int, value: object) -> None:
        self._say(choice, "refusal", value)

    def _say(self, choice: int, name: str, value: object) -> None:
        said, text = self._said(choice), _string(value)
        if text and self._is_new(name):
            setattr(said, name, getattr(said, name) + text)

    def _is_new(self, name: str) -> bool:
        """Whether no other source brought such an output of this item; texts and parts have an event each."""
        if self._told_whole is not None:
            return name not in self._told_whole
        if self._part is None:
            return True
        item, source = self._part
        items = {known for known, _ in self._before} if item is None else {item, None}
        others = set[Source]().union(*(self._before.get((known, name), set()) for known in items))
        several = {source} if source in (Source.TEXT_DONE, Source.PART_DONE) else set()
        is_new = source is Source.DELTA or (not self._leg and others <= several)
        if is_new:
            self._brought.setdefault((item, name), set()).add(source)
        return is_new

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
        if self._told_whole is not None and "calls" in self._told_whole:
            return
        named, pieces = name if isinstance(name, str) and name else None, in_pieces and not call_id
        call = self._call(choice, key, call_id or None, client, named, indexed=indexed, in_pieces=pieces)
        if named is not None and call.name is None:
            call.name = named
        elif named is not None and pieces and call.name != named and not call.arguments:
            call.name = f"{call.name}{named}"

    def arguments(
        self, choice: int, key: int | None, value: object, call_id: object = None, *, indexed: bool = True
    ) -> None:
        if value is None or value == "" or (self._told_whole is not None and "calls" in self._told_whole):
            return
        if key is None and not self._calls.get(choice):
            return  # of no call
        call = (
            self._calls[choice][-1][3]
            if key is None
            else self._call(choice, key, call_id or None, True, indexed=indexed)
        )
        call.arguments = f"{call.arguments}{value if isinstance(value, str) else msgspec.json.encode(value).decode()}"

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
        named = name if isinstance(name, str) and name else None
        if not self._leg and not self._call(choice, key, call_id or None, client, named).arguments:
            self.arguments(choice, key, arguments, call_id)

    def whole_arguments(self, choice: int, key: int, value: object, *, client: bool = True, json: bool = True) -> None:
        if not self._leg:
            self.whole_tool(choice, key, None, value, client=client, json=json)

    def finish(self, choice: int, raw: object, normal: str | None = None) -> None:
        return

    def usage(self, given: object, *, placeholder: bool = False) -> None:
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

    def _said(self, index: int) -> Said:
        return self.said.setdefault(index, Said(calls=[]))

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
        """The latest call with this key, unless it is known by another id or name; else a new one.

        Without an index the call with this id, whatever its key, if it is an id that can be kept.
        """
        calls = self._calls.setdefault(choice, [])
        if not indexed and safe_id(call_id) not in (None, MASKED):
            of_id = next((call for _, known_id, _, call in reversed(calls) if known_id == call_id), None)
            if of_id is not None:
                return of_id
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
        self._said(choice).calls.append(calls[-1][3])
        return calls[-1][3]


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def kept(vector: Vector) -> Keeper:
    """What the dialects say of a vector's events up to the terminal."""
    keeper, decoder = Keeper(vector.record.get("resumed_from") not in (None, FROM_START)), SseDecoder()
    dialect = BY_NAME[vector.dialect] if vector.name_dialect else hinted(endpoint_of(vector.method, vector.target))
    pending = [*decoder.feed(vector.body), decoder.finish()]
    for event in pending[:-1] + [one for one in pending[-1:] if one is not None and is_whole(one, dialect)]:
        if event is not None and event.data is not None and not keeper.ended:
            dialect = _tell(event, event.data, dialect, keeper)
    return keeper


def _tell(event: Event, data: bytes, dialect: Dialect | None, keeper: Keeper) -> Dialect | None:
    """Tells the keeper one event; gives the dialect that it showed, or else the one known before."""
    speaker = dialect_of_text_event(event.name, dialect)
    if speaker is not None:
        keeper.text(0, data.decode("utf-8", "replace"))
        return speaker
    if data.startswith(DONE):
        keeper.ended = dialect is None or dialect.done_is_terminal
        return dialect
    value = parse(data)
    if value is UNPARSED or not isinstance(value, dict):
        return dialect
    shown = recognised(event.name, value) or dialect
    if shown is not None:
        keeper.begin()
        shown.read(event.name, value, keeper)
    return shown


def record_of(vector: Vector) -> dict[str, Any]:
    """The record of the vector as a tap and a worker make it."""
    how = Live()
    return live(vector, how, [wire(vector, how)])


def ours(vector: Vector) -> Answer:
    """Our reading of a vector: text and arguments as kept, names, reasons, usage and the end as the record says them."""
    record, said = record_of(vector), kept(vector).said
    choices: dict[int, Said] = {}
    for choice in record["choices"]:
        mine = said.get(choice["index"], Said())
        calls = [
            Call(tool["name"], call.arguments) for tool, call in zip(choice["tool_calls"], mine.calls, strict=False)
        ]
        choices[choice["index"]] = msgspec.structs.replace(mine, calls=calls, finish=choice["finish_reason_raw"])
    used = record["usage"]
    names = ("input_tokens", "output_tokens", "total_tokens", "input_cached_tokens", "reasoning_tokens")
    usage = None if used["source"] == "absent" else Used(*(used[name] for name in names))
    return Answer(choices, usage, _ENDED[record["outcome"]])
