"""Mutated and pipelined requests through a real relay, with three parsers as oracles for what it sends to the upstream.

The upstream gets exactly the requests that the clients sent, as read by llhttp, h11 and aiohttp; a refused request is
not sent, nor anything after it; and each response goes to the client that sent the request. For more of them:
`scripts/fuzz requests`.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.taps.proxy.driving import Evidence, FinishedTalk, Received, Recorded
from tests.taps.proxy.fuzz_requests import drive, fuzz, main, shown, write
from tests.taps.proxy.judging import Judge
from tests.taps.proxy.readings import by_h11, by_llhttp
from tests.taps.proxy.refusals import REFUSALS, why_refused
from tests.taps.proxy.stories import Step, Story, Talk
from tests.taps.proxy.troubles import INNER, PLANS

pytestmark = pytest.mark.slow

# 20,000 requests, in CI the same ones each time: the second 10,000 reach 0.4 % more branches of the relay.
PARTS, REQUESTS = 10, 2_000
SEED = "0" if os.environ.get("CI") else str(time.time_ns())
BATCHES = 100  # the longest time that one part may take


@pytest.mark.parametrize("part", range(PARTS))
def test_the_upstream_gets_what_the_clients_sent(part: int, tmp_path: Path) -> None:
    requests = forwarded = refused = 0
    for batch in range(part * BATCHES, (part + 1) * BATCHES):
        found = fuzz(SEED, batch, tmp_path)
        assert not found.faults, shown(found.faults, SEED, batch)
        requests, forwarded, refused = requests + found.requests, forwarded + found.forwarded, refused + found.refused
        if requests >= REQUESTS:
            break
    assert requests >= REQUESTS
    assert forwarded > requests * 0.4 and refused > requests * 0.1


def test_stories_are_the_same_for_the_same_seed() -> None:
    assert write("a", 1) == write("a", 1)
    assert len({story.key for seed in "ab" for batch in (0, 1) for story in write(seed, batch)}) == 4 * len(
        write("a", 1)
    )


def test_the_stories_contain_every_kind_of_irregularity() -> None:
    met: Counter[str] = Counter()
    for batch in range(20):
        for story in write("0", batch):
            met[story.kind] += 1
            for talk in story.talks:
                reading = by_h11(talk.sent, tolerant=True)
                met[reading.end] += 1
                met[talk.end] += 1
                for read in reading.requests:
                    met.update(one.why for one in why_refused(talk.sent[read.begins : read.ends], read))
                met.update(plan.decode() for plan in PLANS if b"/" + plan in talk.sent)
    kinds = {
        "pipelined",
        "learnt",
        "raw",
        "early",
        "expect",
        "truncated",
        "whole",
        "waits",
        "refused",
        "wait",
        "fin",
        "reset",
    }
    assert met.keys() == kinds | {one.why for one in REFUSALS} | {plan.decode() for plan in PLANS}


@pytest.mark.parametrize("pump", [True, False], ids=["pump", "no pump"])
def test_each_reason_to_refuse_is_needed(tmp_path: Path, pump: bool) -> None:
    """h11 accepts the example; the reason applies to it; and the relay refuses it."""
    for refusal in REFUSALS:
        [read] = by_h11(refusal.example).requests
        assert read.whole and refusal.applies(refusal.example, read), refusal.why
    stories = [Story(b"", one.why, [Talk([one.example])], 1) for one in REFUSALS]
    evidence = drive(stories, tmp_path, pump=pump)
    judge = Judge(evidence)
    assert not judge.faults and (judge.forwarded, judge.refused) == (0, len(REFUSALS))
    assert evidence.connections == [] or not any(one.read.whole for got in evidence.connections for one in got.received)


# --- what was found before ------------------------------------------------------------------------------------------

LATE = b"POST /u0/k0000000001/late HTTP/1.1\r\nHost: c\r\nContent-Length:%b\r\n\r\n"
NEXT = b"GET /u0/k0000000001/ok HTTP/1.1\r\nHost: c\r\n\r\n"
EARLY = LATE.replace(b"/late", b"/early")
CHUNKED = b"POST /u0/k0000000001/late HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"
THRICE: list[Step] = [EARLY % b" 97" + b"x" * 97, "answers"] * 3
FOUND: dict[str, list[Step]] = {
    # A relay compared heads without the digits of their length, and sent the earlier length and no body.
    "a length without digits": [*THRICE, EARLY % b" ", "answers"],
    "no length after a length": [*THRICE, EARLY.replace(b"Content-Length:%b\r\n", b""), "answers"],
    # A relay looked for the end of such a body at the end of the next request, and sent both at once.
    "blanks behind a length": [LATE % b"\t5\t " + b"hello" + NEXT],
    "a blank behind a length": [LATE % b"5 " + b"hello" + NEXT],
    # A relay had read the head after the end of a chunked body, and never read the body that belongs to that head.
    "a head behind chunks, and its body later": [CHUNKED, 4, CHUNKS + CHUNKED, 4, CHUNKS],
    "a head behind chunks, and its body behind an answer": [CHUNKED, 4, CHUNKS + CHUNKED, "answers", 4, CHUNKS],
}


@pytest.mark.parametrize("pump", [True, False], ids=["pump", "no pump"])
@pytest.mark.parametrize("steps", FOUND.values(), ids=FOUND)
def test_earlier_bugs_stay_fixed(steps: list[Step], pump: bool, tmp_path: Path) -> None:
    stories = [Story(b"k0000000001", "found", [Talk(steps), Talk([NEXT])], 1)]
    judge = Judge(drive(stories, tmp_path, pump=pump))
    assert not judge.faults and judge.forwarded >= 3


# --- what a judge must see ------------------------------------------------------------------------------------------


def post(key: bytes, body: bytes, *fields: bytes) -> bytes:
    head = (b"POST /u0/%b/ok HTTP/1.1" % key, b"Host: c", *fields, b"Content-Length: %d" % len(body), b"", b"")
    return b"\r\n".join(head) + body


def story(key: bytes, *steps: Step) -> Story:
    return Story(key, "plain", [Talk(list(steps))], 2)


ONE, OTHER = b"k0000000001", b"k0000000002"
STORIES = [
    story(ONE, post(ONE, b"one"), "answers", post(ONE, INNER, b"X-A: b")),
    story(OTHER, post(OTHER, b"other") + post(OTHER, b"", b"X-C: d")),
]


def again(connection: Recorded, raw: bytes) -> Recorded:
    """The connection as it would have been with these bytes."""
    reading = by_llhttp(raw)
    before = connection.received + [Received(1000 + at, b"ok", read) for at, read in enumerate(reading.requests)]
    received = [old._replace(read=read) for old, read in zip(before, reading.requests, strict=False)]
    return Recorded(raw, received, reading.end == "refused")


def altered(old: bytes, new: bytes) -> Callable[[Evidence], None]:
    """The upstream got other bytes on one of its connections."""

    def alter(evidence: Evidence) -> None:
        at = next(at for at, one in enumerate(evidence.connections) if old in one.raw)
        evidence.connections[at] = again(evidence.connections[at], evidence.connections[at].raw.replace(old, new, 1))

    return alter


def appended(more: bytes) -> Callable[[Evidence], None]:
    def append(evidence: Evidence) -> None:
        evidence.connections[0] = again(evidence.connections[0], evidence.connections[0].raw + more)

    return append


def finished_talks_of(evidence: Evidence, key: bytes) -> tuple[list[FinishedTalk], FinishedTalk]:
    talks = next(talks for story, talks in evidence.finished if story.key == key)
    return talks, talks[0]


def stray(evidence: Evidence) -> None:
    """The upstream sent more than its response, and its connection was reused."""
    at, one = next((at, one) for at, one in enumerate(evidence.connections) if len(one.received) > 1)
    received = [one.received[0]._replace(plan=b"stray"), *one.received[1:]]
    evidence.connections[at] = one._replace(received=received)


def swap_answers(evidence: Evidence) -> None:
    """Each of two clients got the response of the other."""
    (talks, finished), (others, other) = finished_talks_of(evidence, ONE), finished_talks_of(evidence, OTHER)
    talks[0] = finished._replace(answers=[other.answers[0], *finished.answers[1:]])
    others[0] = other._replace(answers=[finished.answers[0], *other.answers[1:]])


def swap_own_answers(evidence: Evidence) -> None:
    talks, finished = finished_talks_of(evidence, ONE)
    talks[0] = finished._replace(answers=finished.answers[::-1])


def change_answers(**changes: object) -> Callable[[Evidence], None]:
    def change(evidence: Evidence) -> None:
        talks, finished = finished_talks_of(evidence, ONE)
        answers = [finished.answers[0]._replace(**changes), *finished.answers[1:]]  # type: ignore[arg-type]
        talks[0] = finished._replace(answers=answers)

    return change


def change_talk(**changes: object) -> Callable[[Evidence], None]:
    def change(evidence: Evidence) -> None:
        talks, finished = finished_talks_of(evidence, ONE)
        talks[0] = finished._replace(**changes)  # type: ignore[arg-type]

    return change


def send(*steps: Step) -> Callable[[Evidence], None]:
    """The client sent something else than the upstream got."""

    def change(evidence: Evidence) -> None:
        talks, finished = finished_talks_of(evidence, ONE)
        talk = Talk(list(steps))
        talks[0] = finished._replace(talk=talk, owed=by_h11(talk.sent, tolerant=True))

    return change


def tell_error(evidence: Evidence) -> None:
    evidence.errors.append({"message": "an uncaught exception"})


SECOND = post(ONE, INNER, b"X-A: b")
TAMPERED: dict[str, Callable[[Evidence], None]] = {
    "a byte of a body is another": altered(b"\r\n\r\none", b"\r\n\r\nonE"),
    "a length is one too small": altered(b"Content-Length: 3\r\n\r\none", b"Content-Length: 2\r\n\r\none"),
    "a length is one too large": altered(b"Content-Length: 3\r\n\r\none", b"Content-Length: 4\r\n\r\none"),
    "a body is missing": altered(b"Content-Length: 3\r\n\r\none", b"Content-Length: 3\r\n\r\n"),
    "a field is missing": altered(b"X-A: b\r\n", b""),
    "a field is one too many": altered(b"X-A: b\r\n", b"X-A: b\r\nX-E: f\r\n"),
    "a field is another": altered(b"X-A: b\r\n", b"X-A: c\r\n"),
    "fields are in another order": altered(b"X-C: d\r\nContent-Length: 0\r\n", b"Content-Length: 0\r\nX-C: d\r\n"),
    "a target is another": altered(b"/base/k0000000001/ok", b"/base/k0000000001/OK"),
    "the base path is missing": altered(b"/base/k0000000001/ok", b"/k0000000001/ok"),
    "a method is another": altered(b"POST", b"PUT"),
    "a version is another": altered(b"HTTP/1.1", b"HTTP/1.0"),
    "Host is the client's": altered(b"Host: 127.0.0.1:", b"Host: 127.0.0.2:"),
    "a line ends with LF, which llhttp refuses": altered(b"X-A: b\r\n", b"X-A: b\n"),
    "two lengths that llhttp refuses": altered(b"Content-Length: 3\r\n", b"Content-Length: 3\r\nContent-Length: 3\r\n"),
    "a request that no client sent": appended(INNER.replace(b"/u0", b"/base")),
    "half a head that no client sent": appended(b"GET /base/ HTTP/1.1\r\nHost: c\r\n"),
    "a byte too many": appended(b"x"),
    "a line too many": appended(b"\r\n\r\n"),
    "half a request that no client sent": appended(b"PUT /base/ HTTP/1.1\r\nHost: c\r\nContent-Length: 5\r\n\r\n"),
    "a connection is used again after too many bytes": stray,
    "two clients' answers are exchanged": swap_answers,
    "a client's answers are in another order": swap_own_answers,
    "an answer to none": change_answers(serial=999_999_999),
    "an answer's body is another": change_answers(body=b"answer to another"),
    "an answer of the relay's to a request that is right": change_answers(serial=None, code=b"malformed_request"),
    "an answer of the relay's of an upstream that did nothing": change_answers(
        serial=None, code=b"upstream_unreachable"
    ),
    "no answer": change_talk(hangs=True),
    "no answer, and the connection closed": change_talk(answers=[], closed=True),
    "bytes after the responses": change_talk(rest=b"HTTP/1.1 200 OK\r\n"),
    "what has two lengths was sent on": send(post(ONE, b"one", b"Content-Length: 3"), SECOND),
    "what has no digits was sent on": send(post(ONE, b"one").replace(b"Length: 3", b"Length: "), SECOND),
    "what was half was sent on whole": send(post(ONE, b"one")[:-1]),
    "what came behind a refused request was sent on": send(b"GET /u0/x\r\n\r\n", post(ONE, b"one"), SECOND),
    "a path that climbs was sent on": send(post(ONE, b"one").replace(b"/u0/", b"/u0/../"), SECOND),
    "an error in the loop": tell_error,
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_the_judge_finds_each_fault(tamper: Callable[[Evidence], None], tmp_path: Path) -> None:
    evidence = drive(STORIES, tmp_path, pump=True)
    judge = Judge(evidence)
    assert not judge.faults and judge.forwarded == 4
    tamper(evidence)
    assert Judge(evidence).faults


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_prints_how_much_it_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--requests", "1", "--seed", "0"]) == 0
    assert " forwarded, " in capsys.readouterr().out
