"""Uploads and events that stall use the budget: what this costs other streams, and what their own records contain."""

import json

import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle, Ending
from streamgauge.core.record import Record
from streamgauge.recorder.protocol import Message, RequestBody, ResponseRead
from streamgauge.recorder.recorder import Recorder
from streamgauge.spool.read_counters import Incident
from tests.taps import talk
from tests.taps.talk import EVENTS, SSE, ZERO, answer, arrivals, ended, head, opened, sent

KIB, MIB = 1024, 1024 * 1024
# An eighth of a recorder's budget: all sizes here are an eighth of the real ones.
HELD = 32 * MIB


class Rig:
    """A recorder, and an assembler that makes records of its output."""

    def __init__(self, capture: str = "masked") -> None:
        self.recorder = Recorder(talk.settings(capture), max_held_bytes=HELD)
        self._assembler, self._bundles = Assembler(), 0

    def tell(self, *messages: Message) -> None:
        for message in messages:
            self.recorder.handle(message)

    def records(self) -> list[Record]:
        """The records of the streams that have ended since the last call."""
        number, self._bundles = self._bundles, self._bundles + 1
        return self._assembler.apply(number, 0, Bundle(b"i" * 16, 0, number, 0, self.recorder.segments()))

    def stalled_uploads(self, count: int, size: int) -> None:
        """Streams from number 1,000 on whose requests never end."""
        for stream in range(1_000, 1_000 + count):
            self.tell(opened(stream=stream))
            self.tell(*[RequestBody(stream, b"a" * min(256 * KIB, size - at)) for at in range(0, size, 256 * KIB)])

    def ask(self, size: int) -> Record:
        """The record of an ordinary exchange with a request of about this many bytes."""
        body = json.dumps({"model": "gpt-x", "n": 1, "stream": True, "pad": "p" * size}).encode()
        pieces = [RequestBody(1, body[at : at + 64 * KIB]) for at in range(0, len(body), 64 * KIB)]
        self.tell(opened(), *pieces, sent(len(body)), *arrivals(head(SSE) + b"".join(EVENTS)), ended())
        (record,) = self.records()
        return record


@pytest.mark.parametrize(("count", "size"), [(16, 2 * MIB), (300, 128 * KIB), (5_000, 7 * KIB)])
@pytest.mark.parametrize("asked", [3_000, 100_000, 1_500_000])
def test_stalled_uploads_do_not_cost_others_their_request_facts(count: int, size: int, asked: int) -> None:
    rig = Rig()
    rig.stalled_uploads(count, size)
    record = rig.ask(asked)
    assert record.request is not None
    assert (record.request_model, record.request.n, record.request.stream) == ("gpt-x", 1, True)
    assert record.request_digest is not None
    assert record.integrity.reasons == []


def test_stalled_uploads_do_not_cost_others_their_long_events() -> None:
    rig = Rig("full")
    rig.stalled_uploads(16, 2 * MIB)
    event = EVENTS[1].replace(b"gr", b"g" + b"r" * 300_000)
    wire = head(SSE) + event + EVENTS[4]
    rig.tell(*answer(*[wire[at : at + 10_000] for at in range(0, len(wire), 10_000)]))
    (record,) = rig.records()
    assert record.counts.text_chars == 300_003
    assert (record.integrity.reasons, rig.recorder.incidents[Incident.EVENT_CAPPED]) == ([], 0)


def test_a_stalled_event_is_evicted_for_a_new_body_and_its_record_says_so() -> None:
    rig = Rig("full")
    for stream in range(2, 11):
        rig.tell(opened(stream=stream))
        rig.tell(ResponseRead(stream, ZERO, head(SSE) + EVENTS[1] + b"data: " + b"x" * (4 * MIB - KIB)))
    assert rig.records() == []
    assert rig.ask(100_000).integrity.reasons == []
    for stream in range(2, 11):
        rig.tell(*arrivals(b"\n\n" + EVENTS[4], stream=stream), ended(stream=stream))
    given_up = [record for record in rig.records() if record.integrity.reasons]
    assert {tuple(record.integrity.reasons) for record in given_up} == {("oversized_event",)}
    assert 1 <= len(given_up) <= 3
    assert rig.recorder.incidents[Incident.EVENT_CAPPED] == len(given_up)
    assert {record.counts.text_chars for record in given_up} == {4}, "everything before and after it is there"


def test_the_record_of_an_evicted_body_says_so_and_is_complete() -> None:
    rig = Rig()
    rig.stalled_uploads(16, 2 * MIB)
    assert rig.ask(3_000).integrity.reasons == []
    for stream in range(1_000, 1_016):
        rig.tell(sent(2 * MIB, stream=stream), *arrivals(head(SSE) + b"".join(EVENTS), stream=stream))
        rig.tell(ended(stream=stream))
    capped = [record for record in rig.records() if record.integrity.reasons]
    assert [(record.integrity.reasons, record.integrity.complete) for record in capped] == [(["request_capped"], True)]
    (record,) = capped
    assert (record.request_model, record.outcome, record.counts.events) == (None, "completed", 5)
    assert record.request is not None
    assert (record.request.n, record.request.stream, record.request.body_bytes) == (None, None, 2 * MIB)
    assert rig.recorder.incidents[Incident.BODY_CAPPED] == 1


def test_the_record_of_an_evicted_upload_that_never_ended_says_so() -> None:
    rig = Rig()
    rig.stalled_uploads(16, 2 * MIB)
    assert rig.ask(3_000).integrity.reasons == []
    for stream in range(1_000, 1_016):
        rig.tell(ended(Ending.CLIENT, stream=stream))
    found = [record.integrity.reasons for record in rig.records()]
    assert sorted(found) == [[]] * 15 + [["request_capped"]]
    assert rig.recorder.incidents[Incident.BODY_CAPPED] == 1


@pytest.mark.parametrize(
    ("target", "body_bytes", "reasons"),
    [
        ("/v1/chat/completions", 17_000_000, ["request_capped"]),
        ("/v1/chat/completions", 0, []),
        ("/elsewhere", 300, []),  # on a path that is not an LLM's no body is reported
    ],
)
def test_a_request_that_was_not_reported_whole(target: str, body_bytes: int, reasons: list[str]) -> None:
    rig = Rig()
    rig.tell(opened(target), sent(body_bytes, whole=False), *arrivals(head(SSE) + b"".join(EVENTS)), ended())
    (record,) = rig.records()
    assert (record.integrity.reasons, record.integrity.complete) == (reasons, True)
