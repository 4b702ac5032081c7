"""framing.py against RFC 9112, with h11 and httptools as oracles."""

import contextlib
import itertools
import os
import shutil
import sys
import tracemalloc

import h11
import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.http1.framing import (
    MAX_CHUNK_LINE,
    MAX_TRAILER_BYTES,
    BodyPosition,
    Chunked,
    Phase,
    Plain,
    read_chunks,
    read_in_python,
)
from tests.core import cuts

pytestmark = pytest.mark.usefixtures("chunk_reader")


def read(pieces: list[bytes], framing: Chunked | Plain) -> tuple[bytes, bytes, bool, bool]:
    """Body, rest, complete, broken."""
    body = rest = b""
    for piece in pieces:
        more, after = framing.feed(piece)
        body, rest = body + more, rest + after
    framing.end()
    return body, rest, framing.complete, framing.broken


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def by_h11(wire: bytes) -> tuple[bytes, bool]:
    """Body, and whether it is whole. Raises h11.RemoteProtocolError."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "h")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(HEAD + wire)
    body = b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Data):
            body += event.data
        elif event is h11.NEED_DATA or isinstance(event, h11.EndOfMessage):
            return body, event is not h11.NEED_DATA


class ByHttptools:
    """Body, and whether it is whole."""

    def __init__(self, wire: bytes) -> None:
        self.body, self.complete = b"", False
        httptools.HttpResponseParser(self).feed_data(HEAD + wire)

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


EXTENSIONS = st.sampled_from(
    [b"", b";a", b";a=b", b';name="quoted value"', b";a=1;b=2", b";chunk-signature=" + b"0" * 64]
)


@st.composite
def chunked_wires(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A body, and one of the ways to send it in chunks."""
    wire = body = b""
    for data in draw(st.lists(st.binary(min_size=1, max_size=40), max_size=6)):
        size = b"%x" % len(data)
        size = draw(st.sampled_from([size, size.upper(), b"0" + size, b"0" * 7 + size]))
        wire += size + draw(EXTENSIONS) + b"\r\n" + data + b"\r\n"
        body += data
    trailers = draw(st.sampled_from([b"", b"A: b\r\n", b"Server-Timing: x;dur=1\r\nB: c\r\n"]))
    return body, wire + draw(st.sampled_from([b"0", b"000"])) + draw(EXTENSIONS) + b"\r\n" + trailers + b"\r\n"


@given(chunked_wires(), st.binary(max_size=10), cuts.places(300))
def test_chunks_are_removed_as_by_h11_and_httptools(
    sent: tuple[bytes, bytes], behind: bytes, places: list[int]
) -> None:
    body, wire = sent
    assert by_h11(wire) == (body, True)
    peer = ByHttptools(wire)
    assert (peer.body, peer.complete) == (body, True)
    assert read(cuts.at(wire + behind, places), Chunked()) == (body, behind, True, False)


@given(chunked_wires(), st.data())
def test_a_truncated_body_is_incomplete_and_its_bytes_are_returned(
    sent: tuple[bytes, bytes], data: st.DataObject
) -> None:
    wire = sent[1][: data.draw(st.integers(0, len(sent[1]) - 1))]
    body, complete = by_h11(wire)
    assert read([wire], Chunked()) == (body, b"", complete, False)
    assert not complete


SCRAPS = st.sampled_from(
    [b"0", b"5", b"a", b"\r\n", b"\n", b"\r", b";x", b" ", b"hello", b"\0", b"\xff", b"5\r\nhello\r\n", b"0\r\n"]
)


@given(st.lists(SCRAPS | st.binary(max_size=3), max_size=14).map(b"".join), cuts.places(60))
def test_splits_change_nothing_and_nothing_raises(wire: bytes, places: list[int]) -> None:
    whole = read([wire], Chunked())
    assert read(cuts.at(wire, places), Chunked()) == whole
    assert read([wire[index : index + 1] for index in range(len(wire))], Chunked()) == whole
    if b"\n" in wire.replace(b"\r\n", b""):
        return  # h11 does not accept a bare LF as a line end, and waits for one
    # It is stricter than this observer in more: a control character in a trailer.
    with contextlib.suppress(h11.RemoteProtocolError):
        assert (whole[0], whole[2]) == by_h11(wire) or whole[3]


@pytest.mark.parametrize("wire", [b"5\nhello\n0\n\n", b"5\r\nhello\n0\r\n\n", b"5 \r\nhello\r\n0\r\n\r\n"])
def test_tolerated_framing(wire: bytes) -> None:
    for pieces in cuts.every_way(wire):
        assert read(pieces, Chunked()) == (b"hello", b"", True, False)


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (b"\r\n", b""),
        (b"x\r\n", b""),
        (b"-5\r\nhello\r\n", b""),
        (b"+5\r\nhello\r\n", b""),
        (b"0x5\r\nhello\r\n", b""),
        (b"1_0\r\nhello", b""),
        (b" 5\r\nhello\r\n", b""),
        (b"5 5\r\nhello\r\n", b""),
        (b";a\r\n", b""),
        (b"1" + b"0" * 15 + b"\r\n", b""),
        (b"5\r\nhelloX\r\n0\r\n\r\n", b"hello"),
        (b"5\r\nhello5\r\nhello\r\n", b"hello"),
        (b"5\r\nhello\r\n\r\n", b"hello"),
        (b"5;" + b"e" * MAX_CHUNK_LINE + b"\r\nhello\r\n0\r\n\r\n", b""),
        (
            b"5\r\nhello\r\n0\r\n" + (b"t: " + b"x" * 1000 + b"\r\n") * (MAX_TRAILER_BYTES // 1000 + 1) + b"\r\n",
            b"hello",
        ),
    ],
)
def test_broken_framing(wire: bytes, body: bytes) -> None:
    assert read([wire], Chunked()) == (body, b"", False, True)
    assert read([wire[index : index + 1] for index in range(len(wire))], Chunked()) == (body, b"", False, True)
    framing = Chunked()
    read([wire], framing)
    assert framing.feed(b"5\r\nhello\r\n") == (b"", b"")


@pytest.mark.parametrize("size", [MAX_CHUNK_LINE - 1, MAX_CHUNK_LINE, MAX_CHUNK_LINE + 1])
def test_the_longest_line_does_not_depend_on_splits(size: int) -> None:
    wire = b"5;".ljust(size, b"e") + b"\r\nhello\r\n0\r\n\r\n"
    broken = size + 1 > MAX_CHUNK_LINE  # the CR counts
    for pieces in ([wire], cuts.at(wire, [size]), cuts.at(wire, [size + 1]), cuts.at(wire, [size - 1, size + 1])):
        assert read(pieces, Chunked())[3] is broken


def test_an_endless_line_is_not_buffered() -> None:
    framing = Chunked()
    tracemalloc.start()
    for _ in range(1000):
        framing.feed(b"5;" + b"x" * 10_000)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert framing.broken
    assert kept < 100_000


@given(st.binary(max_size=30), st.integers(0, 40), cuts.places(40))
def test_a_length_ends_the_body(data: bytes, length: int, places: list[int]) -> None:
    body, rest, complete, broken = read(cuts.at(data, places), Plain(length))
    assert (body, rest) == (data[:length], data[length:])
    assert complete is (len(data) >= length)
    assert not broken


def test_a_body_of_length_0_is_complete_at_once() -> None:
    assert Plain(0).complete
    assert Plain(0).feed(b"next") == (b"", b"next")


def test_without_length_the_end_of_the_connection_completes_it() -> None:
    framing = Plain(None)
    assert framing.feed(b"abc") == (b"abc", b"")
    assert not framing.complete
    framing.end()
    assert framing.complete


CHUNKS = st.binary(min_size=1, max_size=30).map(lambda data: b"%x\r\n%b\r\n" % (len(data), data))
# Data that resembles the end of one chunk and the beginning of another.
MISLEADING = st.sampled_from([b"\r\n5\r\n", b"a\r\n1\r\nb", b"\r\n", b"\n\r\n2\r\n", b"0\r\n\r\n"]).map(
    lambda data: b"%x\r\n%b\r\n" % (len(data), data)
)


@given(st.lists(CHUNKS | MISLEADING, min_size=1, max_size=8), cuts.places(200))
def test_chunks_that_contain_line_ends_are_removed_in_any_pieces(chunks: list[bytes], places: list[int]) -> None:
    wire = b"".join(chunks) + b"0\r\n\r\n"
    assert read(cuts.at(wire, places), Chunked()) == (by_h11(wire)[0], b"", True, False)


# --- the readers of chunks in C and in Python -------------------------------------------------------------------------

USUAL = st.binary(min_size=1, max_size=40).map(lambda data: b"%x\r\n%b\r\n" % (len(data), data))
SIZES = st.sampled_from(
    [
        b"0\r\n",
        b"00003\r\nabc\r\n",
        b"0000003\r\nabc\r\n",
        b"00000003\r\nabc\r\n",
        b"fffffff\r\n",
        b"10000000\r\n",
        b"A\r\n",
    ]
)


BODY = b"0a\r\n0123456789\r\nABC\r\n" + b"x" * 0xABC + b"\r\n1\r\ny\r\n0\r\n\r\n"


def test_both_readers_agree_on_each_change_of_one_byte() -> None:
    """Each byte of a size line, and of the line end after data, in place of each other byte, and cut after each byte."""
    wire = b"3\r\nabc\r\n1F\r\n" + b"y" * 31 + b"\r\n0\r\n\r\n"
    for at, byte in itertools.product(range(len(wire)), range(256)):
        changed = wire[:at] + bytes((byte,)) + wire[at + 1 :]
        assert read_chunks(changed, 0, 0) == read_in_python(changed, 0, 0), changed
    for end, left in itertools.product(range(len(wire) + 1), (0, 1, 3, 40)):
        assert read_chunks(wire[:end], 0, left) == read_in_python(wire[:end], 0, left), (end, left)


@pytest.mark.parametrize("digits", range(1, 10))
def test_both_readers_agree_on_sizes_of_any_length(digits: int) -> None:
    for size in (b"0" * digits, b"1" * digits, b"0" * (digits - 1) + b"2", b"F" * digits, b"f" * digits):
        wire = size + b"\r\nab\r\n1\r\nc\r\n"
        assert read_chunks(wire, 0, 0) == read_in_python(wire, 0, 0), wire


def test_the_reader_in_c_reads_no_byte_after_its_data() -> None:
    """The bytes after the end of a view would complete each chunk."""
    if read_chunks is read_in_python:
        pytest.skip("it is not built: it needs Linux and a C compiler")
    for end, left in itertools.product(range(60), (0, 1, 2, 12)):
        view = memoryview(BODY)[:end]
        assert read_chunks(view, 0, left) == read_in_python(BODY[:end], 0, left), (end, left)  # type: ignore[arg-type]


def test_the_reader_in_c_is_built_where_it_can_be() -> None:
    if not sys.platform.startswith("linux") or shutil.which(os.environ.get("CC") or "cc") is None:
        pytest.skip("no Linux, or no C compiler")
    assert read_chunks is not read_in_python, "python scripts/build_native.py"


@given(
    st.lists(USUAL | SIZES | SCRAPS | st.binary(max_size=3), max_size=10).map(b"".join),
    st.integers(0, 20),
    st.integers(0, 20) | st.integers(0, 2**60),
)
def test_both_readers_of_chunks_give_the_same(wire: bytes, begin: int, left: int) -> None:
    begin = min(begin, len(wire))
    body, at, still, whole = read_in_python(wire, begin, left)
    assert read_chunks(wire, begin, left) == (body, at, still, whole)
    assert begin <= at <= len(wire)
    assert not (still and at < len(wire))  # it stops inside of data only at the end of the bytes


@pytest.mark.parametrize("arguments", [(b"abc", 4, 0), (b"abc", -1, 0), (b"abc", 0, -1)])
def test_the_reader_in_c_refuses_offsets_outside_of_the_data(arguments: tuple[bytes, int, int]) -> None:
    if read_chunks is read_in_python:
        pytest.skip("it is not built")
    with pytest.raises(ValueError, match="read_chunks"):
        read_chunks(*arguments)


def test_a_size_after_data_that_the_pump_moved_begins_a_new_chunk() -> None:
    """The bytes left of an earlier chunk must not count for the next one."""
    framing = Chunked()
    framing.feed(b"a\r\n123")
    framing.continue_at(BodyPosition(Phase.SIZE_BEGIN, 0))
    assert framing.feed(b"3\r\nabc\r\n0\r\n\r\n") == (b"abc", b"")
    assert framing.complete
