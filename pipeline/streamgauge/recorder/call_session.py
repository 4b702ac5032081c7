"""Measures one call of JSON-RPC by its answer: how long it took, and whether it failed. Nothing of it is stored.

The answer is a whole JSON text, or an event stream: progress and log messages, and the message with the result. A streaming
call of Agent2Agent has a result in each event, of which the last one ends the call.
"""

from streamgauge.core.capture.segments import Ending
from streamgauge.core.formats.json_rpc import CallResult, Unmeasured, errors_of
from streamgauge.core.formats.sse import SseDecoder
from streamgauge.core.http1.body import BodyDecoder
from streamgauge.core.http1.head import names_event_stream
from streamgauge.core.http1.response import ResponseReader
from streamgauge.recorder.budget import BodyBuffer, Budget, UnfinishedEvent
from streamgauge.recorder.decoder_memory import DecoderMemory
from streamgauge.recorder.protocol import CallOpened, ExchangeEnding, WireData
from streamgauge.recorder.response import CODED_STEP_BYTES

# A longer answer, or event of an answer, is not read (bytes, decoded). Clients limit what a tool gives a model to some
# 100 KB, but pictures in base64 are larger.
MAX_ANSWER_BYTES = 4 * 1024 * 1024

_ACCEPTED = 202
# How an exchange without a fault ended, in the words for a record's outcome.
_ENDED = {Ending.RESET: "upstream_reset", Ending.TIMEOUT: "timeout", Ending.CLIENT: "client_abort"}


class CallSession(UnfinishedEvent):
    """One call. `end` and `fail` return its result. `upstream`: as the tap names it."""

    def __init__(self, opened: CallOpened, budget: Budget, memory: DecoderMemory) -> None:
        super().__init__(budget)
        self.upstream = opened.upstream
        self._opened, self._memory = opened, memory
        self._reader = ResponseReader("POST")
        self._decoder: BodyDecoder | None = None
        self._events: SseDecoder | None = None
        self._whole = BodyBuffer(budget, MAX_ANSWER_BYTES)
        self._held = 0  # bytes of the event that has not ended
        self._answered_ns: int | None = None  # the read with the last answer
        self._last_ns: int | None = None
        self._error: str | None = None
        self._unmeasured: Unmeasured | None = None

    def data(self, message: WireData) -> None:
        """Read what the upstream sent."""
        if message.gap:
            self._give_up(Unmeasured.BEHIND)
        if message.from_client or self._unmeasured is not None:
            return
        self._last_ns = message.at_ns
        data = message.data
        if self._decoder is None:
            head, data = self._reader.feed_head(data)
            if self._reader.fault is not None:
                self._give_up(Unmeasured.UNDECODABLE)
            if head is None:
                return
            self._decoder = BodyDecoder(self._reader.framing, self._reader.coding, memory=self._memory)
            if names_event_stream((self._reader.content_type,)):
                self._events = SseDecoder(MAX_ANSWER_BYTES)
        step = CODED_STEP_BYTES if self._decoder.is_coded else max(len(data), 1)
        for at in range(0, len(data), step):
            self._take(self._decoder.feed(data[at : at + step]).decoded, message.at_ns)

    def _take(self, decoded: bytes, at_ns: int) -> None:
        if self._events is None:
            self._whole.add(decoded)
            return
        events = self._events.feed(decoded)
        for event in events:
            if event.oversized:
                self._give_up(Unmeasured.TOO_LARGE)
            elif event.data is not None:
                self._note(event.data, at_ns)
        self._held = len(decoded) if events else self._held + len(decoded)
        self.charge(min(self._held, MAX_ANSWER_BYTES))

    def _note(self, message: bytes, at_ns: int) -> None:
        for error in errors_of(message):
            self._answered_ns = at_ns
            self._error = self._error or error

    def end(self, ending: ExchangeEnding) -> CallResult:
        """The result of the call, whose exchange has ended."""
        if self._decoder is not None:
            self._decoder.finish()
            if self._decoder.fault is not None and ending.ending is Ending.COMPLETE and self._answered_ns is None:
                self._give_up(Unmeasured.UNDECODABLE)
            if self._events is None and (whole := self._whole.take()) is not None and self._last_ns is not None:
                self._note(whole, self._last_ns)
            elif self._whole.capped:
                self._give_up(Unmeasured.TOO_LARGE)
        self._release_all()
        return self._result(ending)

    def _result(self, ending: ExchangeEnding) -> CallResult:
        status, call = self._reader.status, self._opened.call
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
                if status == _ACCEPTED:
                    return self._without(Unmeasured.ELSEWHERE)
                self._error = "no_answer"
        duration_s = None if ended_ns is None else max(ended_ns - self._opened.at_ns, 0) / 1e9
        return CallResult(self.upstream, call, duration_s, self._error)

    def fail(self, why: Unmeasured) -> CallResult:
        """The result of a call that is not read further."""
        self._release_all()
        return self._without(why)

    def evict(self) -> None:
        """Discard an unfinished event: other holders need its share of the budget."""
        self._give_up(Unmeasured.TOO_LARGE)

    def _without(self, why: Unmeasured) -> CallResult:
        return CallResult(self.upstream, self._opened.call, None, unmeasured=why)

    def _give_up(self, why: Unmeasured) -> None:
        self._unmeasured = self._unmeasured or why
        self._release_all()

    def _release_all(self) -> None:
        self._whole.drop()
        self.release()
        if self._decoder is not None:
            self._decoder.release()
