"""WebSocket frames into events: against wsproto, in any pieces, with hostile lengths, masks and fragments."""

import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.frame_protocol import CloseReason, FrameProtocol, Opcode, ParseFailed

from streamgauge.core.formats.sse import CUT_HEAD, CUT_TAIL, Event
from streamgauge.core.formats.websocket import NO_CODE, WebSocketReader
from tests.core.cuts import at, places
from tests.core.formats.framed import datas, splits_change_nothing
from tests.core.formats.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    MASK,
    PING,
    PONG,
    TEXT,
    close,
    frame,
    from_client,
    from_server,
)

MASKS = st.sampled_from((None, b"\0\0\0\0", MASK, b"\xff\0\xff\0"))
PAYLOADS = st.one_of(
    st.sampled_from(
        (b"", b'{"type":"error"}', b"{}", "ü€".encode(), b"x" * 125, b"x" * 126, b"x" * 65_535, b"x" * 65_536)
    ),
    st.binary(max_size=20),
    st.text(max_size=20).map(str.encode),
)
LENGTHS = st.sampled_from((None, None, None, None, 0, 5, 126, 70_000, 1 << 40, 1 << 63, (1 << 64) - 1))


@st.composite
def frames(draw: Any) -> bytes:
    """A frame, most often one that the protocol allows."""
    opcode = draw(st.sampled_from((TEXT, TEXT, TEXT, CONTINUATION, BINARY, CLOSE, PING, PONG, 3, 11)))
    payload = draw(PAYLOADS)
    if opcode == CLOSE:
        code = draw(st.sampled_from((b"", b"\x03\xe8", b"\x03\xf3bye", b"\x03\xed", b"\x03", b"\x0f\xa0", b"\x13\x88")))
        return close(None, mask=draw(MASKS)) if not code else frame(code, CLOSE, mask=draw(MASKS))
    reserved = draw(st.sampled_from((0, 0, 0, 0, 0, 0, 4)))
    final = draw(st.sampled_from((True, True, False)))
    return frame(payload, opcode, final=final, mask=draw(MASKS), reserved=reserved, length=draw(LENGTHS))


CONTENTS = st.one_of(
    st.lists(frames(), max_size=8).map(b"".join),
    # What goes well for long: one side's frames, as it must write them.
    st.lists(st.tuples(PAYLOADS, st.sampled_from((TEXT, BINARY, PING))), max_size=8).map(
        lambda listed: b"".join(frame(payload[:125], opcode, mask=MASK) for payload, opcode in listed)
    ),
    st.lists(PAYLOADS, max_size=6).map(lambda texts: from_server(*texts)),
)


def read(pieces: Iterable[bytes], *, client: bool = False, cap: int = 1 << 20) -> tuple[list[Event], int | None, bool]:
    reader = WebSocketReader(from_client=client, max_event_bytes=cap)
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events, reader.closed, reader.fault


class ByWsproto:
    """What wsproto reads: texts, the code of a close, and the code with which it refuses a frame."""

    def __init__(self, *, client: bool) -> None:
        self.texts: list[bytes] = []
        self.closed: int | None = None
        self.refused: int | None = None
        self._text = b""
        self._protocol = FrameProtocol(client=not client, extensions=[])

    def feed(self, data: bytes) -> "ByWsproto":
        self._protocol.receive_bytes(data)
        try:
            for got in self._protocol.received_frames():
                if got.opcode is Opcode.CLOSE:
                    assert isinstance(got.payload, tuple)
                    self.closed = int(got.payload[0])
                elif got.opcode is Opcode.TEXT:
                    assert isinstance(got.payload, str)
                    self._text += got.payload.encode()
                    if got.message_finished:
                        self.texts.append(self._text)
                        self._text = b""
        except ParseFailed as fault:
            self.refused = int(fault.code)
        return self


@given(CONTENTS, st.booleans(), places())
def test_it_reads_what_wsproto_reads(content: bytes, client: bool, cut: list[int]) -> None:
    events, closed, fault = read(at(content, cut), client=client)
    other = ByWsproto(client=client)
    for piece in at(content, cut):
        if other.refused is None and other.closed is None:
            other.feed(piece)
    if fault and other.refused is None:  # wsproto checks the order of fragments when a payload comes
        other.feed(b"\0" * 20)
    # JSON texts are on one line, without blanks around them.
    texts = [text.strip(b" \t\r\n").replace(b"\r", b" ").replace(b"\n", b" ") for text in other.texts]
    assert datas(events)[: len(texts)] == texts
    if other.refused != CloseReason.INVALID_FRAME_PAYLOAD_DATA:  # no UTF-8: replaced here, as in other framings
        assert (len(events), closed, fault) == (len(texts), other.closed, other.refused is not None)


@given(CONTENTS, st.booleans(), st.sampled_from((1, 20, 1 << 20)))
def test_splits_change_nothing(content: bytes, client: bool, cap: int) -> None:
    content = content[:100]
    splits_change_nothing(lambda: WebSocketReader(from_client=client, max_event_bytes=cap), content)
    whole = read([content], client=client, cap=cap)
    assert read([content[place : place + 1] for place in range(len(content))], client=client, cap=cap) == whole


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("client", [True, False])
def test_lengths_and_masks(size: int, client: bool) -> None:
    text = (b'{"a":"' + b"x" * size)[:size]
    content = frame(text, mask=MASK if client else None) + frame(b"{}", mask=MASK if client else None)
    reader = WebSocketReader(from_client=client)
    events = [event for place in range(0, len(content), 7) for event in reader.feed(content[place : place + 7])]
    assert datas(events) == [text, b"{}"]
    assert (reader.pending_bytes, reader.closed, reader.fault) == (0, None, False)


def test_fragments_are_joined_around_control_frames() -> None:
    content = b"".join(
        (
            frame(b'{"a"', final=False, mask=MASK),
            frame(b"ping", PING, mask=MASK),
            frame(b":", CONTINUATION, final=False, mask=b"\0\1\2\3"),
            frame(b"", CONTINUATION, final=False, mask=MASK),
            frame(b"1}", CONTINUATION, mask=MASK),
        )
    )
    reader = WebSocketReader(from_client=True)
    assert datas(reader.feed(content)) == [b'{"a":1}']
    assert reader.sizes == [7]


def test_binary_messages_give_no_event() -> None:
    content = frame(b"{}", BINARY, final=False) + frame(b"{}", CONTINUATION) + frame(b"[]")
    assert datas(read([content])[0]) == [b"[]"]


@pytest.mark.parametrize(
    ("content", "code"),
    [(close(None), NO_CODE), (close(), 1000), (close(1011, b"why"), 1011), (close(4999), 4999)],
)
def test_a_close_ends_the_direction(content: bytes, code: int) -> None:
    events, closed, fault = read([from_server(b"{}"), content + from_server(b"[]")])
    assert (datas(events), closed, fault) == ([b"{}"], code, False)


@pytest.mark.parametrize(
    ("content", "client"),
    [
        (from_server(b"{}"), True),
        (from_client(b"{}"), False),
        (frame(b"", PING, mask=MASK), False),
        (frame(b"{}", reserved=4), False),
        (frame(b"{}", 3), False),
        (frame(b"{}", 11), False),
        (frame(b"{}", CONTINUATION), False),
        (frame(b"{", final=False) + frame(b"}"), False),
        (frame(b"", PING, final=False), False),
        (frame(b"x" * 126, PING), False),
        (frame(b"", length=1 << 63), False),
        (frame(b"", length=(1 << 64) - 1, mask=MASK), True),
        (b"\x81\x7e\x00\x7d" + b"x" * 125, False),  # a length of two bytes where one is enough
        (b"\x81\x7f" + (65_535).to_bytes(8), False),
        (frame(b"\x03", CLOSE), False),
        (close(1005), False),
        (close(1006), False),
        (close(999), False),
        (close(5000), False),
    ],
)
def test_a_frame_that_breaks_the_protocol_is_a_fault(content: bytes, client: bool) -> None:
    after = from_client(b"[]") if client else from_server(b"[]")
    reader = WebSocketReader(from_client=client)
    assert reader.feed(content + after) == []
    assert (reader.fault, reader.closed, reader.pending_bytes, reader.finish()) == (True, None, 0, None)
    assert reader.feed(after) == []
    assert ByWsproto(client=client).feed(content + after).refused == CloseReason.PROTOCOL_ERROR


def test_a_message_over_the_cap_keeps_its_ends_and_others_follow() -> None:
    long = b'{"first":1,' + b"x" * (CUT_HEAD + CUT_TAIL) + b',"last":2}'
    reader = WebSocketReader(from_client=True, max_event_bytes=CUT_HEAD)
    content = from_client(long, b"{}")
    events = [event for place in range(0, len(content), 1000) for event in reader.feed(content[place : place + 1000])]
    assert events == [Event(oversized=True, cut=(long[:CUT_HEAD], long[-CUT_TAIL:])), Event("", b"{}")]


def test_a_discarded_message_is_oversized_and_the_next_one_is_read() -> None:
    reader = WebSocketReader(from_client=False)
    reader.feed(frame(b'{"a":1}')[:5])
    reader.discard()
    assert reader.feed(frame(b'{"a":1}')[5:] + frame(b"{}")) == [Event(oversized=True), Event("", b"{}")]


@pytest.mark.parametrize("kind", ["one frame of 2**63 - 1 bytes", "fragments without end", "empty fragments", "pings"])
@pytest.mark.parametrize("client", [True, False])
def test_endless_input_takes_bounded_memory(kind: str, client: bool) -> None:
    cap, mask = 64 * 1024, MASK if client else None
    reader = WebSocketReader(from_client=client, max_event_bytes=cap)
    match kind:
        case "one frame of 2**63 - 1 bytes":
            first, piece = frame(b"", length=(1 << 63) - 1, mask=mask), b"x" * 10_000
        case "fragments without end":
            first, piece = (
                frame(b"{", final=False, mask=mask),
                frame(b"x" * 9_990, CONTINUATION, final=False, mask=mask),
            )
        case "empty fragments":
            first, piece = frame(b"{", final=False, mask=mask), frame(b"", CONTINUATION, final=False, mask=mask) * 1_000
        case _:
            first, piece = frame(b"{", final=False, mask=mask), frame(b"x" * 125, PING, mask=mask) * 80
    tracemalloc.start()
    try:
        reader.feed(first)
        for _ in range(400):
            assert reader.feed(piece) == []
            assert reader.pending_bytes <= cap + 10_000
        assert tracemalloc.get_traced_memory()[1] < 4 * cap
    finally:
        tracemalloc.stop()
    assert not reader.fault
