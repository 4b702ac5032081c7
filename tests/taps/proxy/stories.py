"""Stories of clients: mutated and pipelined requests over kept-alive connections, the same ones for the same seed.

All requests of a story have its key in their targets, and what the upstream must do with them (`PLANS`).
"""

import random
import re
from itertools import pairwise
from typing import Literal, NamedTuple

from tests.taps.proxy.raw_requests import CASES
from tests.taps.proxy.refusals import MAX_BODY
from tests.taps.proxy.troubles import (
    BODIES,
    CHUNKS,
    CODINGS,
    INNER,
    KEY,
    LENGTHS,
    ODD,
    PIECES,
    PLANS,
    USUAL,
    VALID_CHUNKS,
)

# What a client does: sends bytes, lets the loop turn a few times, waits for the responses that it expects so far, or
# briefly for something more (an early response, a 100).
Step = bytes | int | Literal["answers", "more"]


class Talk(NamedTuple):
    """One connection. `end`: the client waits for all responses, or leaves with a FIN or a reset."""

    steps: list[Step]
    end: Literal["wait", "fin", "reset"] = "wait"

    @property
    def sent(self) -> bytes:
        return b"".join(step for step in self.steps if isinstance(step, bytes))


class Story(NamedTuple):
    """One client's connections, one after another. `requests`: how many it was meant to send."""

    key: bytes
    kind: str
    talks: list[Talk]
    requests: int


# Cases of raw_requests.py whose target can contain a key.
RAW = [case.sent for case in CASES if b"/u0/x" in case.sent and b"/u0/inner" not in case.sent]
_LENGTH = re.compile(rb"(?i)(content-length:[ \t]*)([0-9]+)")
_END = b"\r\n\r\n"
_LINE_END = re.compile(rb"\r\n(?:\r\n)?")


class Writer:
    """Writes the stories of one batch."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._pick = self._random.choice
        self._key = KEY

    def _often(self, of_a_hundred: float) -> bool:
        return self._random.random() * 100 < of_a_hundred

    def story(self) -> Story:
        """The next story."""
        self._key = key = b"k%010x" % self._random.getrandbits(40)
        kind = self._pick(
            ("pipelined", "pipelined", "pipelined", "learnt", "learnt", "learnt", "early", "expect", "truncated", "raw")
        )
        talks, requests = getattr(self, "_" + kind)()
        keyed = [
            Talk([step.replace(KEY, key) if isinstance(step, bytes) else step for step in talk.steps], talk.end)
            for talk in talks
        ]
        return Story(key, kind, keyed, requests)

    # One request.

    def request(self, *, plan: bytes | None = None, odd: int | None = None) -> bytes:
        """A request with `odd` irregular parts."""
        count = self._pick((0, 1, 1, 1, 2)) if odd is None else odd
        unusual = {self._pick(("framing", "framing", "framing", *USUAL)) for _ in range(count)}
        parts = {part: self._pick((ODD if part in unusual else USUAL)[part]) for part in USUAL}
        target = b"%b/%b/%b%b" % (parts["route"], KEY, plan or self._pick(PLANS), parts["tail"])
        line = b"".join(parts[part] for part in ("before", "method", "blank")) + target
        line += parts["blank 2"] + parts["version"] + parts["line end"]
        fields = [parts["host"], parts["field"] if self._often(70) or "field" in unusual else b""]
        fields += [self._pick(USUAL["field"]) for _ in range(self._pick((0, 0, 1, 3)))]
        framing, body = self._framing("framing" in unusual)
        fields.append(framing)
        self._random.shuffle(fields)
        wire = line + b"".join(fields) + b"\r\n" + body
        return self.damaged(wire) if odd is None and self._often(12) else wire

    def _framing(self, odd: bool) -> tuple[bytes, bytes]:
        body = self._pick(BODIES)
        if self._often(0.4):
            body = b"z" * self._pick((5_000, MAX_BODY, MAX_BODY + 1, MAX_BODY + 1))
        which = self._random.random()
        if not odd:
            if which < 0.35:
                return b"", b""
            if which < 0.75:
                return b"Content-Length: %d\r\n" % len(body), body
            return b"Transfer-Encoding: chunked\r\n", self._chunked(body)
        if which < 0.5:
            field = self._pick(LENGTHS)
            number = len(body) if self._often(80) else self._random.randint(0, 9)
            filled = field.replace(b"%d", b"%d" % number).replace(b"%x", b"%x" % number) + b"\r\n"
            return filled, body if self._often(80) else self._pick((b"", self._chunked(body)))
        if which < 0.7:
            return b"Transfer-Encoding: %b\r\n" % self._pick(CODINGS), self._chunked(body) if self._often(80) else body
        if which < 0.9:
            return b"Transfer-Encoding: chunked\r\n", self._pick(CHUNKS)
        # No length, or another one than the body's.
        return self._pick((b"", b"Content-Length: %d\r\n" % max(0, len(body) + self._pick((-2, -1, 1, 2))))), body

    def _chunked(self, body: bytes) -> bytes:
        if self._often(20):
            return self._pick(CHUNKS[:VALID_CHUNKS])
        cut = self._random.randint(0, len(body))
        return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (body[:cut], body[cut:]) if one) + b"0\r\n\r\n"

    def damaged(self, wire: bytes) -> bytes:
        """With a few bytes changed, inserted or removed."""
        for _ in range(self._pick((1, 1, 2))):
            start = self._random.randint(0, len(wire))
            wire = wire[:start] + self._pick(PIECES) + wire[start + self._random.randint(0, 3) :]
        return wire

    def altered(self, wire: bytes) -> bytes:
        """An earlier request with another length, with digits moved between its length and its body, or damaged."""
        head, _, body = wire.partition(_END)
        found = _LENGTH.search(head)
        which = self._random.random()
        if found is None:
            if which < 0.3:
                return head + b"\r\n" + self._pick(LENGTHS).replace(b"%d", b"2").replace(b"%x", b"2") + _END + body
            if which < 0.5:
                return wire + self._pick(BODIES)
            return self.damaged(wire)
        before, digits, behind = head[: found.start(2)], found[2], head[found.end(2) :]
        if which < 0.2:  # no digits, and the body or none
            return before + behind + _END + self._pick((b"", b"", body, digits + body))
        if which < 0.35:  # the number's last digits begin the body, or the body's first ones end the number
            moved = self._random.randint(1, len(digits))
            if self._often(50):
                return before + digits[:-moved] + behind + _END + digits[-moved:] + body
            leading = re.match(rb"[0-9]{0,2}", body)
            assert leading is not None
            return before + digits + leading[0] + behind + _END + body[leading.end() :]
        if which < 0.6:
            size = self._pick((0, 1, 2, 3, 10, 11, 12, len(body) + 1, max(0, len(body) - 1), 100))
            content = b"x" * size if self._often(70) else body
            return before + b"%d" % size + behind + _END + content
        if which < 0.85:
            field = self._pick(LENGTHS).replace(b"%d", digits).replace(b"%x", digits)
            return head[: found.start(1)] + field + behind + _END + self._pick((body, body, b""))
        if which < 0.9:
            method = self._pick((b"GET", b"HEAD", b"POST"))
            return method + b" " + wire.partition(b" ")[2]
        return self.damaged(wire)

    # Connections.

    def _sent(self, wires: list[bytes], *, cuts: int = 40, waits: int = 30) -> list[Step]:
        """Pipelined or one after another, whole or cut."""
        steps: list[Step] = []
        for wire in [wire.replace(KEY, self._key) for wire in wires]:
            steps += self._cut(wire) if self._often(cuts) else [wire]
            if self._often(waits):
                steps.append("answers")
        if self._often(50):
            steps = self._joined(steps)
        return steps

    def _cut(self, wire: bytes) -> list[Step]:
        """In pieces with pauses between them; half of the cuts are at a line end, or within it."""
        ends = [found.end() for found in _LINE_END.finditer(wire)]
        places = {self._random.randint(0, len(wire)) for _ in range(self._pick((1, 1, 2, 4)))}
        if ends and self._often(50):
            places.add(max(0, self._pick(ends) - self._pick((0, 1, 2, 3))))
        steps: list[Step] = []
        for start, end in pairwise((0, *sorted(places), len(wire))):
            if start < end:
                steps += [self._pick((1, 2, 2, 4))] if steps else []
                steps.append(wire[start:end])
        return steps

    def _joined(self, steps: list[Step]) -> list[Step]:
        """Bytes without a pause between them are sent together."""
        joined: list[Step] = []
        for step in steps:
            if isinstance(step, bytes) and joined and isinstance(joined[-1], bytes):
                joined[-1] += step
            else:
                joined.append(step)
        return joined

    def _pipelined(self) -> tuple[list[Talk], int]:
        """Up to eight requests on a connection; most are ordinary."""
        talks, requests = [], 0
        for _ in range(self._pick((1, 2, 2))):
            count = self._pick((1, 1, 2, 3, 5, 8))
            changed = self._pick((count - 1, self._random.randrange(count))) if self._often(85) else -1
            wires = [self.request(odd=None if at == changed else 0) for at in range(count)]
            talks.append(Talk(self._sent(wires), self._pick(("wait",) * 8 + ("fin", "reset"))))
            requests += count
        return talks, requests

    def _learnt(self) -> tuple[list[Talk], int]:
        """The same head several times, then altered; mostly each request in one piece."""
        plan = self._pick((b"ok", b"early", b"early", b"chunked", b"late"))
        wire = self.request(plan=plan, odd=0)
        same = [self._resized(wire) for _ in range(self._pick((2, 2, 3, 4)))]
        altered = [self.altered(self._pick(same)) for _ in range(self._pick((1, 2, 3)))]
        if self._often(30):
            altered.insert(self._random.randint(0, len(altered)), self.request(odd=0))
        wires = [*same, *altered, *([self._pick(same)] if self._often(50) else [])]
        splits = sorted(self._random.randint(0, len(wires)) for _ in range(self._pick((0, 1, 2, 3))))
        talks = []
        for start, end in zip((0, *splits), (*splits, len(wires)), strict=True):
            if start < end:
                talks.append(Talk(self._sent(wires[start:end], cuts=12, waits=75)))
        return talks, len(wires)

    def _resized(self, wire: bytes) -> bytes:
        """The same head with another body."""
        head = wire.partition(_END)[0]
        found = _LENGTH.search(head)
        if found is None or self._often(30):
            return wire
        other = self._pick(BODIES)
        return head[: found.start(2)] + b"%d" % len(other) + head[found.end(2) :] + _END + other

    def _raw(self) -> tuple[list[Talk], int]:
        """A case of raw_requests.py, several times, then altered."""
        wire = self._pick(RAW).replace(b"/u0/x", b"/u0/%b/%b" % (KEY, self._pick(PLANS)))
        wires = [wire] * self._pick((1, 2, 3))
        wires += [self.altered(wire) if self._often(60) else self.damaged(wire) for _ in range(self._pick((0, 1, 2)))]
        wires.insert(self._random.randint(0, len(wires)), self.request(odd=0))
        apart = self._often(60)
        talks = [Talk(self._sent(some, cuts=25)) for some in ([[wire] for wire in wires] if apart else [wires])]
        return talks, len(wires)

    def _early(self) -> tuple[list[Talk], int]:
        """The upstream answers before the body, of which nothing, a part or all comes, and requests behind it."""
        body = self._pick((b"hello" * 10, INNER, INNER * 4, b"0\r\n\r\n" + INNER))
        head = b"POST /u0/%b/early HTTP/1.1\r\nHost: c\r\n" % KEY
        head += self._pick((b"", b"Expect: 100-continue\r\n", b"X-A: b\r\n"))
        if self._often(50):
            head += b"Content-Length: %d\r\n\r\n" % len(body)
        else:
            head, body = head + b"Transfer-Encoding: chunked\r\n\r\n", self._chunked(body)
        sent = body[: self._pick((0, 0, len(body) // 2, len(body) - 1, len(body)))]
        steps: list[Step] = [head + sent] if self._often(40) else [head, "more", *([sent] if sent else [])]
        pauses: tuple[list[Step], ...] = ([], ["more"], [2])
        steps += self._pick(pauses)
        behind = [self.request(odd=0) for _ in range(self._pick((0, 1, 2)))]
        first = Talk([*steps, *self._sent(behind)], self._pick(("wait", "wait", "fin", "reset")))
        next_ = [self.request(odd=0) for _ in range(self._pick((1, 2)))]
        return [first, Talk(self._sent(next_))], 1 + len(behind) + len(next_)

    def _expect(self) -> tuple[list[Talk], int]:
        """Expect: 100-continue, and a body that comes when it is asked for, or before."""
        body = self._pick(BODIES[1:])
        plan = self._pick((b"ok", b"early", b"early", b"chunked", b"hints", b"close"))
        head = b"POST /u1/%b/%b HTTP/1.1\r\nHost: c\r\nExpect: 100-continue\r\n" % (KEY, plan)
        if self._often(60):
            wire = head + b"Content-Length: %d\r\n\r\n" % len(body)
        else:
            wire, body = head + b"Transfer-Encoding: chunked\r\n\r\n", self._chunked(body)
        steps: list[Step] = []
        for _ in range(count := self._pick((1, 2, 3))):
            steps += [wire, *self._pick((["more"], ["more"], [1], [])), body]
            if self._often(60):
                steps.append("answers")
        return [Talk(self._joined(steps)), Talk(self._sent([self.request(odd=0)]))], count + 1

    def _truncated(self) -> tuple[list[Talk], int]:
        """Requests that end in the middle, and the client's connection with them."""
        wires = [self.request(odd=0) for _ in range(self._pick((1, 2, 3)))]
        last = self.request(odd=None)
        wires.append(last[: self._random.randint(1, len(last))])
        next_ = [self.request(odd=0) for _ in range(self._pick((1, 2)))]
        first = Talk(self._sent(wires), self._pick(("wait", "fin", "fin", "reset")))
        return [first, Talk(self._sent(next_))], len(wires) + len(next_)
