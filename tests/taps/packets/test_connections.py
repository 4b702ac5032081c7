"""All connections of a capture: which packets are followed, and within which limits; no input does harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.client import DirectClient
from streamgauge.recorder.protocol import ExchangeEnding, Message, ReadsDropped, RequestStarted
from streamgauge.taps.packets import connections as module
from streamgauge.taps.packets.connections import FORGET_NS, CaptureScope, Connections
from streamgauge.taps.packets.conversation import Conversation
from streamgauge.taps.packets.decode import Segment, decode_ip
from streamgauge.taps.packets.exchange import Reporting
from tests.taps.packets.test_conversation import CHUNKS, JSON, STREAM, WHOLE, arrived, asking, ended
from tests.taps.packets.wire import BEGAN, CLIENT, SERVER, Line, by_stream, ipv6, segment


class Rig:
    """Connections, and what they reported."""

    def __init__(self, ports: dict[int, str | None] | None) -> None:
        self.reported: list[Message] = []
        self.connections = Connections(CaptureScope(ports), Reporting(DirectClient(self.reported.append), "packets"))

    def take(self, *lines: Line) -> "Rig":
        for line in lines:
            for at_ns, data in line.sent:
                self.connections.take(segment(data, at_ns))
        return self


def client(number: int) -> tuple[str, int]:
    return CLIENT[0], 10_000 + number


def test_only_the_servers_ports_are_followed_with_their_names() -> None:
    lines = [Line(client(port), (SERVER[0], port)).open().ask(asking()).answer(JSON) for port in (8000, 8001, 8002)]
    rig = Rig({8000: "vllm", 8001: None}).take(*lines)
    assert [one.upstream for one in rig.reported if isinstance(one, RequestStarted)] == ["vllm", f"{SERVER[0]}:8001"]


def test_an_ipv6_server_without_a_name_is_called_by_its_address_in_brackets() -> None:
    rig = Rig({8000: None})
    for at_ns, data in Line().open().ask(asking()).sent:
        packet = ipv6("2001:db8::1", "2001:db8::7", data[20:]) if data[15] == 1 else b""
        if packet and (found := decode_ip(packet, at_ns)) is not None:
            rig.connections.take(found)
    assert [one.upstream for one in rig.reported if isinstance(one, RequestStarted)] == ["[2001:db8::7]:8000"]


def test_without_ports_the_host_that_gets_a_request_is_the_server() -> None:
    one = Line().open().ask(asking()).answer(JSON)
    other = Line((SERVER[0], 5), (CLIENT[0], 6), first=(1, 2)).ask(asking()).answer(JSON)
    rig = Rig(None).take(one, other)
    assert [arrived(stream) for stream in by_stream(rig.reported)] == [JSON, JSON]


def test_a_connection_between_two_servers_ports() -> None:
    line = Line((CLIENT[0], 8000), (SERVER[0], 8000)).open().ask(asking()).answer(JSON)
    assert len(by_stream(Rig({8000: None}).take(line).reported)) == 1


def test_packets_of_no_connection_create_none() -> None:
    line = Line().open().ask(asking()).answer(*WHOLE).acknowledge().finish(0).finish(1)
    rig = Rig({8000: None}).take(line)
    assert len(rig.connections) == 0
    late = [segment(data, at) for at, data in line.sent[5:]]
    for one in late:
        rig.connections.take(one)
    assert len(rig.connections) == 0


def test_a_quiet_connection_is_dropped_unless_a_stream_is_open() -> None:
    quiet = Line(client(1)).open().ask(asking()).answer(JSON)
    busy = Line(client(2)).open().ask(asking()).answer(STREAM)
    rig = Rig({8000: None}).take(quiet, busy)
    rig.connections.tick(BEGAN + FORGET_NS // 2)
    assert (len(rig.connections), rig.connections.open) == (2, 1)
    rig.connections.tick(BEGAN + 2 * FORGET_NS)
    assert (len(rig.connections), rig.connections.open) == (1, 1)
    rig.take(Line(client(1), first=(9, 9)).ask(asking()).answer(JSON))
    assert len([one for one in rig.reported if isinstance(one, ExchangeEnding)]) == 2


def test_connections_are_limited_and_open_streams_are_kept_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 10)
    busy = [Line(client(number)).open().ask(asking()).answer(STREAM) for number in range(4)]
    rig = Rig({8000: None}).take(*busy)
    rig.take(*[Line(client(number)).open() for number in range(100, 200)])
    assert (len(rig.connections), rig.connections.open) == (10, 4)
    rig.take(*[Line(client(number)).open().ask(asking()) for number in range(200, 220)])
    assert len(rig.connections) == 10
    assert {one.ending for one in rig.reported if isinstance(one, ExchangeEnding)} == {Ending.CUT}
    rig.connections.cut(BEGAN)
    assert len(by_stream(rig.reported)) == 24
    assert len(rig.connections) == 0


def test_a_bug_affects_only_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Conversation, at_ns: int, data: bytes) -> None:
        raise ZeroDivisionError

    one, other = (Line(client(number)).open().ask(asking()).answer(STREAM) for number in (1, 2))
    rig = Rig({8000: None}).take(one, other)
    with monkeypatch.context() as patched:
        patched.setattr(Conversation, "response_bytes", fails)
        for at_ns, data in one.answer(CHUNKS[0]).sent[-1:]:
            rig.connections.take(segment(data, at_ns))
    for at_ns, data in other.answer(*WHOLE[1:]).sent[-len(CHUNKS) - 1 :]:
        rig.connections.take(segment(data, at_ns))
    first, second = by_stream(rig.reported)
    assert rig.connections.faults == 1
    assert (type(first[-2]), ended(first).ending) == (ReadsDropped, Ending.CUT)
    assert (arrived(second), ended(second).ending) == (b"".join(WHOLE), Ending.COMPLETE)


def test_a_client_that_raises_ends_only_the_capture() -> None:
    class Failing(DirectClient):
        faults = 0

        def count_fault(self) -> None:
            self.faults += 1

    def fails(message: Message) -> None:
        raise OSError

    client = Failing(fails)
    connections = Connections(CaptureScope(None), Reporting(client, "packets"))
    for at_ns, data in Line().open().ask(asking()).answer(*WHOLE).sent:
        connections.take(segment(data, at_ns))
    connections.tick(BEGAN)
    connections.cut(BEGAN)
    assert (client.faults, connections.faults) == (1, 0)


ENDPOINTS = [bytes([10, 0, 0, host]) + port.to_bytes(2, "big") for host in (1, 2) for port in (5, 8000)]
PAYLOADS = [b"", *WHOLE, asking(), asking()[:30], b"\0", JSON, b"0\r\n\r\n"]
SEGMENTS = st.builds(
    Segment,
    at_ns=st.integers(0, 10**12),
    source=st.sampled_from(ENDPOINTS),
    target=st.sampled_from(ENDPOINTS),
    sequence=st.integers(0, 2**32 - 1) | st.integers(0, 900),
    acknowledged=st.integers(0, 2**32 - 1) | st.integers(0, 900),
    flags=st.integers(0, 255),
    payload=st.sampled_from(PAYLOADS) | st.binary(max_size=40),
)


@given(segments=st.lists(SEGMENTS, max_size=40))
def test_any_segments_give_streams_or_nothing(segments: list[Segment]) -> None:
    rig = Rig(None)
    for one in segments:
        rig.connections.take(one)
        rig.connections.tick(one.at_ns)
    rig.connections.cut(10**12)
    assert rig.connections.faults == len(rig.connections) == 0
    by_stream(rig.reported)


@given(packets=st.lists(st.binary(max_size=90), max_size=10), line=st.randoms(use_true_random=False))
def test_any_bytes_on_the_wire_do_no_harm(packets: list[bytes], line: object) -> None:
    good = [data for _, data in Line().open().ask(asking()).answer(*WHOLE).sent]
    rig = Rig({8000: None})
    for data in [*packets, *good]:
        broken = bytearray(data)
        for _ in range(line.randrange(3)):  # type: ignore[attr-defined]
            place = line.randrange(len(broken) or 1)  # type: ignore[attr-defined]
            broken[place : place + 1] = bytes([line.randrange(256)])  # type: ignore[attr-defined]
        if (one := decode_ip(bytes(broken), 1)) is not None:
            rig.connections.take(one)
    rig.connections.cut(2)
    assert rig.connections.faults == 0
    by_stream(rig.reported)
