"""The responses of a WebSocket: lanes, steering, warm-ups, errors, closes, and what cannot be known."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given

from streamgauge.core.capture.segments import Ending, TransportFault
from streamgauge.core.formats.json_text import parse
from streamgauge.recorder import websocket_session
from streamgauge.recorder.protocol import WebSocketData, WebSocketOpened
from streamgauge.recorder.recorder import Recorder
from streamgauge.spool.read_counters import DropReason, Incident
from streamgauge.spool.response_counters import NotCaptured
from tests.core.cuts import at, places
from tests.core.formats.websocket_frames import CONTINUATION, MASK, PING, frame, from_server
from tests.recorder.websockets import MS, WALL, Script, create, recorder_of, records
from tests.vectors.compare import SIZES, alike, same, without_times
from tests.vectors.drive import T0, Live, live, settings, wire
from tests.vectors.framings import events_of
from tests.vectors.load import Vector, vectors
from tests.websockets import USAGE, events


def outcomes(found: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(record["outcome"], record["response_id"]) for record in found]


def test_a_response_counts_from_its_request() -> None:
    script = Script(("authorization", "Bearer sk-1")).server({"type": "session.hello"})
    script.client(create(max_output_tokens=30, service_tier="flex")).server(*events(1, "Seine", " Rhine"))
    (record,) = records(script.ends(Ending.CLIENT))
    assert record["outcome"] == "completed"
    assert (record["dialect"], record["endpoint"], record["status_code"]) == ("openai-responses", "/responses", 101)
    assert (record["request_model"], record["request"]["max_tokens"]) == ("gpt-5.6", 30)
    assert record["request"]["body_bytes"] == len(json.dumps(create(max_output_tokens=30, service_tier="flex")))
    assert record["started_at"] == "2026-09-21T14:13:20.020000Z" and WALL == 1_790_000_000 * 10**9
    timing = record["timing"]
    assert (timing["request_sent_s"], timing["headers_s"], timing["upstream_connect_s"]) == (0.0, None, None)
    assert (timing["first_byte_s"], timing["first_token_s"], timing["last_token_s"]) == (0.01, 0.04, 0.05)
    assert (timing["end_s"], timing["gaps"]["count"]) == (0.07, 1)
    assert (record["counts"]["reads"], record["counts"]["events"]) == (7, 7)
    assert record["usage"]["output_tokens"] == USAGE["output_tokens"]
    assert (record["provider_request_id"], record["provider_organization"]) == ("req_9", "org-1")
    assert record["integrity"]["complete"]


def test_a_request_in_several_frames_and_reads_counts_from_its_last_byte() -> None:
    text = json.dumps(create()).encode()
    script = Script().raw(frame(text[:20], final=False, mask=MASK), from_client=True)
    last = frame(text[20:], CONTINUATION, mask=MASK)
    script.raw(frame(b"", PING, mask=MASK) + last[:10], from_client=True).raw(last[10:], from_client=True)
    sent_ms = script.now_ms
    (record,) = records(script.server(*events(1)).ends(Ending.CLIENT))
    assert record["timing"]["first_byte_s"] == 0.01
    assert record["started_at"] == f"2026-09-21T14:13:20.{sent_ms:03}000Z"
    assert record["request"]["body_bytes"] == len(text)


def test_lanes_run_side_by_side_and_first_in_first_out_within_one() -> None:
    script = Script().client(create("a"), create("b"), create("a", model="second"))
    streams = [events(1, "x", "y", lane="a"), events(2, "z", lane="b"), events(3, lane="a")]
    turns = [event for pair in zip(streams[0], [*streams[1], *[None] * 9], strict=False) for event in pair if event]
    script.server(*turns, *streams[2])
    found = records(script.ends(Ending.CLIENT))
    assert outcomes(found) == [("completed", "resp_1"), ("completed", "resp_2"), ("completed", "resp_3")]
    assert [record["request_model"] for record in found] == ["gpt-5.6", "gpt-5.6", "second"]
    assert [record["counts"]["token_events"] for record in found] == [2, 1, 3]


def test_several_frames_of_several_responses_in_one_read() -> None:
    """Each response has one read of it, and the reads are in balance (`records` asserts it)."""
    frames = [
        json.dumps(event).encode()
        for pair in zip(events(1, lane="a"), events(2, lane="b"), strict=True)
        for event in pair
    ]
    script = Script().client(create("a"), create("b")).raw(from_server(*frames), from_client=False)
    found = records(script.ends(Ending.CLIENT))
    assert outcomes(found) == [("completed", "resp_1"), ("completed", "resp_2")]
    assert [(record["counts"]["reads"], record["counts"]["events"]) for record in found] == [(1, 8), (1, 8)]


def test_a_steered_response_and_its_successor_have_a_record_each() -> None:
    script = Script().client(create()).server(*events(1)[:5])
    script.client({"type": "response.steer", "previous_response_id": "resp_1", "input": "Only in France."})
    asked_ms = script.now_ms
    ended = events(1, ends="incomplete", incomplete_details={"reason": "steered"})[-1]
    script.server({"type": "response.steer.accepted", "previous_response_id": "resp_1"}, ended)
    successor = events(2, previous_response_id="resp_1")
    script.server(*successor)
    first_token_ms = script.now_ms - 10 * (len(successor) - 1) + 30
    found = records(script.ends(Ending.CLIENT))
    assert outcomes(found) == [("completed", "resp_1"), ("completed", "resp_2")]
    assert [record["finish_reason_raw"] for record in found] == ["steered", "completed"]
    assert found[1]["timing"]["first_token_s"] == pytest.approx((first_token_ms - asked_ms) / 1000)
    assert found[1]["timing"]["request_sent_s"] is None
    assert found[1]["request_model"] is None


@pytest.mark.parametrize("kind", ["response.steer.failed", "response.steer.pending"])
def test_a_response_that_was_asked_for_is_no_successor(kind: str) -> None:
    """Steering that failed, or that waits for the client's next request, has no successor of its own."""
    script = Script().client(create()).server(*events(1)[:4])
    script.client({"type": "response.steer", "previous_response_id": "resp_1", "input": "x"})
    script.server(*events(1)[4:], {"type": kind, "previous_response_id": "resp_1"})
    script.client(create(previous_response_id="resp_1", model="named"))
    found = records(script.server(*events(2, previous_response_id="resp_1")).ends(Ending.CLIENT))
    assert outcomes(found) == [("completed", "resp_1"), ("completed", "resp_2")]
    assert found[1]["request_model"] == "named"
    assert found[1]["timing"]["first_byte_s"] == 0.01


def test_a_successor_comes_before_the_next_request_of_its_lane() -> None:
    script = Script().client(create()).server(*events(1)[:4])
    script.client({"type": "response.steer", "previous_response_id": "resp_1", "input": "x"}, create(model="third"))
    script.server(*events(1)[4:], *events(2, previous_response_id="resp_1"), *events(3))
    found = records(script.ends(Ending.CLIENT))
    by_id = {record["response_id"]: record["request_model"] for record in found}
    assert by_id == {"resp_1": "gpt-5.6", "resp_2": None, "resp_3": "third"}


def test_a_successor_without_a_known_request_counts_from_its_first_event() -> None:
    (record,) = records(Script().server(*events(5)).ends(Ending.CLIENT))
    assert (record["outcome"], record["request_model"], record["request"]) == ("completed", None, None)
    assert (record["timing"]["first_byte_s"], record["timing"]["first_token_s"]) == (0.0, 0.03)


def test_a_warm_up_has_no_record() -> None:
    warm = [events(1)[0], events(1)[-1]]
    script = Script().client(create(generate=False), create()).server(*warm, *events(2))
    recorder, _ = recorder_of(script.messages)
    assert dict(recorder.made) == {"test": 1}
    assert outcomes(records(script.ends(Ending.CLIENT))) == [("completed", "resp_2")]


ERROR = {
    "type": "error",
    "status": 429,
    "error": {"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "no"},
}


def test_an_error_before_a_response_is_its_outcome() -> None:
    script = Script().client(create()).server(ERROR).client(create()).server(*events(2))
    found = records(script.ends(Ending.CLIENT))
    assert [record["outcome"] for record in found] == ["stream_error", "completed"]
    assert found[0]["error"] == {
        "phase": "in_stream",
        "type": "rate_limit_error",
        "code": "rate_limit_exceeded",
        "status": 429,
    }
    assert found[0]["timing"]["end_s"] == 0.01


@pytest.mark.parametrize("numbered", [True, False])
def test_an_error_within_a_response_is_its_outcome(numbered: bool) -> None:
    error = {**ERROR, "sequence_number": 5} if numbered else ERROR
    script = Script().client(create()).server(*events(1)[:5], error)
    script.client(create()).server(*events(2))
    found = records(script.ends(Ending.CLIENT))
    assert outcomes(found) == [("stream_error", "resp_1"), ("completed", "resp_2")]
    assert found[0]["error"]["code"] == "rate_limit_exceeded"


def test_an_error_may_be_followed_by_the_terminal_with_usage() -> None:
    failed = events(1, ends="failed", error={"code": "server_error", "message": "no"})[-1]
    script = Script().client(create()).server(*events(1)[:5], {**ERROR, "sequence_number": 5}, failed)
    (record,) = records(script.ends(Ending.CLIENT))
    assert (record["outcome"], record["usage"]["output_tokens"]) == ("stream_error", 7)


def test_an_error_that_names_no_lane_is_of_none_where_several_are_busy() -> None:
    script = Script().client(create("a"), create("b")).server(ERROR, *events(1, lane="a"), *events(2, lane="b"))
    assert [record["outcome"] for record in records(script.ends(Ending.CLIENT))] == ["completed"] * 2
    script = Script().client(create("a"), create("b")).server({**ERROR, "stream_id": "b"}, *events(1, lane="a"))
    assert [record["outcome"] for record in records(script.ends(Ending.CLIENT))] == ["completed", "stream_error"]


@pytest.mark.parametrize(
    ("code", "outcome", "error"),
    [
        (1000, "truncated", None),
        (None, "truncated", None),
        *[
            (code, "stream_error", {"phase": "in_stream", "type": "websocket_close", "code": str(code), "status": None})
            for code in (1001, 1008, 1011, 1012, 1013, 4000)
        ],
    ],
)
def test_a_close_of_the_server_ends_what_is_open(code: int | None, outcome: str, error: object) -> None:
    """One that is in progress and one that was asked for; not one that has ended."""
    script = (
        Script().client(create("x"), create("y"), create("z")).server(*events(1, lane="x"), *events(2, lane="y")[:4])
    )
    script.closes(code, from_client=False)
    end_s = (script.now_ms - 10) / 1000
    script.closes(code, from_client=True).ends(Ending.COMPLETE)
    found = records(script)
    assert [record["outcome"] for record in found] == ["completed", outcome, outcome]
    assert [record["error"] for record in found] == [None, error, error]
    assert [record["timing"]["end_s"] for record in found[1:]] == [end_s] * 2
    assert found[1]["counts"]["text_chars"] > 0


def test_the_limit_of_a_connection_is_an_outcome() -> None:
    limit = {
        "type": "error",
        "status": 400,
        "error": {"type": "invalid_request_error", "code": "websocket_connection_limit_reached"},
    }
    script = Script().client(create()).server(*events(1)[:5], limit).closes(1000, from_client=False)
    (record,) = records(script.ends(Ending.COMPLETE))
    assert (record["outcome"], record["error"]["code"]) == ("stream_error", "websocket_connection_limit_reached")


@pytest.mark.parametrize(
    ("ending", "fault", "outcome", "code"),
    [
        (Ending.COMPLETE, None, "upstream_reset", "closed"),  # 1006
        (Ending.RESET, TransportFault.RESET, "upstream_reset", "reset"),
        (Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT, "timeout", "idle_timeout"),
        (Ending.CLIENT, None, "client_abort", None),
        (Ending.CUT, None, "abandoned", None),
    ],
)
def test_an_end_without_a_close(ending: Ending, fault: TransportFault | None, outcome: str, code: str | None) -> None:
    script = Script().client(create("a"), create("b")).server(*events(1, lane="a")[:5]).ends(ending, fault)
    found = records(script)
    assert [record["outcome"] for record in found] == [outcome] * 2
    assert [record["error"] and record["error"]["code"] for record in found] == [code] * 2


def test_a_client_that_closes_or_leaves_has_left() -> None:
    script = Script().client(create()).server(*events(1)[:5]).closes(1000, from_client=True)
    gone_s = (script.now_ms - 10) / 1000
    (record,) = records(script.closes(1000, from_client=False).ends(Ending.COMPLETE))
    assert (record["outcome"], record["timing"]["client_gone_s"]) == ("client_abort", gone_s)


@pytest.mark.parametrize(
    "broken",
    [
        frame(b"{}", mask=MASK),
        frame(b"", length=1 << 63),
        frame(b"x" * 126, PING),
        frame(b"{}", reserved=4),
        frame(b"{}", CONTINUATION),
    ],
    ids=["masked", "2**63", "a long ping", "compressed", "a continuation"],
)
def test_broken_frames_of_the_server_are_said_in_the_records(broken: bytes) -> None:
    script = Script().client(create()).server(*events(1)[:5]).raw(broken, from_client=False)
    script.server(*events(1)[5:]).client(create()).ends(Ending.CLIENT)
    (record,) = records(script)
    assert (record["outcome"], record["response_id"]) == ("abandoned", "resp_1")
    assert not record["integrity"]["complete"]
    assert record["integrity"]["decode_error"] == "bad_event_framing"


@pytest.mark.parametrize(
    "broken", [frame(b"{}"), frame(b"", length=1 << 63, mask=MASK), frame(b"{}", CONTINUATION, mask=MASK)]
)
def test_broken_frames_of_the_client_leave_its_requests_unknown(broken: bytes) -> None:
    script = Script().client(create()).server(*events(1)).raw(broken, from_client=True).client(create())
    found = records(script.server(*events(2)).ends(Ending.CLIENT))
    assert outcomes(found) == [("completed", "resp_1"), ("completed", "resp_2")]
    assert [record["request_model"] for record in found] == ["gpt-5.6", None]


def test_after_missing_bytes_of_the_server_what_is_open_is_lost_and_later_responses_are_read() -> None:
    script = Script().client(create()).server(*events(1)[:4])
    script.raw(b"\x00 rest of a frame", from_client=False, gap=True)
    script.client(create()).server(*events(2)).ends(Ending.CLIENT)
    recorder, _ = recorder_of(script.messages)
    assert recorder.dropped == {DropReason.RECORDER_BEHIND: 1}
    found = records(script)
    assert outcomes(found) == [("abandoned", "resp_1"), ("completed", "resp_2")]
    assert [record["integrity"]["complete"] for record in found] == [False, True]
    assert found[0]["integrity"]["dropped_reads"] == 1


def test_after_missing_bytes_of_the_client_the_next_request_is_read() -> None:
    script = Script().raw(frame(b"x" * 999, mask=MASK)[:500], from_client=True)
    script.raw(b"rest", from_client=True, gap=True).server(*events(1)).client(create(model="next")).server(*events(2))
    found = records(script.ends(Ending.CLIENT))
    assert [record["request_model"] for record in found] == [None, "next"]


def test_data_of_an_unknown_websocket_counts_once_as_gone() -> None:
    script = Script()
    del script.messages[0]
    recorder, segments = recorder_of(script.client(create()).server(*events(1)).ends(Ending.CLIENT).messages)
    assert (dict(recorder.unmade), segments, recorder.seen) == ({(None, NotCaptured.RECORDER_GONE): 1}, [], 0)


def test_a_sender_that_disconnects_cuts_its_websockets() -> None:
    recorder = Recorder(settings("masked"))
    for message in Script().client(create()).server(*events(1)[:5]).messages:
        recorder.handle(message, 3)
    recorder.cut(3, T0 + 500 * MS)
    assert [segment.end.ending for segment in recorder.segments() if segment.end] == [Ending.CUT]
    assert recorder.open_streams == 0


def test_an_internal_error_ends_what_is_open_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script().client(create()).server(*events(1)[:5])
    recorder, _ = recorder_of(script.messages)

    def bug(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(websocket_session, "routed", bug)
    recorder.handle(Script().server(*events(1)).messages[1])
    after = recorder.segments()
    assert [segment.end.ending for segment in after if segment.end] == [Ending.CUT]
    assert recorder.unmade == {("test", NotCaptured.CAPTURE_FAULT): 1}
    assert recorder.incidents[Incident.CAPTURE_FAULT] == 1
    recorder.handle(script.server(*events(2)).messages[-1])
    assert recorder.segments() == []


def test_no_word_of_a_prompt_or_an_answer_is_kept() -> None:
    canary = "Canary7391"
    script = Script().client(create(input=canary, instructions=canary, stream_id=canary))
    answered = [{**event, "stream_id": canary} for event in events(1, canary, instructions=canary)]
    script.server(*answered, {"type": "response.steer.accepted", "input": canary})
    script.server({**ERROR, "error": {"message": canary}}, f"not JSON {canary}".encode())
    script.closes(1011, from_client=False)
    _, segments = recorder_of(script.ends(Ending.COMPLETE).messages)
    assert len(segments) > 2
    assert canary not in repr(segments)


@pytest.mark.parametrize(
    "header",
    [
        ("authorization", "Bearer sk-one"),
        ("sec-websocket-protocol", "realtime, openai-insecure-api-key.sk-one, openai-beta.realtime-v1"),
    ],
)
def test_the_key_is_the_credential(header: tuple[str, str]) -> None:
    (record,) = records(Script(header).client(create()).server(*events(1)).ends(Ending.CLIENT))
    (usual,) = records(
        Script(("authorization", "Bearer sk-one")).client(create()).server(*events(1)).ends(Ending.CLIENT)
    )
    assert record["credential_id"] == usual["credential_id"] is not None
    assert "sk-one" not in json.dumps(record)


def test_the_retry_count_of_a_handshake_is_of_its_first_response() -> None:
    script = Script(("x-stainless-retry-count", "2"))
    for number in (1, 2):
        script.client(create()).server(*events(number))
    assert [record["attempt"] for record in records(script.ends(Ending.CLIENT))] == [3, None]


# --- bounds ----------------------------------------------------------------------------------------------------------------


def test_more_responses_than_the_bound_count_as_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_session, "MAX_OPEN", 3)
    script = Script().client(*[create(model=f"m{number}") for number in range(5)])
    script.server(*[event for number in range(5) for event in events(number)]).client(create(model="later"))
    script.server(*events(9)).ends(Ending.CLIENT)
    recorder, _ = recorder_of(script.messages)
    assert recorder.unmade == {("test", NotCaptured.LIMIT): 2}
    assert [record["request_model"] for record in records(script)] == ["m0", "m1", "m2", "later"]


def test_more_websockets_than_the_bound_count_as_not_captured() -> None:
    recorder = Recorder(settings("masked"), max_open_streams=2)
    for number in range(4):
        for message in Script(stream=number).messages:
            recorder.handle(message)
    assert recorder.unmade == {("test", NotCaptured.LIMIT): 2}


@pytest.mark.parametrize("kind", ["lanes", "steering", "fragments", "a long request", "2**63 - 1", "answers"])
def test_hostile_sides_take_bounded_memory(kind: str) -> None:
    script = Script()
    recorder = Recorder(settings("masked"), max_held_bytes=4 * 1024 * 1024)
    match kind:
        case "lanes":
            reads = [
                script.server({**events(1)[4], "stream_id": f"{n}{'x' * 3_000}"}).messages.pop() for n in range(3_000)
            ]
        case "steering":
            steer = {"type": "response.steer", "previous_response_id": "x" * 3_000}
            reads = [
                script.client({**steer, "previous_response_id": f"{n}{'x' * 3_000}"}).messages.pop()
                for n in range(3_000)
            ]
        case "fragments":
            piece = frame(b"x" * 10_000, CONTINUATION, final=False, mask=MASK)
            reads = [script.raw(frame(b"{", final=False, mask=MASK), from_client=True).messages.pop()]
            reads += [script.raw(piece, from_client=True).messages.pop()] * 3_000
        case "a long request":
            reads = [script.raw(frame(b"", length=1 << 40, mask=MASK), from_client=True).messages.pop()]
            reads += [script.raw(b"x" * 10_000, from_client=True).messages.pop()] * 3_000
        case "2**63 - 1":
            reads = [script.raw(frame(b"", length=(1 << 63) - 1), from_client=False).messages.pop()]
            reads += [script.raw(b"x" * 10_000, from_client=False).messages.pop()] * 3_000
        case _:
            reads = [script.server(b"x" * 10_000).messages.pop()] * 3_000
    recorder.handle(script.messages[0])
    tracemalloc.start()
    try:
        for read in reads:
            recorder.handle(read)
            recorder.segments()
        assert tracemalloc.get_traced_memory()[1] < 10 * 1024 * 1024
    finally:
        tracemalloc.stop()


# --- the same record as over server-sent events ----------------------------------------------------------------------------


@given(places(), places())
def test_splits_change_nothing_but_times(of_client: list[int], of_server: list[int]) -> None:
    asked = b"".join(frame(json.dumps(create(lane)).encode(), mask=MASK) for lane in ("a", "b"))
    listed = [event for pair in zip(events(1, lane="a"), events(2, lane="b"), strict=True) for event in pair]
    answered = from_server(*[json.dumps(event).encode() for event in listed])
    script = Script()
    for piece in at(asked, of_client):
        script.raw(piece, from_client=True)
    for piece in at(answered, of_server):
        script.raw(piece, from_client=False)
    found = records(script.ends(Ending.CLIENT))
    assert outcomes(found) == [("completed", "resp_1"), ("completed", "resp_2")]
    assert [record["counts"]["events"] for record in found] == [8, 8]
    assert isinstance(script.messages[1], WebSocketData)


def of_responses() -> list[Vector]:
    """The vectors of Responses whose events a WebSocket can carry: each has a type, and the first begins a response."""
    found = []
    for vector in vectors():
        events = events_of(vector) if vector.dialect == "openai-responses" and vector.is_stream else None
        values = [parse(event.data or b"") for event in events or ()]
        kinds = [value.get("type") if isinstance(value, dict) else None for value in values]
        if (
            vector.method == "POST"
            and vector.status == 200
            and kinds
            and all(isinstance(kind, str) and kind.startswith("response.") for kind in kinds)
            and kinds[0] in ("response.created", "response.queued")
            and vector.name != "after-terminal"  # a response ends with its terminal, and its connection goes on
        ):
            found.append(vector)
    return found


# What tells of the transport.
OF_TRANSPORT = ("status_code", "request_digest", "upstream", "request", "timing", "started_at")


def over_websocket(vector: Vector, capture: str) -> dict[str, Any]:
    script = Script(*vector.headers)
    opened = script.messages[0]
    assert isinstance(opened, WebSocketOpened)
    headers = [(name.lower(), value) for name, value in vector.response_headers]
    script.messages[0] = msgspec.structs.replace(opened, headers=headers)
    script.client({"type": "response.create", **(vector.request or {})})
    script.server(*[event.data or b"" for event in events_of(vector) or ()])
    if vector.ending == "complete":
        script.closes(1000, from_client=False)
    (record,) = records(script.ends(Ending(vector.ending)), capture)
    return record


@pytest.mark.parametrize("capture", ["masked", "full"])
@pytest.mark.parametrize("vector", of_responses(), ids=lambda vector: vector.name)
def test_the_record_is_that_of_server_sent_events(vector: Vector, capture: Any) -> None:
    expected = live(vector, Live(capture=capture), [wire(vector, Live())])
    got = over_websocket(vector, capture)
    same(without_times(alike(got, *SIZES, *OF_TRANSPORT)), without_times(alike(expected, *SIZES, *OF_TRANSPORT)))


def test_what_the_answer_of_the_handshake_says_of_its_moment_is_of_the_first_response() -> None:
    script = Script()
    opened = script.messages[0]
    assert isinstance(opened, WebSocketOpened)
    limits = [("x-request-id", "req_9"), ("x-ratelimit-remaining-tokens", "70"), ("x-litellm-response-cost", "0.5")]
    script.messages[0] = msgspec.structs.replace(opened, headers=limits)
    for number in (1, 2):
        script.client(create()).server(*events(number))
    first, second = records(script.ends(Ending.CLIENT))
    assert first["rate_limit"]["tokens_remaining"] == 70
    assert second["rate_limit"] is None
    assert [record["provider_request_id"] for record in (first, second)] == ["req_9"] * 2


def test_there_are_vectors_enough() -> None:
    assert len(of_responses()) >= 40


# --- Realtime --------------------------------------------------------------------------------------------------------------


def realtime(number: int, *deltas: str, status: str = "completed", **details: Any) -> list[dict[str, Any]]:
    """The events of one response of the Realtime API, with these deltas of audio."""
    response = {"object": "realtime.response", "id": f"resp_{number}", "status": "in_progress", "output": []}
    place = {"response_id": f"resp_{number}", "item_id": "item_1", "output_index": 0, "content_index": 0}
    usage = {
        "input_tokens": 20,
        "output_tokens": 9,
        "total_tokens": 29,
        "input_token_details": {"text_tokens": 5, "audio_tokens": 15, "cached_tokens": 4},
        "output_token_details": {"text_tokens": 2, "audio_tokens": 7},
    }
    listed: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        *[{"type": "response.output_audio.delta", **place, "delta": delta} for delta in deltas or ("aGk=", "aG8=")],
        {
            "type": "response.done",
            "response": {**response, "status": status, "usage": usage, "status_details": details or None},
        },
    ]
    return [{**event, "event_id": f"event_{number}_{place}"} for place, event in enumerate(listed)]


SESSION = {"type": "session.created", "event_id": "event_0", "session": {"object": "realtime.session", "model": "m"}}
ASK = {"type": "response.create", "event_id": "ask_1", "response": {"max_output_tokens": 40, "instructions": "x"}}


def session_of_realtime() -> Script:
    return Script(target="/v1/realtime?model=gpt-realtime-2").server(SESSION)


def test_a_realtime_response_has_its_usage_and_the_time_to_its_first_audio() -> None:
    script = session_of_realtime().client(ASK).server(*realtime(1))
    script.server({"type": "rate_limits.updated", "event_id": "e", "rate_limits": []})
    (record,) = records(script.ends(Ending.CLIENT))
    assert (record["dialect"], record["endpoint"], record["outcome"]) == ("openai-realtime", "/realtime", "completed")
    assert (record["request_model"], record["request"]["max_tokens"]) == ("gpt-realtime-2", 40)
    assert (record["timing"]["first_token_s"], record["timing"]["last_token_s"]) == (0.02, 0.03)
    usage = record["usage"]
    assert (usage["input_tokens"], usage["audio_input_tokens"], usage["input_cached_tokens"]) == (20, 15, 4)
    assert (usage["output_tokens"], usage["audio_output_tokens"], usage["source"]) == (9, 7, "final")


def test_a_realtime_response_that_nobody_asked_for_counts_from_the_end_of_speech() -> None:
    script = session_of_realtime().client({"type": "input_audio_buffer.append", "audio": "aGk="})
    script.server(
        {"type": "input_audio_buffer.speech_stopped", "event_id": "e1"}, {"type": "input_audio_buffer.committed"}
    )
    script.server(*realtime(1), *realtime(2))
    first, second = records(script.ends(Ending.CLIENT))
    assert first["timing"]["first_token_s"] == pytest.approx(0.03)
    assert second["timing"]["first_token_s"] == pytest.approx(0.01)
    assert first["request_model"] == "gpt-realtime-2"
    assert first["timing"]["request_sent_s"] is None


def test_realtime_responses_run_side_by_side() -> None:
    """One of the conversation and one outside of it: an event names its response."""
    script = session_of_realtime().client(ASK, {**ASK, "event_id": "ask_2"})
    script.server(*[event for pair in zip(realtime(1), realtime(2), strict=True) for event in pair])
    found = records(script.ends(Ending.CLIENT))
    assert outcomes(found) == [("completed", "resp_1"), ("completed", "resp_2")]
    assert [record["counts"]["token_events"] for record in found] == [2, 2]


def test_a_realtime_response_that_is_interrupted_is_completed_with_its_reason() -> None:
    script = session_of_realtime().client(ASK).server(*realtime(1, status="cancelled", reason="turn_detected"))
    (record,) = records(script.ends(Ending.CLIENT))
    assert (record["outcome"], record["error"]) == ("completed", None)
    assert (record["finish_reason"], record["finish_reason_raw"]) == (None, "turn_detected")
    assert record["usage"]["output_tokens"] == 9


def test_an_error_of_realtime_is_of_the_request_that_it_names() -> None:
    facts = {"type": "invalid_request_error", "code": "invalid_value", "message": "no"}
    error = {"type": "error", "event_id": "e", "error": {**facts, "event_id": "ask_2"}}
    other = {"type": "error", "event_id": "e", "error": {**facts, "event_id": "another"}}
    script = session_of_realtime().client(ASK, {**ASK, "event_id": "ask_2"}).server(other, error, *realtime(1))
    found = records(script.ends(Ending.CLIENT))
    assert [record["outcome"] for record in found] == ["completed", "stream_error"]
    assert found[1]["error"]["code"] == "invalid_value"


def test_no_audio_and_no_transcript_is_kept() -> None:
    canary = "Canary7391"
    script = session_of_realtime().client({**ASK, "response": {"instructions": canary}})
    script.client({"type": "input_audio_buffer.append", "audio": canary})
    answered = realtime(1, canary)
    transcript = {**answered[1], "type": "response.output_audio_transcript.delta"}
    script.server(answered[0], transcript, *answered[1:])
    script.server({"type": "conversation.item.added", "item": {"content": [{"transcript": canary}]}})
    _, segments = recorder_of(script.ends(Ending.CLIENT).messages)
    assert len(segments) >= 1 and canary not in repr(segments)
