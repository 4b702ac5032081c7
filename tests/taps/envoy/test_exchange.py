"""One exchange: Envoy's messages in any order become what the recorder gets."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import (
    ExchangeEnding,
    Message,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseHead,
    ResponseRead,
)
from streamgauge.settings.attributes import Attribute
from streamgauge.spool.read_counters import DropReason
from streamgauge.spool.response_counters import NotCaptured
from streamgauge.taps.envoy.endings import Flag
from streamgauge.taps.envoy.exchange import MAX_HELD, EnvoyExchange, Reporting, Unknown
from streamgauge.taps.envoy.messages import LogEntry, processing_of
from tests.recorder.fake_client import FakeClient
from tests.taps.contract.written import written
from tests.taps.envoy.schema import MESSAGES, body, headers, processing
from tests.taps.talk import EVENTS

ASKED = (
    (":method", "POST"), (":path", "/openai/v1/chat/completions"), (":authority", "api.test:443"),
    ("x-request-id", "id-1"), ("authorization", "Bearer SECRET"), ("cookie", "SECRET"), ("x-team", "t"), ("x-agent", "a"),
)  # fmt: skip
TIME = {"request.time": "2026-12-01T11:52:40.5+00:00", "xds.cluster_name": "openai"}
REQUEST = processing(request_headers=headers(*ASKED), attributes=TIME)
OTHER = processing(request_headers=headers((":method", "GET"), (":path", "/page"), ("x-request-id", "id-1")))
STREAM = processing(response_headers=headers((":status", "200"), ("content-type", "text/event-stream")))
PAGE = processing(response_headers=headers((":status", "200"), ("content-type", "text/html")))
ERROR = processing(response_headers=headers((":status", "503"), ("content-type", "text/plain")))
PIECE = processing(response_body=body(EVENTS[1]))
LAST = processing(response_body=body(EVENTS[-1], ends=True))
END = processing(response_body=body(b"", ends=True))
TRAILERS = processing(response_trailers=MESSAGES["HttpTrailers"]())
ASKS = processing(request_body=body(b'{"model":"m"}'))
ASKED_ALL = processing(request_body=body(b"", ends=True))
S = 1_000_000_000
# Until now the request took 3 s by Envoy's log; its messages are a second apart.
ENTRY = LogEntry("id-1", 0, 1, None, 30 * S, frozenset(), "", "")


def logged(*flags: int, **more: Any) -> LogEntry:
    return ENTRY._replace(flags=frozenset(map(int, flags)), **more)


def reported(
    *messages: bytes, entry: LogEntry | None = None, damaged: bool | None = False, unknown: Unknown | None = None
) -> tuple[FakeClient, EnvoyExchange]:
    """What becomes of these messages. `damaged`: how the report ended; None: it did not."""
    client = FakeClient()
    exchange = EnvoyExchange(Reporting(client, "X-Team", (Attribute("agent", "x-agent"),)))
    for number, data in enumerate(messages):
        message = processing_of(data)
        assert message is not None
        exchange.receive(number * S, number * S, message)
    if damaged is not None:
        exchange.report_ended(len(messages) * S, is_damaged=damaged)
    exchange.entry = entry
    exchange.finish(unknown)
    return client, exchange


def kinds(client: FakeClient) -> list[type[Message]]:
    return [type(message) for message in client.messages]


def ending(client: FakeClient) -> ExchangeEnding:
    last = client.messages[-1]
    assert isinstance(last, ExchangeEnding)
    return last


def test_a_stream() -> None:
    client, exchange = reported(REQUEST, ASKS, ASKED_ALL, STREAM, PIECE, LAST, entry=logged(last_rx_ns=2))
    assert kinds(client) == [
        RequestStarted, RequestBody, RequestSent, ResponseHead, ResponseRead, ResponseRead, ExchangeEnding,
    ]  # fmt: skip
    started, _, sent, head, *_ = client.messages
    assert isinstance(started, RequestStarted)
    assert (started.tap, started.upstream, started.host, started.method) == ("envoy", "openai", "api.test", "POST")
    assert started.target == "/openai/v1/chat/completions"
    assert started.headers == [("authorization", "Bearer SECRET"), ("x-team", "t")]
    assert started.attributes == [("agent", "a")]
    assert isinstance(sent, RequestSent)
    assert (sent.at_ns, sent.body_bytes, sent.whole) == (2 * S, 13, True)
    assert isinstance(head, ResponseHead)
    assert (head.at_ns, head.status) == (3 * S, 200)
    assert (ending(client).ending, ending(client).at_ns, ending(client).client_gone_ns) == (
        Ending.COMPLETE,
        5 * S,
        None,
    )
    assert (exchange.request_id, exchange.started_ns) == ("id-1", 1_796_125_960_500_000_000)


def test_the_upstream_that_the_configuration_names() -> None:
    client = FakeClient()
    exchange = EnvoyExchange(Reporting(client), "vllm")
    message = processing_of(REQUEST)
    assert message is not None
    exchange.receive(0, 0, message)
    [started] = client.messages
    assert isinstance(started, RequestStarted)
    assert started.upstream == "vllm"


def test_trailers_end_a_response() -> None:
    client, exchange = reported(REQUEST, STREAM, PIECE, TRAILERS, entry=None, damaged=None)
    assert exchange.reported_ns == 3 * S
    assert ending(client).ending is Ending.COMPLETE


def test_other_traffic_is_not_captured() -> None:
    client, exchange = reported(OTHER, PAGE)
    assert (client.messages, exchange.captured) == ([], False)
    assert client.responses == {(None, NotCaptured.NOT_LLM): 1}


def test_an_event_stream_on_another_path_is_captured_from_its_head_on() -> None:
    client, exchange = reported(OTHER, ASKS, ASKED_ALL, STREAM, PIECE, END)
    assert exchange.captured
    assert kinds(client) == [RequestStarted, RequestSent, ResponseHead, ResponseRead, ExchangeEnding]
    started, sent = client.messages[:2]
    assert isinstance(started, RequestStarted)
    assert started.at_ns == 0
    assert isinstance(sent, RequestSent)
    assert (sent.body_bytes, sent.whole) == (13, False)


def test_other_traffic_without_a_response_has_no_record() -> None:
    client, exchange = reported(OTHER)
    assert (client.messages, exchange.captured) == ([], False)


def test_the_end_of_a_broken_stream_is_that_of_the_log() -> None:
    client, _ = reported(REQUEST, STREAM, PIECE, entry=logged(Flag.DC))
    end = ending(client)
    assert (end.ending, end.at_ns, end.client_gone_ns) == (Ending.CLIENT, 30 * S, 30 * S)
    assert ReadsDropped not in kinds(client)


def test_the_end_is_not_before_the_last_message() -> None:
    client, _ = reported(REQUEST, STREAM, PIECE, entry=logged(Flag.UC, duration_ns=1))
    assert (ending(client).ending, ending(client).at_ns) == (Ending.RESET, 2 * S)


def test_without_an_entry_the_end_is_unknown_unless_the_response_is_whole() -> None:
    client, _ = reported(REQUEST, STREAM, PIECE, unknown=Unknown.MISSING)
    assert ending(client).ending is Ending.CUT
    client, _ = reported(REQUEST, STREAM, PIECE, END, unknown=Unknown.MISSING)
    assert ending(client).ending is Ending.COMPLETE


def test_a_damaged_report_is_incomplete() -> None:
    client, _ = reported(REQUEST, STREAM, PIECE, entry=logged(last_rx_ns=5), damaged=True)
    assert kinds(client)[-2:] == [ReadsDropped, ExchangeEnding]
    assert client.dropped == {DropReason.NOT_REPORTED: 1}
    client, _ = reported(REQUEST, STREAM, LAST, damaged=True)
    assert not client.dropped


def test_a_report_with_fewer_bytes_than_the_log_is_incomplete() -> None:
    size = len(EVENTS[1])
    client, _ = reported(REQUEST, STREAM, PIECE, entry=logged(Flag.DC, body_bytes=size))
    assert not client.dropped
    client, _ = reported(REQUEST, STREAM, PIECE, entry=logged(Flag.DC, body_bytes=size + 1))
    assert kinds(client)[-2:] == [ReadsDropped, ExchangeEnding]
    assert client.dropped == {DropReason.NOT_REPORTED: 1}


# A response that may be Envoy's own.


def test_envoys_own_answer_is_not_the_upstreams() -> None:
    client, _ = reported(REQUEST, ERROR, PIECE, END, entry=logged(Flag.UF, first_rx_ns=None))
    assert kinds(client) == [RequestStarted, ExchangeEnding]
    assert ending(client).ending is Ending.RESET


def test_an_error_of_the_upstream_is_the_upstreams() -> None:
    client, _ = reported(REQUEST, ERROR, PIECE, END, entry=logged(last_rx_ns=2))
    assert kinds(client) == [RequestStarted, ResponseHead, ResponseRead, ExchangeEnding]
    head, read = client.messages[1:3]
    assert isinstance(head, ResponseHead)
    assert isinstance(read, ResponseRead)
    assert (head.at_ns, head.status, read.at_ns) == (1 * S, 503, 2 * S)


def test_an_error_of_which_the_log_says_nothing_is_what_the_client_got() -> None:
    client, _ = reported(REQUEST, ERROR, PIECE, END, unknown=Unknown.MISSING)
    assert kinds(client) == [RequestStarted, ResponseHead, ResponseRead, ExchangeEnding]


def test_what_waits_for_the_log_is_bounded() -> None:
    big = processing(response_body=body(b"x" * (MAX_HELD // 2)))
    client = FakeClient()
    exchange = EnvoyExchange(Reporting(client))
    for number, data in enumerate((REQUEST, ERROR, big, big)):
        message = processing_of(data)
        assert message is not None
        exchange.receive(number, number, message)
        assert kinds(client) == [RequestStarted]
    message = processing_of(PIECE)
    assert message is not None
    exchange.receive(9, 9, message)
    assert kinds(client) == [RequestStarted, ResponseHead, ResponseRead, ResponseRead, ResponseRead]


# Odd orders.


def test_a_body_without_a_head_is_lost() -> None:
    client, _ = reported(REQUEST, PIECE, STREAM, PIECE, END)
    assert client.dropped == {DropReason.NOT_REPORTED: 1}
    assert kinds(client) == [RequestStarted, ResponseHead, ReadsDropped, ResponseRead, ExchangeEnding]


def test_a_response_without_a_request_is_nothing() -> None:
    client, exchange = reported(STREAM, PIECE, END)
    assert client.messages == []
    assert not exchange.begun


ALL = (REQUEST, OTHER, STREAM, PAGE, ERROR, PIECE, LAST, END, TRAILERS, ASKS, ASKED_ALL)
ENTRIES = (None, logged(), logged(Flag.DC), logged(Flag.UF, first_rx_ns=None), logged(last_rx_ns=9))


@given(st.lists(st.sampled_from(ALL), max_size=9), st.sampled_from(ENTRIES), st.sampled_from((None, False, True)))
def test_any_order_gives_at_most_one_record(
    messages: list[bytes], entry: LogEntry | None, damaged: bool | None
) -> None:
    """And each stream that begins has an end, after which nothing comes."""
    client, _ = reported(*messages, entry=entry, damaged=damaged)
    assert client.faults == 0
    begun = kinds(client).count(RequestStarted)
    assert begun == kinds(client).count(ExchangeEnding) <= 1
    if begun:
        assert kinds(client)[0] is RequestStarted
        assert kinds(client)[-1] is ExchangeEnding
        assert kinds(client).count(ResponseHead) <= 1
        # An event stream on another path has one if its content is a model's.
        first = next(message for message in messages if message in (REQUEST, OTHER))
        assert (first is OTHER) <= len(written(client.messages, "masked").records) + (first is OTHER) <= 2
