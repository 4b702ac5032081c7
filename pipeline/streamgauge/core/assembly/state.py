"""The state of an open stream: plain data, persisted as MessagePack. `state_codec.py` has the rules for changes of fields."""

import msgspec

from streamgauge.core.assembly.timing import TimingState
from streamgauge.core.capture.segments import Head, Opening, RequestFacts, Segment, StreamEnding
from streamgauge.core.dialects.contract import ErrorFacts
from streamgauge.core.formats.json_validator import JsonState
from streamgauge.core.usage import UsageState

# Texts that were longer than the one before so often are all text so far: pieces would have to grow each time (count).
_GROWN_SURELY = 8


class ToolState(msgspec.Struct, array_like=True, gc=False):
    """A tool call. `check`: the validator of its arguments, None if they are masked or not JSON by contract.

    `empty`: an empty object came with the call; it is the arguments if no others follow.
    """

    key: int
    name: str | None = None
    call_digest: int | None = None
    client: bool = True
    argument_chars: int = 0
    check: JsonState | None = None
    empty: bool = False


class TextState(msgspec.Struct, array_like=True, gc=False):
    """Texts of which each is either new or all so far. Lengths in code points.

    `last`: of the last text. `total`: of all texts. `grown`: how often a text was longer than the one before. `in_pieces`:
    each text is new.
    """

    last: int = 0
    total: int = 0
    grown: int = 0
    in_pieces: bool = False

    @property
    def is_surely_so_far(self) -> bool:
        """Whether a text of the same length as the one before shows nothing: pieces would have had to grow too often."""
        return self.grown >= _GROWN_SURELY


class ChoiceState(msgspec.Struct, array_like=True, gc=False):
    """Assembly state of one choice; see `record.Choice`.

    `texts`: of the answer and of the reasoning, if the dialect reports them by `Sink.text_or_so_far`.
    """

    index: int
    first_token: int | None = None
    token_events: int = 0
    finish_raw: str | None = None
    finish: str | None = None
    tools: list[ToolState] = []
    texts: list[TextState] = []


class CountState(msgspec.Struct, array_like=True, gc=False):
    """Counts of a stream so far; see `record.Counts`."""

    events: int = 0
    repeated_events: int = 0
    after_terminal_events: int = 0
    comments: int = 0
    unparsed_events: int = 0
    unterminated_events: int = 0
    error_fields: int = 0
    bytes: int = 0
    reads: int = 0
    segments: int = 0
    text_chars: int = 0
    reasoning_chars: int = 0
    refusal_chars: int = 0
    token_events: int = 0


class IdentityState(msgspec.Struct, array_like=True, gc=False):
    """Ids, models, tier and times that the response reports of itself. Times are the provider's own, in seconds."""

    response_id: str | None = None
    response_model: str | None = None
    routed_model: str | None = None
    service_tier: str | None = None
    last_event_id: str | None = None
    last_sequence_number: int | None = None
    queue_s: float | None = None
    routing_s: float | None = None
    first_token_s: float | None = None
    total_s: float | None = None


class LossState(msgspec.Struct, array_like=True, gc=False):
    """Losses of a stream so far; see `record.Integrity`.

    `unread_at`: the number of token events before the last event over the size limit that may have ended the stream.
    """

    missing_segments: int = 0
    dropped_reads: int = 0
    oversized_events: int = 0
    decode_error: str | None = None
    log_gap: bool = False
    state_limit: bool = False
    unread_at: int | None = None


class StreamState(msgspec.Struct, array_like=True, gc=False):
    """One open stream.

    `instance`, `slot`: the tap instance and slot of its segments. `waiting`: segments that came while an earlier one was
    missing, by number; `waiting_since_ns`: the tap's clock when this gap was first seen. `dialect`: what the content showed;
    `hint`: what a weaker sign suggests. `terminal`: the protocol's own end was seen. `body_read`: a whole answer was parsed.
    `items`: the first source of the output of each item of an answer (`repeated_output.py`); None in the state of an older
    program, which does not show what a closing event repeats.
    """

    stream: bytes
    instance: bytes
    slot: int
    next_segment: int = 0
    waiting: dict[int, Segment] = {}
    waiting_since_ns: int = 0
    opening: Opening | None = None
    request: RequestFacts | None = None
    head: Head | None = None
    end: StreamEnding | None = None
    dialect: str | None = None
    hint: str | None = None
    terminal: bool = False
    body_read: bool = False
    error: ErrorFacts | None = None
    choices: list[ChoiceState] = []
    timing: TimingState = msgspec.field(default_factory=TimingState)
    usage: UsageState = msgspec.field(default_factory=UsageState)
    counts: CountState = msgspec.field(default_factory=CountState)
    identity: IdentityState = msgspec.field(default_factory=IdentityState)
    loss: LossState = msgspec.field(default_factory=LossState)
    items: dict[int, int] | None = None
