"""Measures one call of JSON-RPC by its answer: how long it took, and whether it failed. Nothing of it is stored.

The answer is a whole JSON text, or an event stream: progress and log messages, and the message with the result. A streaming
call of Agent2Agent has a result in each event, of which the last one ends the call.
"""

from streamgauge.core.capture.segments import Ending
from streamgauge.core.formats.json_rpc import BATCH, RPC_MARK, CallResult, Unmeasured, errors_of
from streamgauge.core.formats.sse import SseDecoder
from streamgauge.core.http1.body import BodyDecoder
from streamgauge.core.http1.head import names_event_stream
from streamgauge.core.http1.response import ResponseReader
from streamgauge.recorder.budget import BodyBuffer, Budget, UnfinishedEvent
from streamgauge.recorder.decoder_memory import DecoderMemory
from streamgauge.recorder.protocol import MAX_CALL_BYTES, CallData, CallEnded, CallOpened
from streamgauge.recorder.response import CODED_STEP_BYTES

_ACCEPTED = 202
# How an exchange without a fault ended, in the words for a record's outcome.
_ENDED = {Ending.RESET: "upstream_reset", Ending.TIMEOUT: "timeout", Ending.CLIENT: "client_abort"}


class CallSession(UnfinishedEvent):
    """One call, which `opened` has opened."""

    def __init__(self, opened: CallOpened, budget: Budget, memory: DecoderMemory) -> None:
        super().__init__(budget)
        self.opened = opened
        self._memory = memory
        self._reader = ResponseReader("POST")
        self._decoder: BodyDecoder | None = None
        self._events: SseDecoder | None = None
        self._whole = BodyBuffer(budget, MAX_CALL_BYTES)
        self._wire_left = self._decoded_left = MAX_CALL_BYTES
        self._held = 0  # bytes of the event that has not ended
        self._can_be_resumed = False  # its events have ids
        self._is_undecoded = False  # the answer may be in what could not be decoded
        self._answered_ns: int | None = None  # the read with the last answer
        self._last_ns: int | None = None
        self._error: str | None = None
        self._unmeasured: Unmeasured | None = None

    def data(self, message: CallData) -> int:
        """Read what the upstream sent. Returns what it cost: bytes on the wire, and decoded."""
        if message.is_lost:
            self.give_up(Unmeasured.BEHIND)
        if self._unmeasured is not None or self._is_answered:
            return 0
        self._last_ns = message.at_ns
        self._wire_left -= len(message.data)
        decoded_before = self._decoded_left
        data = self._after_head(message.data)
        decoder = self._decoder
        if decoder is not None:
            step = CODED_STEP_BYTES if decoder.is_coded else max(len(data), 1)
            for at in range(0, len(data), step):
                self._take(decoder.feed(data[at : at + step]).decoded, message.at_ns)
                if self._unmeasured is not None or self._is_answered:
                    break
        if self._wire_left <= 0:
            self.give_up(Unmeasured.TOO_LARGE)
        return len(message.data) + decoded_before - self._decoded_left

    @property
    def _is_answered(self) -> bool:
        """Whether its only answer has come: what follows does not matter."""
        call = self.opened.call
        return self._answered_ns is not None and call.protocol == "mcp" and call.method != BATCH

    def _after_head(self, data: bytes) -> bytes:
        """The bytes after the response's head; none until it is whole."""
        if self._decoder is not None:
            return data
        head, rest = self._reader.feed_head(data)
        if self._reader.fault is not None:
            self.give_up(Unmeasured.UNDECODABLE)
        if head is None:
            return b""
        self._decoder = BodyDecoder(self._reader.framing, self._reader.coding, memory=self._memory)
        if names_event_stream((self._reader.content_type,)):
            self._events = SseDecoder(MAX_CALL_BYTES)
        return rest

    def _take(self, decoded: bytes, at_ns: int) -> None:
        self._decoded_left -= len(decoded)
        if self._decoded_left < 0:
            self.give_up(Unmeasured.TOO_LARGE)
        elif self._events is None:
            self._whole.add(decoded)
            if self._whole.capped:
                self.give_up(Unmeasured.BEHIND)
        else:
            events = self._events.feed(decoded)
            for event in events:
                self._can_be_resumed |= event.id is not None
                if event.data is not None:
                    self._note(event.data, at_ns)
            self._held = len(decoded) if events else self._held + len(decoded)
            self.charge(self._held)

    def _note(self, text: bytes, at_ns: int) -> None:
        errors = errors_of(text, self.opened.call)
        if errors is None:
            self._is_undecoded |= RPC_MARK in text or (self._events is None and self._announces_json)
        for error in errors or ():
            self._answered_ns = at_ns
            self._error = self._error or error

    def end(self, ending: CallEnded) -> CallResult:
        """The result of the call, whose exchange has ended."""
        if self._decoder is not None and self._unmeasured is None:
            self._decoder.finish()
            whole = self._whole.take() if self._events is None else None
            if whole and self._last_ns is not None:
                self._note(whole, self._last_ns)
            may_be_there = self._is_undecoded or self._decoder.fault is not None
            if self._answered_ns is None and ending.ending is Ending.COMPLETE and may_be_there:
                self.give_up(Unmeasured.UNDECODABLE)
        self._release_all()
        return self._result(ending)

    @property
    def _announces_json(self) -> bool:
        return "json" in self._reader.content_type.lower()

    def _result(self, ending: CallEnded) -> CallResult:
        status, call = self._reader.status, self.opened.call
        ended_ns = self._answered_ns
        if self._unmeasured is not None:
            return self._without(self._unmeasured)
        if ended_ns is None:
            ended_ns = ending.at_ns
            if status is not None and status >= 400:
                self._error = str(status)
            elif ending.ending is Ending.CUT:
                return self._without(Unmeasured.STOPPED)
            elif ending.ending is not Ending.COMPLETE:
                self._error = ending.fault.value if ending.fault else _ENDED[ending.ending]
            elif not call.is_notification:
                if status == _ACCEPTED or self._can_be_resumed:
                    return self._without(Unmeasured.ELSEWHERE)
                self._error = "no_answer"
        duration_s = None if ended_ns is None else max(ended_ns - self.opened.at_ns, 0) / 1e9
        return CallResult(self.opened.upstream, call, duration_s, self._error)

    def evict(self) -> None:
        """Discard an unfinished event: other holders need its share of the budget."""
        self.give_up(Unmeasured.BEHIND)

    def give_up(self, why: Unmeasured) -> None:
        """Read nothing more. The call is not measured, unless its answer has come."""
        if not self._is_answered:
            self._unmeasured = self._unmeasured or why
        self._release_all()

    def _without(self, why: Unmeasured) -> CallResult:
        return CallResult(self.opened.upstream, self.opened.call, None, unmeasured=why)

    def _release_all(self) -> None:
        self._whole.drop()
        self.release()
        if self._decoder is not None:
            self._decoder.release()
