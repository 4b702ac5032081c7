"""One connection's TCP: how it begins, ends and begins again, with packets that both hosts send or repeat."""

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.client import DirectClient
from streamgauge.recorder.protocol import ExchangeEnding, Message, ReadsDropped, RequestStarted, ResponseRead
from streamgauge.taps.packets.connections import HOLE_NS, Connection, begins_request
from streamgauge.taps.packets.decode import ACK, RST, SYN
from streamgauge.taps.packets.exchange import Reporting
from tests.taps.packets.test_conversation import (
    BODY,
    CHUNKS,
    STREAM,
    WHOLE,
    arrived,
    asking,
    ended,
    only,
    request_body_of,
)
from tests.taps.packets.wire import CLIENT, SERVER, STEP, Line, by_stream, followed, ipv4, segment, tcp
from tests.taps.talk import EVENTS, SSE, head


def whole(line: Line) -> bool:
    """Asserts that exactly one complete exchange is reported."""
    one = only(followed(line))
    return (request_body_of(one), arrived(one), ended(one).ending) == (BODY, b"".join(WHOLE), Ending.COMPLETE)


def test_every_packet_may_be_seen_twice() -> None:
    """As in a capture of all interfaces, which sees a packet when it is sent and when it is received."""
    line = Line().open().ask(asking()).answer(*WHOLE).acknowledge().finish(0).finish(1)
    line.sent = [packet for packet in line.sent for _ in range(2)]
    assert whole(line)


def test_all_packets_may_be_repeated_later() -> None:
    line = Line().open().ask(asking()[:50], asking()[50:]).answer(*WHOLE[:4])
    again = [data for _, data in line.sent]
    for data in again:
        line.sent.append((line.now, data))
        line.now += STEP
    assert whole(line.answer(*WHOLE[4:]))


def test_without_the_servers_part_of_the_handshake_its_side_begins_at_the_clients_acknowledgement() -> None:
    line = Line().open()
    del line.sent[1:]
    assert whole(line.ask(asking()).answer(*WHOLE))


def test_data_may_come_with_the_first_packet() -> None:
    """TCP Fast Open (RFC 7413)."""
    request = asking()
    line = Line(first=(100, 77))
    line.sent.append((line.now, ipv4(CLIENT, SERVER, tcp(CLIENT, SERVER, 100, 0, SYN, request[:20]))))
    line.next_bytes = [101 + 20, 77]
    line.send(1, SYN | ACK, b"")
    line.next_bytes[1] += 1
    assert whole(line.ask(request[20:]).answer(*WHOLE))


def test_a_line_of_a_request_may_come_byte_by_byte() -> None:
    request = asking()
    assert whole(Line().open().ask(*[request[at : at + 1] for at in range(len(request))]).answer(*WHOLE))


def test_bytes_out_of_order_are_read_when_the_gap_is_filled() -> None:
    line = Line().open().ask(asking()).answer(*WHOLE)
    first, second = line.sent[6:8]  # the third packet of the response, and the fourth
    line.sent[6:8] = [(first[0], second[1]), (second[0], first[1])]
    one = only(followed(line))
    reads = [message for message in one if isinstance(message, ResponseRead)]
    assert [read.data for read in reads] == [*WHOLE[:2], WHOLE[2] + WHOLE[3], *WHOLE[4:]]
    assert reads[2].at_ns == second[0] > first[0]


def test_a_gap_that_is_never_acknowledged_is_skipped_after_its_time() -> None:
    line = Line().open().ask(asking()).answer(STREAM, CHUNKS[0]).lose().answer(CHUNKS[1]).wait(HOLE_NS + 2 * STEP)
    one = only(followed(line.answer(CHUNKS[2])))
    assert [type(message) for message in one[3:]] == [ResponseRead, ReadsDropped, ExchangeEnding]


def test_bytes_after_a_gap_are_reported_before_the_end() -> None:
    line = Line().open().ask(asking()).answer(head(SSE), EVENTS[0]).lose().answer(EVENTS[1])
    one = only(followed(line.reset()))
    assert [type(message) for message in one[3:]] == [ResponseRead, ReadsDropped, ResponseRead, ExchangeEnding]
    assert ended(one).ending is Ending.RESET


def test_a_stale_reset_ends_nothing() -> None:
    line = Line().open().ask(asking()).answer(*WHOLE[:3])
    stale = tcp(SERVER, CLIENT, line.next_bytes[1] + 2**30, 0, RST, b"")
    line.sent.append((line.now, ipv4(SERVER, CLIENT, stale)))
    assert whole(line.answer(*WHOLE[3:]))


def test_impossible_sequence_numbers_cut_the_connection_until_its_next_request() -> None:
    line = Line().open().ask(asking()).answer(*WHOLE[:3])
    line.next_bytes[1] += 2**30
    first, second = by_stream(followed(line.answer(*WHOLE[3:]).ask(asking()).answer(*WHOLE)))
    assert ended(first).ending is Ending.CUT
    assert arrived(second) == b"".join(WHOLE)


def test_ports_that_are_used_again_are_another_connection() -> None:
    line = Line().open().ask(asking()).answer(*WHOLE[:3])
    again = Line(first=(5000, 6000))
    again.now = line.now
    again.open().ask(asking()).answer(*WHOLE)
    first, second = by_stream(followed(line, again))
    assert (ended(first).ending, ended(second).ending) == (Ending.CUT, Ending.COMPLETE)
    assert arrived(second) == b"".join(WHOLE)


def test_a_refused_connection_is_not_reported() -> None:
    line = Line()
    line.send(0, SYN, b"")
    line.next_bytes[0] += 1
    assert followed(line.reset()) == []


def test_both_sides_may_end_at_once() -> None:
    line = Line().open().ask(asking()).answer(*WHOLE).finish(0)
    line.next_bytes[0] -= 1  # the server's FIN does not acknowledge the client's
    line.finish(1)
    assert whole(line)


def test_a_wall_clock_that_goes_back_makes_no_time_negative() -> None:
    line = Line().open().ask(asking()).answer(*WHOLE[:3])
    messages: list[Message] = followed(line)
    back = [(at - (3_600_000_000_000 if number > 4 else 0), data) for number, (at, data) in enumerate(line.sent)]
    reported: list[Message] = []
    connection = Connection("up", Reporting(DirectClient(reported.append), "packets"), Budget(1000))
    for at_ns, data in back:
        one = segment(data, at_ns)
        connection.take(one, from_client=one.target.endswith(SERVER[1].to_bytes(2, "big")))
    stamps = [message.at_ns for message in reported if isinstance(message, RequestStarted | ResponseRead)]
    assert stamps == sorted(stamps, key=lambda at: at or 0)
    assert len(reported) == len(messages) - 1


@pytest.mark.parametrize(
    ("payload", "begins"),
    [
        (b"POST /v1/messages HTTP/1.1\r\n", True),
        (b"GET / HTTP/1.0\nHost: a\n", True),
        (b"POST /v1/messages HTTP/1.1", False),
        (b"POST /v1/messages HTTP/2\r\n", False),
        (b" POST /v1/messages HTTP/1.1\r\n", False),
        (b"POST v1 HTTP/1.1\r\n", False),
        (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\n", False),
        (b"", False),
    ],
)
def test_which_bytes_clearly_begin_a_request(payload: bytes, begins: bool) -> None:
    assert begins_request(payload) is begins
