"""What must hold for stories that were run: gives every fault as a sentence with the bytes."""

import asyncio
from typing import NamedTuple

from tests.taps.proxy.driving import Answer, Evidence, FinishedTalk, Received, Recorded, body_of
from tests.taps.proxy.readings import Read, Reading, by_aiohttp, by_h11, by_llhttp, difference, owed
from tests.taps.proxy.refusals import Refusal, why_refused
from tests.taps.proxy.stories import Story

# Codes of the relay's own responses for faults of an upstream that had the request, by what the upstream did.
_UPSTREAMS_FAULT = dict.fromkeys((b"upstream_unreachable", b"502"), (b"drop", b"earlyclose"))
# What ends the client's connection after a response, besides the response's own fields.
_ENDING_PLANS = (b"early", b"earlyclose")
# After these the upstream's connection is not reused: it announced the end, or sent more than its response.
_LAST_PLANS = (b"stray", b"close", b"eof", b"earlyclose", b"drop")
_REPEATABLE = (b"GET", b"HEAD", b"OPTIONS")


class Fault(NamedTuple):
    """`story`: the story with the fault; None if it is one of an upstream connection."""

    story: Story | None
    said: str


class Judge:
    """Judges one evidence. `faults`: what is wrong; `forwarded`, `refused`: requests that were handled correctly."""

    def __init__(self, evidence: Evidence) -> None:
        self.faults = [Fault(None, f"an error in the loop: {error}") for error in evidence.errors]
        self.forwarded = self.refused = 0
        self._upstreams = evidence.upstreams
        self._loop = asyncio.new_event_loop()
        self._by_target: dict[bytes, list[Received]] = {}
        self._by_serial: dict[int, Received] = {}
        self._repeatable: list[Read] = []
        self._begun: list[Read] = []  # requests that were refused before the upstream had any byte of them
        self._answered = {
            answer.serial for _, talks in evidence.finished for finished in talks for answer in finished.answers
        }
        try:
            for connection in evidence.connections:
                self._connection(connection)
            for story, finished in evidence.finished:
                _Talks(self, story, finished).judge()
        finally:
            self._loop.close()
        for received in self._by_serial.values():
            # A request without side effects is sent again if a reused connection ends without a response.
            if received.plan == b"drop" and received.read in self._repeatable:
                self._repeatable.remove(received.read)
                continue
            # The upstream may read the beginning of a refused request only after the client's next connection has begun.
            begun = next((read for read in self._begun if difference(received.read, read) is None), None)
            if begun is not None and not received.read.whole:
                self._begun.remove(begun)
                continue
            stories = [story for story, _ in evidence.finished if story.key in received.read.target]
            self._fault(stories[0] if stories else None, f"the upstream got what no client sent: {received}")

    def _fault(self, story: Story | None, said: str) -> None:
        self.faults.append(Fault(story, said))

    def _connection(self, connection: Recorded) -> None:
        """Three parsers read the same requests from the bytes, and nothing else; only the last request may be
        incomplete.
        """
        raw, received, fault = connection
        for one in received:
            self._by_target.setdefault(one.read.target, []).append(one)
            self._by_serial[one.serial] = one
        for one in received[:-1]:
            if one.plan in _LAST_PLANS or not one.read.whole:
                self._fault(None, f"the connection was used again after {one}: {raw!r}")
        if fault:
            self._fault(None, f"llhttp refuses what the upstream got: {raw!r}")
            return
        live = [one.read for one in received]
        for name, reading in (
            ("h11", by_h11(raw)),
            ("aiohttp", by_aiohttp(raw, self._loop)),
            ("llhttp", by_llhttp(raw)),
        ):
            reads = [read._replace(begins=0, ends=0) for read in reading.requests]
            wanted = "whole" if all(read.whole for read in reads) else "waits"
            if reads != live or reading.end != wanted:
                self._fault(None, f"{name} reads {reads} ({reading.end}), and the upstream {live}, in {raw!r}")


class _Talks:
    """One story's connections. Requests that were sent in vain, or without a response, are searched among those that the
    upstream got.
    """

    def __init__(self, judge: Judge, story: Story, finished: list[FinishedTalk]) -> None:
        self._judge = judge
        self._story = story
        self._finished = finished

    def _fault(self, at: int, said: str) -> None:
        finished = self._finished[at]
        self._judge._fault(
            self._story, f"connection {at}: {said}\n  answers: {finished.answers} closed: {finished.closed}"
        )

    def judge(self) -> None:
        for at, finished in enumerate(self._finished):
            self._talk(at, finished)

    def _talk(self, at: int, finished: FinishedTalk) -> None:
        reads, sent = finished.owed.requests, finished.talk.sent
        again = by_llhttp(sent)
        if finished.hangs:
            self._fault(at, "an answer that is owed does not come")
        if finished.rest and not finished.closed and finished.talk.end == "wait" and not finished.hangs:
            self._fault(at, f"bytes after the responses: {finished.rest!r}")
        for number, answer in enumerate(finished.answers):
            if answer.serial is None:
                self._refusal(at, number, answer)
                return
            if number >= len(reads):
                self._fault(at, f"answer {number} is to none of its requests")
                return
            read = reads[number]
            received = self._judge._by_serial.pop(answer.serial, None)
            if received is None:
                self._fault(at, f"answer {number} is another request's")
                return
            self._forwarded(at, sent, read, received)
            if number and closes(reads[number - 1]):
                self._fault(at, f"request {number} was sent on, and the one before it asked for the connection's end")
            if not received.read.whole and not received.plan.startswith(b"early"):
                self._fault(
                    at, f"answer {number} came before its request was whole, from an upstream that waits for that"
                )
            self._same_to_llhttp(at, number, again, read, received.read)
            wanted = b"" if read.method == b"HEAD" else body_of(answer.serial, received.plan)
            if answer.body != wanted:
                self._fault(at, f"the body of answer {number} is {answer.body!r} instead of {wanted!r}")
        self._unanswered(at, len(finished.answers))

    def _forwarded(self, at: int, sent: bytes, read: Read, received: Received) -> None:
        """Checks that the upstream got this request, or its beginning, as expected."""
        self._judge.forwarded += 1
        want = owed(read, self._judge._upstreams)
        against = [
            reason.why
            for reason in self._reasons(sent, read)
            if reason.always == "head" or (reason.always == "whole" and received.read.whole)
        ]
        if want is None or against:
            self._fault(at, f"what is to be refused was forwarded ({against}): {read}")
        elif (wrong := difference(received.read, want)) is not None:
            self._fault(at, f"of {read} the upstream got something else, {wrong}")

    def _same_to_llhttp(self, at: int, number: int, again: Reading, read: Read, got: Read) -> None:
        """Checks that llhttp finds the same in the client's bytes when it gets them in one piece."""
        if number < len(again.requests):
            theirs = again.requests[number]._replace(begins=read.begins, ends=read.ends)
            if again.end == "upgrade" and number == len(again.requests) - 1:
                return  # at an offer to upgrade it stops before the body
            if (theirs.method, theirs.target, theirs.fields) != (read.method, read.target, read.fields) or (
                got.whole and theirs != read
            ):
                self._fault(at, f"llhttp reads {theirs}, and h11 {read}")
        elif again.end != "upgrade":
            self._fault(at, f"h11 reads {read}, and llhttp nothing")

    def _reasons(self, sent: bytes, read: Read) -> list[Refusal]:
        return why_refused(sent[read.begins : read.ends], read)

    def _refusal(self, at: int, number: int, answer: Answer) -> None:
        """Checks the relay's own response: the last one, with a reason, and only the beginning of a body was forwarded."""
        finished, code = self._finished[at], answer.code or b""
        if not answer.closes or number != len(finished.answers) - 1:
            self._fault(at, f"something came behind the relay's answer {number}")
        read = finished.owed.requests[number] if number < len(finished.owed.requests) else None
        if code in _UPSTREAMS_FAULT:
            pending = self._pending(read)
            if pending is None or pending.plan not in _UPSTREAMS_FAULT[code]:
                self._fault(at, f"the upstream did nothing for which the relay might say {code!r} to request {number}")
            return
        self._judge.refused += 1
        # The story's next connection may have sent the same request again.
        pending = self._pending(read, until=self._finished[at + 1].began if at + 1 < len(self._finished) else None)
        if read is not None and read.whole and not self._reasons(finished.talk.sent, read):
            self._fault(at, f"refused with {code!r}, and h11 sees nothing wrong: {read}")
        if pending is None and (want := None if read is None else owed(read, self._judge._upstreams)) is not None:
            self._judge._begun.append(want)
        if pending is not None and (pending.read.whole or not pending.read.values(b"transfer-encoding")):
            self._fault(at, f"refused with {code!r}, and yet the upstream got {pending}")

    def _unanswered(self, at: int, number: int) -> None:
        """The first request without a response may be running; the connection has ended for a reason, or waits."""
        finished = self._finished[at]
        reads = finished.owed.requests
        read = reads[number] if number < len(reads) else None
        if finished.closed and finished.talk.end == "wait" and read is not None and read.whole:
            last, before = (finished.answers[-1], reads[number - 1]) if number else (None, None)
            if last is None or before is None:
                self._fault(at, "closed without an answer")
            elif not (last.closes or closes(before) or any(plan in before.target for plan in _ENDING_PLANS)):
                self._fault(at, f"closed after answer {number - 1} for no reason")
        # Responses in flight to a client that leaves are lost: more than one of its requests may have been forwarded.
        for under_way in reads[number:] if finished.talk.end != "wait" else reads[number : number + 1]:
            if (pending := self._pending(under_way)) is None:
                break
            self._forwarded(at, finished.talk.sent, under_way, pending)

    def _pending(self, read: Read | None, until: int | None = None) -> Received | None:
        """What the upstream got of a request without a response, up to its request `until`: no other request is matched
        with it.
        """
        want = None if read is None else owed(read, self._judge._upstreams)
        if want is None:
            return None
        judge = self._judge
        mine = [
            one
            for one in judge._by_target.get(want.target, [])
            if one.serial in judge._by_serial and one.serial not in judge._answered
            if (until is None or one.serial <= until) and difference(one.read, want) is None
        ]
        if not mine:
            return None
        del judge._by_serial[mine[0].serial]
        if mine[0].plan == b"drop" and want.method in _REPEATABLE and not want.body:
            judge._repeatable.append(mine[0].read)
        return mine[0]


def closes(read: Read) -> bool:
    """Whether the client wanted its connection closed after the response. In HTTP/1.0 llhttp prefers keep-alive."""
    return b"keep-alive" not in read.options if read.version == b"1.0" else b"close" in read.options
