"""The sink of the dialects: it puts what an event reports into the stream's state, with the event's time."""

import zlib
from collections.abc import Sequence, Set

import msgspec

from streamgauge.core.allowlist import argument_chars
from streamgauge.core.assembly.repeated_output import MEDIA, REASONING, REFUSAL, TEXT, TOOL, Repetition
from streamgauge.core.assembly.state import ChoiceState, StreamState, TextState, ToolState
from streamgauge.core.assembly.timing import ReasoningForm, ReasoningSign
from streamgauge.core.dialects.contract import Dialect, ErrorFacts, Source, WholeCall
from streamgauge.core.formats.json_validator import JsonState, feed
from streamgauge.core.outcome import UNSPECIFIED, normal_reason, reason_label
from streamgauge.core.safe_values import MASKED, finite_number, safe_code, safe_id
from streamgauge.core.usage import take

# The most choices of one request, and tool calls of one choice, that have a state of their own: this bounds the state
# of a stream. Further ones count in its totals only. The largest n that providers accept is 128; recorded streams hold
# at most 15 calls.
MAX_CHOICES = 128
MAX_TOOLS = 64
# Tool calls of all choices together.
MAX_TOOLS_OF_ALL = 128

# The kinds of output that are content of the answer.
_CONTENT = TEXT | REFUSAL


class StreamEventSink:
    """Implements `dialects.contract.Sink` for one event at a time: `begin`, what it reports, and `end`.

    `close` after the last event: the gaps between token events are added to the state many at a time.
    """

    def __init__(self, state: StreamState, stall_ns: int) -> None:
        self._state = state
        self._stall_ns = stall_ns
        self._masked = state.opening is not None and state.opening.capture == "masked"
        self._dialect: Dialect | None = None
        self._stamp: int | None = None
        self._repeated = False
        self._timed = True
        self._gaps: list[int] = []
        self._kinds = 0
        self._summary = False  # the event brought a summary of reasoning
        self._untimed = TEXT | REASONING | TOOL | MEDIA | REFUSAL  # the kinds whose first times may be unknown
        self._has_usage = False  # the event reported usage
        self._generated: dict[int, ChoiceState | None] = {}  # the choices with output in this event
        self._index: int | None = None  # the choice that was reported last
        self._choice: ChoiceState | None = None  # its state
        self._heard: Set[int] = frozenset()  # the choices that had output before the event that closes the response
        self._repetition = Repetition(state)
        self._scope: Repetition | None = None  # None: the event belongs to no item, and closes nothing

    def begin(self, dialect: Dialect | None, stamp: int | None, repeated: bool = False, timed: bool = True) -> None:
        """Begin an event that came at `stamp` (ns).

        `repeated`: a resumed stream repeats it, so its output does not count. `timed` is False for a whole answer, which
        has no times, and needs no `end`.
        """
        self._dialect, self._stamp, self._repeated, self._timed = dialect, stamp, repeated, timed
        self._kinds, self._has_usage, self._scope, self._summary = 0, False, None, False
        if self._generated:
            self._generated = {}

    def end(self) -> None:
        """End the event. If it carried generated output, it is a token event."""
        kinds, stamp, timing = self._kinds, self._stamp, self._state.timing
        if not kinds:
            return
        self._state.counts.token_events += 1
        timing.token(stamp, self._gaps)
        if kinds & REASONING:
            timing.reasoning_events += kinds == REASONING
            if not timing.reasoning_form:
                timing.reasoning_form = ReasoningForm.SUMMARY if self._summary else ReasoningForm.TEXT
        for choice in self._generated.values():
            if choice is not None:
                choice.token_events += 1
                if choice.first_token is None:
                    choice.first_token = stamp
        if kinds & self._untimed:
            self._note_first(kinds, stamp)

    def _note_first(self, kinds: int, stamp: int | None) -> None:
        """Note when output of these kinds first came."""
        timing = self._state.timing
        if timing.first_token is None:
            timing.first_token = stamp
        if kinds & _CONTENT and timing.first_content is None:
            timing.first_content = stamp
        if kinds & REASONING and timing.first_reasoning is None:
            timing.first_reasoning = stamp
        if kinds & TOOL and timing.first_tool is None:
            timing.first_tool = stamp
        if kinds & MEDIA and timing.first_media is None:
            timing.first_media = stamp
        if stamp is not None:
            self._untimed &= ~kinds

    def close(self) -> None:
        """Put into the state what is still missing there."""
        self._state.timing.add_gaps(self._gaps, self._stall_ns)

    # --- what a dialect reports ------------------------------------------------------------------------------------

    def identify(
        self, response_id: object = None, model: object = None, tier: object = None, routed_model: object = None
    ) -> None:
        """Keep the first response id and model, and the latest tier and routed model, as `safe_values` allows them."""
        identity = self._state.identity
        if response_id is not None and identity.response_id is None:
            identity.response_id = safe_id(response_id)
        if model is not None and identity.response_model is None:
            identity.response_model = safe_id(model)
        if tier is not None and tier != identity.service_tier:
            identity.service_tier = safe_code(tier) or identity.service_tier
        if routed_model is not None and routed_model != identity.routed_model:
            identity.routed_model = safe_id(routed_model) or identity.routed_model

    def choice(self, index: int) -> ChoiceState | None:
        """The state of a choice, which is created unless there are MAX_CHOICES."""
        if index != self._index:
            self._index, self._choice = index, self._choice_of(index)
        return self._choice

    def part(self, item: int | None, source: Source) -> None:
        """Decide by the item's earlier sources which output of this event is new."""
        self._scope = self._repetition
        self._scope.part(item, source)

    def closes(self) -> None:
        """Decide by the totals of the stream which output of this event is new."""
        self._scope = self._repetition
        self._scope.whole()
        self._heard = {known.index for known in self._state.choices if known.token_events} | self._generated.keys()

    def text(self, choice: int, value: object) -> None:
        """Count new text in `text_chars` (code points)."""
        self._state.counts.text_chars += self._generate(choice, value, TEXT)

    def text_so_far(self, choice: int, value: object) -> None:
        """Count what is new of all text so far: what lies after the code points that were counted."""
        if isinstance(value, str):
            self.text(choice, value[self._state.counts.text_chars :])

    def text_or_so_far(self, choice: int, value: object, *, reasoning: bool = False, may_repeat: bool = False) -> None:
        """Count what is new of a text that is all text so far, until the lengths show that each text is new."""
        if not isinstance(value, str) or (state := self.choice(choice)) is None:
            return
        while len(state.texts) < 2:
            state.texts.append(TextState())
        known = state.texts[reasoning]
        is_equal = len(value) == known.last > 0 and not may_repeat and not known.is_surely_so_far
        if not known.in_pieces and (len(value) < known.last or is_equal):
            known.in_pieces = True
            self._add_chars(known.total - known.last, reasoning)  # what earlier texts left out
        known.grown += not known.in_pieces and 0 < known.last < len(value)
        new = value if known.in_pieces else value[known.last :]
        known.last, known.total = len(value), known.total + len(value)
        if reasoning:
            self.reasoning(choice, new)
        else:
            self.text(choice, new)

    def _add_chars(self, chars: int, reasoning: bool) -> None:
        counts = self._state.counts
        if reasoning:
            counts.reasoning_chars += chars
        else:
            counts.text_chars += chars

    def reasoning(self, choice: int, value: object, *, summary: bool = False) -> None:
        """Count new reasoning in `reasoning_chars` (code points)."""
        chars = self._generate(choice, value, REASONING)
        self._state.counts.reasoning_chars += chars
        self._summary |= summary and chars > 0

    def reasons(self, *, withheld: bool = False) -> None:
        """Keep the strongest sign of reasoning."""
        sign, timing = ReasoningSign.WITHHELD if withheld else ReasoningSign.REASONS, self._state.timing
        timing.reasoning_sign = max(timing.reasoning_sign, sign)

    def refusal(self, choice: int, value: object) -> None:
        """Count a new refusal in `refusal_chars` (code points)."""
        self._state.counts.refusal_chars += self._generate(choice, value, REFUSAL)

    def media(self, choice: int, value: object) -> None:
        """Mark the event as a token event if the media is new. Its size is not counted."""
        self._scope = self._scope or Repetition(self._state)  # media is tracked even without an item
        self._generate(choice, value, MEDIA)

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
        """Open or update the state of a call. The call's first name makes the event a token event."""
        if (self._repeated and not isinstance(name, str)) or self._repeats_calls():
            return
        named = safe_id(name) if isinstance(name, str) else None
        tool = self._open_tool(choice, key, call_id, json, named, indexed=indexed, in_pieces=in_pieces)
        if tool is None:
            return
        updates = name is not None or tool.name is None  # a fragment without a name changes nothing here
        if updates and (tool.client, tool.empty) != (client, tool.empty or empty):
            tool.client, tool.empty = client, tool.empty or empty
        is_piece = in_pieces and not call_id and not tool.argument_chars and tool.name not in (None, named)
        if named is not None and (tool.name is None or is_piece):
            self._add_name(choice, tool, name)

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
        """Count the code points of the arguments in the state of the call, and validate them if they are JSON."""
        if value is None or value == "" or self._repeated or self._repeats_calls():
            return
        tool = (
            self._latest_tool(choice) if key is None else self._open_tool(choice, key, call_id, True, indexed=indexed)
        )
        if so_far and tool is not None and isinstance(value, str):
            value = value[tool.argument_chars :]
        self._add_arguments(choice, tool, value)

    def _add_name(self, choice: int, tool: ToolState, name: object) -> None:
        """Keep the name of a call, or append a fragment of it. An empty one is no output."""
        named = safe_id(name)
        if named is None:
            return
        tool.name = named if tool.name is None else safe_id(tool.name + named)
        if not self._repeated:
            self._note_tool(choice)

    def _add_arguments(self, choice: int, tool: ToolState | None, value: object) -> None:
        """Count all or a fragment of the arguments of a call; None for a call that has no state."""
        if value is None or value == "":
            return
        self._note_tool(choice)
        if tool is None:
            return
        tool.argument_chars += argument_chars(value)
        if tool.check is not None:
            feed(tool.check, value if isinstance(value, str) else compact_json(value))

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
        """Add what earlier events did not report of a call. With earlier events unseen, a new call gets its name alone."""
        if self._repeats_calls():
            return
        named = safe_id(name) if isinstance(name, str) else None
        before = self._calls()
        tool = self._open_tool(choice, key, call_id, json, named)
        if tool is None:
            return
        if not self._repetition.sees_all:
            if self._calls() > before:
                tool.name, tool.client, tool.check = named, client, None
            return
        self.tool(choice, key, name, call_id=call_id, client=client, json=json)
        if not tool.argument_chars:
            self.arguments(choice, key, arguments, call_id)

    def whole_arguments(self, choice: int, key: int, value: object, *, client: bool = True, json: bool = True) -> None:
        """Add the arguments if earlier events reported none. Nothing is added if earlier events were not seen."""
        if self._repetition.sees_all:
            self.whole_tool(choice, key, None, value, client=client, json=json)

    def whole_calls(self, choice: int, calls: Sequence[WholeCall]) -> None:
        """Add what earlier events did not report of these calls, unless earlier events were not seen or are repeated here."""
        if not calls or self._repeated or not self._repetition.sees_all or (state := self.choice(choice)) is None:
            return
        for call, known in zip(calls, matched(calls, state.tools), strict=True):
            tool = known or self._open_tool(choice, None, call.call_id, call.json)
            if tool is None:
                continue
            if known is None:
                tool.client = call.client
            if tool.name is None and isinstance(call.name, str):
                self._add_name(choice, tool, call.name)
            if not tool.argument_chars:
                self._add_arguments(choice, tool, call.arguments)

    def finish(self, choice: int, raw: object, normal: str | None = None) -> None:
        """Keep the first finish reason of the choice, or the first that says more than a plain stop.

        A reason that means an error replaces any other, and sets the error.
        """
        reason = reason_label(raw)
        state = self.choice(choice)
        if reason is None or state is None:
            return
        meaning = normal or normal_reason(reason)
        if meaning == "error":
            self.error(ErrorFacts(type=reason))
        if state.finish_raw is None and self._timed:
            self._state.timing.finish = self._stamp
        # The same raw reason may mean another one later (Gemini's STOP after a tool call).
        if state.finish_raw in (None, UNSPECIFIED, reason) or (
            reason != UNSPECIFIED and _says_more(meaning, state.finish)
        ):
            state.finish_raw, state.finish = reason, meaning

    def usage(self, reported: object, *, placeholder: bool = False) -> None:
        """Merge a usage object. It is final after the terminal, or once a choice has a finish reason."""
        if self._dialect is None or reported is None:
            return
        state = self._state
        final = state.terminal or any(choice.finish_raw is not None for choice in state.choices)
        self._has_usage |= take(state.usage, self._dialect.usage, reported, final=final, placeholder=placeholder)

    def error(self, facts: ErrorFacts) -> None:
        """Keep the first error. A later error, also one from a finish reason, fills only its empty fields."""
        known = self._state.error or ErrorFacts()
        self._state.error = ErrorFacts(
            known.type or facts.type,
            known.code or facts.code,
            known.status or facts.status,
            known.request_id or facts.request_id,
        )

    def terminal(self) -> None:
        """Mark the stream as ended by its protocol. Usage in the same event is final."""
        self._state.terminal = True
        if self._has_usage:  # the terminal event itself reported usage
            self._state.usage.final = True

    def provider_timing(
        self, *, queue_s: object = None, routing_s: object = None, first_token_s: object = None, total_s: object = None
    ) -> None:
        """Keep the latest valid number of each time (seconds)."""
        identity = self._state.identity
        identity.queue_s = _newer(queue_s, identity.queue_s)
        identity.routing_s = _newer(routing_s, identity.routing_s)
        identity.first_token_s = _newer(first_token_s, identity.first_token_s)
        identity.total_s = _newer(total_s, identity.total_s)

    def calls_client_tools(self, choice: int) -> bool:
        """Whether a tracked call of the choice is the client's to execute."""
        return any(tool.client for known in self._state.choices if known.index == choice for tool in known.tools)

    # --- state ------------------------------------------------------------------------------------------------------

    def _generate(self, choice: int, value: object, kind: int) -> int:
        """Record generated output; return its code points, 0 if it does not count."""
        if type(value) is not str or not value or self._repeated:
            return 0
        scope = self._scope
        if scope is not None and not scope.is_new(kind, is_first=scope.is_whole and choice not in self._heard):
            return 0
        self._kinds |= kind
        self._generated[choice] = self._choice if choice == self._index else self.choice(choice)
        return len(value)

    def _note_tool(self, choice: int) -> None:
        self._kinds |= TOOL
        self._generated[choice] = self.choice(choice)

    def _choice_of(self, index: int) -> ChoiceState | None:
        choices = self._state.choices
        for choice in choices:
            if choice.index == index:
                return choice
        if len(choices) >= MAX_CHOICES:
            self._state.loss.state_limit = True
            return None
        choices.append(ChoiceState(index))
        return choices[-1]

    def _repeats_calls(self) -> bool:
        return self._scope is not None and self._scope.repeats(TOOL)

    def _calls(self) -> int:
        return sum(len(choice.tools) for choice in self._state.choices)

    def _latest_tool(self, choice_index: int) -> ToolState | None:
        choice = self.choice(choice_index)
        return choice.tools[-1] if choice is not None and choice.tools else None

    def _open_tool(
        self,
        choice_index: int,
        key: int | None,
        call_id: object,
        json: bool,
        name: str | None = None,
        *,
        indexed: bool = True,
        in_pieces: bool = False,
    ) -> ToolState | None:
        """The call that a fragment belongs to: the latest with its key, or a new one if its id or name differs.

        A fragment without a key always begins a call. None if there are too many choices or calls.
        """
        choice = self.choice(choice_index)
        if choice is None:
            return None
        digest = digest_of(call_id)
        by_id = not indexed and digest != _MASKED_ID  # a masked id may be any id
        known = known_call(choice.tools, key, digest, name, by_id=by_id, in_pieces=in_pieces)
        if known is not None:
            return known
        if len(choice.tools) >= MAX_TOOLS or self._calls() >= MAX_TOOLS_OF_ALL:
            self._state.loss.state_limit = True
            return None
        check = None if self._masked or not json else JsonState()
        choice.tools.append(ToolState(len(choice.tools) if key is None else key, call_digest=digest, check=check))
        return choice.tools[-1]


def _says_more(meaning: str | None, known: str | None) -> bool:
    """Whether a later finish reason replaces the known one: any other replaces a stop, and an error any other.

    None is a reason that is not known.
    """
    return meaning != known and (meaning == "error" or known == "stop")


def compact_json(value: object) -> str:
    """A JSON value as text without white space."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, RecursionError, OverflowError):
        return str(value)


def _newer(value: object, known: float | None) -> float | None:
    number = finite_number(value)
    return known if number is None else number


# --- which known call an event names ----------------------------------------------------------------------------


def digest_of(call_id: object) -> int | None:
    """The digest by which the state keeps the id of a call; None for a call without an id."""
    label = safe_id(call_id) if isinstance(call_id, str) else None
    return None if label is None else zlib.crc32(label.encode())


def known_call(
    tools: Sequence[ToolState], key: int | None, digest: int | None, name: str | None, *, by_id: bool, in_pieces: bool
) -> ToolState | None:
    """The known call that a fragment belongs to; None if it begins a new one. See `Sink.tool`."""
    if key is None:
        return None
    if by_id and digest is not None:
        of_id = next((tool for tool in reversed(tools) if tool.call_digest == digest), None)
        if of_id is not None:
            return of_id
    for tool in reversed(tools):
        if tool.key != key:
            continue
        if digest is not None and tool.call_digest is not None:
            if tool.call_digest == digest:
                return tool
        elif name is None or tool.name in (None, name) or (in_pieces and digest is None and not tool.argument_chars):
            return tool
        else:
            return None
    return None


def matched(calls: Sequence[WholeCall], tools: Sequence[ToolState]) -> list[ToolState | None]:
    """The known call of each of these calls, None for a new one. No two have the same known call.

    Calls are known by their ids. Some gateways give a call another id in each event, so that the others are known by their
    name, in order.
    """
    left = list(tools)
    known: list[ToolState | None] = []
    for call in calls:
        digest = digest_of(call.call_id)
        known.append(_taken(left, [tool for tool in left if digest is not None and tool.call_digest == digest]))
    for at, call in enumerate(calls):
        if known[at] is None:
            name = safe_id(call.name) if isinstance(call.name, str) else None
            known[at] = _taken(left, [tool for tool in left if name is None or tool.name in (None, name)])
    return known


def _taken(left: list[ToolState], fitting: Sequence[ToolState]) -> ToolState | None:
    """The first of the calls that fit, which is then removed from those that are left."""
    if not fitting:
        return None
    left[:] = [tool for tool in left if tool is not fitting[0]]
    return fitting[0]


# The digest of an id that masking has removed.
_MASKED_ID = digest_of(MASKED)
