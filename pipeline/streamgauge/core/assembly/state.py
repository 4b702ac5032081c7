"""What is known of an open stream: plain data, persisted as MessagePack. `stream.py` and `reading.py` alone change it."""

import msgspec

from streamgauge.core.assembly.timing import TimingState
from streamgauge.core.capture.segments import End, Head, Opening, RequestFacts, Segment
from streamgauge.core.dialects.contract import ErrorFacts
from streamgauge.core.formats.json_validator import JsonState
from streamgauge.core.usage import UsageState


class ToolState(msgspec.Struct, array_like=True, gc=False):
    """A tool call. `check`: the validator of its arguments, None where they are masked or no JSON by contract.

    `empty`: it came with an empty object, which stands if nothing follows.
    """

    key: int
    name: str | None = None
    call_digest: int | None = None
    client: bool = True
    argument_chars: int = 0
    check: JsonState | None = None
    empty: bool = False


class ChoiceState(msgspec.Struct, array_like=True, gc=False):
    index: int
    first_token: int | None = None
    token_events: int = 0
    finish_raw: str | None = None
    finish: str | None = None
    tools: list[ToolState] = []


class CountState(msgspec.Struct, array_like=True, gc=False):
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
    """What the response says of itself."""

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
    missing_segments: int = 0
    dropped_reads: int = 0
    oversized_events: int = 0
    decode_error: str | None = None
    log_gap: bool = False
    state_limit: bool = False


class StreamState(msgspec.Struct, array_like=True, gc=False):
    """One open stream.

    `items`: what brought the output of each item of an answer first (`repeated_output.py`); None in a state of an older
    program, from which it is not known what a closing event repeats.
    `instance`, `slot`: where its segments come from. `waiting`: segments that came ahead of a missing one, by number,
    and `waiting_since_ns`, the tap's clock when the first of them came. `dialect` is what the content showed; `hint` what
    it might be by a weaker sign. `terminal`: the protocol's own end was seen. `body_read`: a whole answer was understood.
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
    end: End | None = None
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
