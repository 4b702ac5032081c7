"""body.py: every coding, whole and damaged, in any pieces. Limits are checked by the decoded bytes, never by time."""

import gzip
import time
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache, partial

import brotli
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamgauge.core.http1.body import (
    MAX_DECODED_BYTES,
    MAX_RATIO,
    RATIO_FREE_BYTES,
    RATIO_WINDOW_BYTES,
    BodyDecoder,
    DecodeFault,
    Piece,
)
from streamgauge.core.http1.framing import Chunked, Plain, Unframed
from tests.core import cuts
from tests.core.http1.hostile_codings import EMPTY_FRAME, brotli_tables, dense, window_filled
from tests.core.http1.test_coding_members import counted


def raw_deflate(data: bytes) -> bytes:
    coder = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return coder.compress(data) + coder.flush()


ENCODE: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate, raw": raw_deflate,
    "br": partial(brotli.compress, quality=5),  # as servers do; the best quality takes ten times as long
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
HEADER = {name: name.partition(",")[0] for name in ENCODE}
DATA = st.one_of(
    st.binary(max_size=300), st.text(max_size=50).map(str.encode), st.binary(max_size=20).map(lambda part: part * 50)
)


def decode(pieces: list[bytes], coding: str | None) -> tuple[bytes, int, DecodeFault | None, bool]:
    """The result for a body that ends with the connection: bytes, body bytes, fault, whether it is whole."""
    decoder = BodyDecoder(coding=coding)
    out = [decoder.feed(piece) for piece in pieces]
    whole = decoder.finish()
    assert all(piece.rest == b"" for piece in out)
    return b"".join(piece.decoded for piece in out), sum(piece.body_bytes for piece in out), decoder.fault, whole


# --- whole bodies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCODE)
@given(data=DATA, places=cuts.places())
@example(data=b"", places=[])
@example(data=b"a" * 300_000, places=[3, 5])
@settings(max_examples=settings().max_examples // 3)
def test_a_body_is_decoded_in_any_pieces(name: str, data: bytes, places: list[int]) -> None:
    wire = ENCODE[name](data)
    assert decode(cuts.at(wire, places), HEADER[name]) == (data, len(wire), None, True)


@pytest.mark.parametrize("name", ENCODE)
def test_byte_by_byte_and_at_each_split(name: str) -> None:
    data = b"".join(b'data: {"n": %d}\n\n' % number for number in range(40))
    wire = ENCODE[name](data)
    for pieces in cuts.every_way(wire):
        assert decode(pieces, HEADER[name]) == (data, len(wire), None, True)


@pytest.mark.parametrize("name", ["gzip", "x-gzip", "zstd"])
@given(parts=st.lists(DATA, min_size=1, max_size=4), places=cuts.places())
@settings(max_examples=settings().max_examples // 3)
def test_several_members_are_one_body(name: str, parts: list[bytes], places: list[int]) -> None:
    wire = b"".join(ENCODE[name](part) for part in parts)
    assert decode(cuts.at(wire, places), name) == (b"".join(parts), len(wire), None, True)


def test_a_skippable_zstd_frame_is_skipped() -> None:
    skippable = b"\x50\x2a\x4d\x18\x05\x00\x00\x00hello"
    wire = skippable + zstandard.compress(b"a") + skippable + zstandard.compress(b"b")
    for pieces in cuts.every_way(wire):
        assert decode(pieces, "zstd") == (b"ab", len(wire), None, True)


@pytest.mark.parametrize("header", [None, "", "identity", " Identity ", ",", "identity, identity, identity"])
def test_no_coding(header: str | None) -> None:
    assert decode([b"a", b"\xff"], header) == (b"a\xff", 2, None, True)


@pytest.mark.parametrize("outer", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("inner", ["gzip", "deflate", "br", "zstd"])
def test_two_codings_are_removed_in_reverse_order(inner: str, outer: str) -> None:
    data = b"data: hello\n\n" * 20
    wire = ENCODE[outer](ENCODE[inner](data))
    for pieces in ([wire], [wire[index : index + 1] for index in range(len(wire))]):
        assert decode(pieces, f"{inner.upper()},identity ,\t{outer}") == (data, len(wire), None, True)


def test_an_empty_body_is_whole() -> None:
    for name in ENCODE:
        assert decode([], HEADER[name]) == (b"", 0, None, True)


# --- as it arrives ------------------------------------------------------------------------------------------------------


def test_raw_deflate_that_looks_like_a_zlib_wrapper_is_decoded() -> None:
    """Its first two bytes pass the check sum of the wrapper, but do not name the method."""
    likely = (b"%d" % number for number in range(10_000))
    data = next(data for data in likely if int.from_bytes(raw_deflate(data)[:2]) % 31 == 0)
    assert decode([raw_deflate(data)], "deflate") == (data, len(raw_deflate(data)), None, True)


def flushed(coding: str, events: list[bytes]) -> list[bytes]:
    """For each event the bytes that a server sends for it, with a flush."""
    if coding == "br":
        coder = brotli.Compressor(quality=4)
        return [coder.process(event) + coder.flush() for event in events] + [coder.finish()]
    if coding == "zstd":
        frame = zstandard.ZstdCompressor().compressobj()
        block = zstandard.COMPRESSOBJ_FLUSH_BLOCK
        return [frame.compress(event) + frame.flush(block) for event in events] + [frame.flush()]
    bits = {"gzip": 31, "deflate": 15, "deflate, raw": -15}[coding]
    stream = zlib.compressobj(6, zlib.DEFLATED, bits)
    return [stream.compress(event) + stream.flush(zlib.Z_SYNC_FLUSH) for event in events] + [stream.flush()]


EVENTS = [b'data: {"choices":[{"delta":{"content":"token %d"}}]}\n\n' % number for number in range(4000)]


@pytest.mark.parametrize("name", ["gzip", "deflate", "deflate, raw", "br", "zstd"])
def test_each_flush_gives_its_event_at_once(name: str) -> None:
    decoder = BodyDecoder(Chunked(), coding=HEADER[name])
    *sent, last = flushed(name, EVENTS)
    for wire, event in zip(sent, EVENTS, strict=True):
        piece = decoder.feed(b"%x\r\n%b\r\n" % (len(wire), wire))
        assert (piece.decoded, piece.body_bytes, piece.rest) == (event, len(wire), b"")
    assert decoder.feed(b"%x\r\n%b\r\n0\r\n\r\nNEXT" % (len(last), last)).rest == b"NEXT"
    assert decoder.complete
    assert decoder.finish()


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCODE)
@given(data=st.data())
def test_damage_is_found_and_the_output_does_not_depend_on_splits(name: str, data: st.DataObject) -> None:
    wire = bytearray(b"".join(flushed(name.removeprefix("x-"), EVENTS[:30])))
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = bytes(wire)
    bytewise = decode([damaged[index : index + 1] for index in range(len(damaged))], HEADER[name])
    assert decode([damaged], HEADER[name]) == bytewise
    assert decode(cuts.at(damaged, data.draw(cuts.places(len(damaged)))), HEADER[name]) == bytewise
    assert bytewise[1] == len(damaged)


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("events", [50, 4000])
def test_the_bytes_before_the_damage_are_returned(name: str, events: int) -> None:
    *sent, _ = flushed(name, EVENTS[:events])
    wire = b"".join(sent) + b"\xff" * 40
    decoded, body_bytes, fault, _ = decode([wire], HEADER[name])
    assert decoded == b"".join(EVENTS[:events])
    assert (body_bytes, fault) == (len(wire), DecodeFault.CORRUPT)
    assert decode([wire[:1000], wire[1000:]], HEADER[name])[0] == decoded


def test_a_long_damaged_body_gives_the_same_in_all_splits() -> None:
    """The body is longer than the input that a coding keeps."""
    for size in (160_000, 1_300_000):
        noise = b"".join(zlib.crc32(b"%d" % number).to_bytes(4) for number in range(size // 4))
        for name in ("gzip", "br", "zstd"):
            wire = ENCODE[name](noise)
            damage = size * 3 // 4
            damaged = wire[:damage] + b"\0" * 50 + wire[damage + 50 :]
            whole = decode([damaged], name)
            assert whole[2] is (None if name == "br" else DecodeFault.CORRUPT)  # brotli has no check sum
            assert len(whole[0]) > size // 2
            assert decode(cuts.at(damaged, range(0, size, 777)), name) == whole


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_a_wrong_header(name: str) -> None:
    decoded, body_bytes, fault, whole = decode([b"data: plain\n\n", b"data: more\n\n"], name)
    assert (decoded[:5], body_bytes, fault, whole) == (b"", 25, DecodeFault.CORRUPT, False)


@pytest.mark.parametrize("name", ENCODE)
def test_bytes_after_the_codings_end_are_corrupt(name: str) -> None:
    wire = ENCODE[name](b"hello") + b"garbage!"
    for pieces in cuts.every_way(wire):
        assert decode(pieces, HEADER[name]) == (b"hello", len(wire), DecodeFault.CORRUPT, False)


@pytest.mark.parametrize("name", ["deflate", "deflate, raw", "br"])
def test_codings_of_one_member_refuse_a_second_one(name: str) -> None:
    wire = ENCODE[name](b"hello")
    for pieces in ([wire, wire], [wire + wire]):
        assert decode(pieces, HEADER[name]) == (b"hello", 2 * len(wire), DecodeFault.CORRUPT, False)


@pytest.mark.parametrize("name", ENCODE)
def test_a_truncated_coding_is_incomplete(name: str) -> None:
    wire = b"".join(flushed(name.removeprefix("x-"), EVENTS[:3])[:-1])
    assert decode([wire], HEADER[name]) == (b"".join(EVENTS[:3]), len(wire), DecodeFault.INCOMPLETE, False)
    assert decode([wire[:1]], HEADER[name])[2:] == (DecodeFault.INCOMPLETE, False)


def test_a_truncated_framing_is_no_fault_of_the_coding() -> None:
    wire = b"".join(flushed("gzip", EVENTS[:3])[:-1])
    decoder = BodyDecoder(Plain(len(wire) + 100), coding="gzip")
    assert decoder.feed(wire).decoded == b"".join(EVENTS[:3])
    assert not decoder.finish()
    assert (decoder.complete, decoder.fault) == (False, None)


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ("compress", DecodeFault.UNKNOWN_CODING),
        ("gzip, aws-chunked", DecodeFault.UNKNOWN_CODING),
        ("gzip;q=1", DecodeFault.UNKNOWN_CODING),
        ("gzip\0", DecodeFault.UNKNOWN_CODING),
        ("gzip, gzip, gzip", DecodeFault.TOO_MANY_CODINGS),
    ],
)
def test_unknown_codings_are_not_removed(header: str, fault: DecodeFault) -> None:
    assert decode([gzip.compress(b"x")], header) == (b"", 21, fault, False)


def test_a_large_zstd_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=24, write_content_size=False)
    coder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert decode([coder.compress(b"x") + coder.flush()], "zstd")[::2] == (b"", DecodeFault.CORRUPT)


@given(st.binary(max_size=200), st.sampled_from([*HEADER.values(), "gzip, br", "zstd, deflate"]), cuts.places(200))
def test_no_bytes_raise(noise: bytes, header: str, places: list[int]) -> None:
    assert decode(cuts.at(noise, places), header) == decode([noise], header)


# --- bombs -----------------------------------------------------------------------------------------------------------


@cache
def bomb(coding: str) -> bytes:
    """128 MiB of zeros, in one coding or in two: decoded, they exceed each limit by far."""
    inner, _, outer = coding.partition(", ")
    if outer:
        return ENCODE[outer](bomb(inner))
    block, blocks = bytes(1 << 20), 128
    match coding:
        case "gzip":
            zipped = zlib.compressobj(9, zlib.DEFLATED, 31)
            return b"".join(zipped.compress(block) for _ in range(blocks)) + zipped.flush()
        case "zstd":
            shrunk = zstandard.ZstdCompressor().compressobj()
            return b"".join(shrunk.compress(block) for _ in range(blocks)) + shrunk.flush()
        case _:
            broken = brotli.Compressor(quality=5, lgwin=24)
            return b"".join(broken.process(block) for _ in range(blocks)) + broken.finish()


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br", "gzip, gzip", "br, zstd"])
def test_a_bomb_is_stopped_and_its_body_bytes_are_still_counted(coding: str) -> None:
    wire = bomb(coding)
    decoded, body_bytes, fault, whole = decode([wire], coding)
    assert len(decoded) <= RATIO_FREE_BYTES + MAX_RATIO * (len(wire) + RATIO_WINDOW_BYTES)
    assert len(decoded) <= MAX_DECODED_BYTES
    assert (body_bytes, fault, whole) == (len(wire), DecodeFault.BOMB, False)
    assert decode([wire[at : at + 1000] for at in range(0, len(wire), 1000)], coding) == (
        decoded,
        body_bytes,
        fault,
        whole,
    )


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br", "gzip, gzip", "br, zstd"])
def test_p4_a_bomb_does_not_grow_memory(coding: str) -> None:
    """It is fed in reads, and the decoded bytes are discarded."""
    wire, decoder = bomb(coding), BodyDecoder(coding=coding)
    tracemalloc.start()
    for at in range(0, len(wire), 4096):
        decoder.feed(wire[at : at + 4096])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * (RATIO_FREE_BYTES + MAX_RATIO * RATIO_WINDOW_BYTES)
    assert decoder.fault is DecodeFault.BOMB


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gzip", "br", "zstd"])
def test_a_long_body_does_not_grow_memory(name: str) -> None:
    """The input that is kept in case of damage is bounded."""
    noise = b"".join(zlib.crc32(b"%d" % number).to_bytes(4) for number in range(600_000))
    wire = ENCODE[name](noise)
    decoder, decoded = BodyDecoder(coding=name), 0
    tracemalloc.start()
    for at in range(0, len(wire), 4096):
        decoded += len(decoder.feed(wire[at : at + 4096]).decoded)
    growth = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert decoded == len(noise)
    assert decoder.finish()
    assert growth < len(wire) // 4


def test_a_dense_part_of_a_long_body_is_no_bomb() -> None:
    """The ratio is that of all body bytes so far, and the first MiBs do not count."""
    for coding in ("gzip", "br", "zstd"):
        data = b"data: the same event over and over\n\n" * 100_000
        assert decode([ENCODE[coding](data)], coding)[::2] == (data, None)


def test_the_absolute_limit() -> None:
    noise = b"".join(zlib.crc32(b"%d" % number).to_bytes(4) for number in range(50_000))
    for pieces in (1, 7, 3000):
        decoder = BodyDecoder(coding="gzip", max_decoded=150_000)
        wire = gzip.compress(noise)
        step = -(-len(wire) // pieces)
        out = [decoder.feed(wire[at : at + step]) for at in range(0, len(wire), step)]
        assert b"".join(piece.decoded for piece in out) == noise[:150_000]
        assert sum(piece.body_bytes for piece in out) == len(wire)
        assert decoder.fault is DecodeFault.TOO_LARGE


def test_a_plain_body_has_no_limit() -> None:
    decoder = BodyDecoder(max_decoded=10)
    assert decoder.feed(b"x" * 1000).decoded == b"x" * 1000
    assert decoder.finish()


# --- work ------------------------------------------------------------------------------------------------------------

EMPTY_MEMBER = gzip.compress(b"", mtime=0)
# CPU seconds in which bodies of some 100 KB were decoded several times slower before; now each takes less than a tenth.
SECONDS = 2.0


def cpu_seconds(wire: bytes, coding: str, piece: int = 64 * 1024) -> float:
    """CPU seconds of decoding in reads of that size."""
    decoder = BodyDecoder(coding=coding)
    begun = time.process_time()
    for at in range(0, len(wire), piece):
        decoder.feed(wire[at : at + piece])
    return time.process_time() - begun


@pytest.mark.parametrize(
    ("coding", "inner"),
    [
        ("gzip, gzip", lambda: EMPTY_MEMBER * 2_200_000),
        ("zstd, gzip", lambda: EMPTY_FRAME * 300_000),
        ("br, gzip", lambda: brotli_tables(command=8, blocks=4_000)),
    ],
    ids=["members", "frames", "tables"],
)
def test_a_coding_within_a_coding_is_limited_by_the_bytes_between_them(coding: str, inner: Callable[[], bytes]) -> None:
    """Data that is compressed again does not shrink to a hundredth; a small body could cause unlimited work."""
    wire = gzip.compress(inner(), 9)
    assert cpu_seconds(wire, coding) < SECONDS
    whole = decode([wire], coding)
    assert whole[1:] == (len(wire), DecodeFault.BOMB, False)
    assert decode([wire[at : at + 333] for at in range(0, len(wire), 333)], coding) == whole


@pytest.mark.parametrize(
    ("coding", "inner"), [("gzip, gzip", EMPTY_MEMBER), ("zstd, gzip", EMPTY_FRAME)], ids=["members", "frames"]
)
def test_empty_members_within_a_coding_count(coding: str, inner: bytes) -> None:
    """It has fewer bytes than one coding may pass to another without a limit: a body of some hundred bytes that begins
    5,000 decoders.
    """
    wire = gzip.compress(inner * 5_000, 9)
    assert len(wire) < 1_000
    assert decode([wire], coding)[1:] == (len(wire), DecodeFault.BOMB, False)


def test_frames_without_content_share_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Creating a context for each frame took 15 us: 2 s a MiB."""
    contexts = counted(monkeypatch)
    wire = EMPTY_FRAME * 5_000
    assert decode([wire], "zstd") == (b"", len(wire), None, True)
    assert decode([wire[at : at + 5] for at in range(0, len(wire), 5)], "zstd") == (b"", len(wire), None, True)
    assert contexts() == 2


@pytest.mark.parametrize("outer", ["gzip", "br", "zstd"])
def test_only_little_is_decoded_byte_by_byte_in_a_small_damaged_body(outer: str) -> None:
    """A body of 30 bytes: 40,000 blocks without content, then one of an invalid kind. Each took 0.1 to 0.3 s before."""
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + b"\0\0\0" * 43_000 + b"\x06\0\0"
    wire = ENCODE[outer](frame)
    assert decode([wire], f"zstd, {outer}")[2] is DecodeFault.CORRUPT
    assert sum(cpu_seconds(wire, f"zstd, {outer}") for _ in range(30)) < SECONDS


HONEST = EVENTS + [b": keep-alive\n\n"] * 2000


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_a_server_that_flushes_after_each_event_exceeds_no_limit(name: str) -> None:
    wire = b"".join(flushed(name, HONEST))
    assert decode([wire], name) == (b"".join(HONEST), len(wire), None, True)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_a_server_that_makes_a_member_of_each_event_exceeds_no_limit(name: str) -> None:
    members = [ENCODE[name](event) for event in HONEST]
    wire = b"".join(members)
    assert decode(members, name) == (b"".join(HONEST), len(wire), None, True)
    assert decode([wire], name) == (b"".join(HONEST), len(wire), None, True)


@pytest.mark.parametrize("outer", ["gzip", "br", "zstd"])
@pytest.mark.parametrize("inner", ["gzip", "br", "zstd"])
def test_a_proxy_that_compresses_again_exceeds_no_limit(inner: str, outer: str) -> None:
    """Real events: their texts differ."""
    events = [b'data: {"choices":[{"delta":{"content":"%x"}}]}\n\n' % zlib.crc32(event) for event in EVENTS]
    wire = b"".join(flushed(outer, flushed(inner, events)))
    assert decode([wire], f"{inner}, {outer}") == (b"".join(events), len(wire), None, True)
    wire = ENCODE[outer](b"".join(flushed(inner, events)))
    assert decode([wire], f"{inner}, {outer}") == (b"".join(events), len(wire), None, True)


# --- memory ----------------------------------------------------------------------------------------------------------


class Bounded:
    """A `Memory` with a limit for each decoder, which evicts none. `most`: the largest amount that a decoder held."""

    def __init__(self, bound: int = 1 << 40) -> None:
        self.sizes: dict[BodyDecoder, int] = {}
        self.most, self._bound = 0, bound

    def reserve(self, holder: BodyDecoder, size: int) -> bool:
        if size > max(self._bound, self.sizes.get(holder, 0)):
            return False
        self.sizes[holder] = size
        self.most = max(self.most, size)
        return True


MIB = 1024 * 1024


@pytest.mark.parametrize(("coding", "window"), [("br", 16 * MIB), ("zstd", 8 * MIB), ("zstd, br", 8 * MIB)])
def test_an_open_body_holds_its_windows_until_its_release(coding: str, window: int) -> None:
    memory = Bounded()
    decoder = BodyDecoder(coding=coding, memory=memory)
    decoder.feed(window_filled(coding))
    assert window <= memory.sizes[decoder] < window + 7 * MIB
    decoder.release()
    assert memory.sizes[decoder] == 0
    assert decoder.feed(b"more") == (Piece(4, b"", b""))


def test_the_second_decoder_of_a_long_body_counts_too() -> None:
    noise = b"".join(zlib.crc32(b"%d" % number).to_bytes(4) for number in range(500_000))
    wire = ENCODE["zstd"](noise)
    memory = Bounded()
    decoder = BodyDecoder(coding="zstd", memory=memory)
    decoder.feed(wire[:400_000])
    assert memory.sizes[decoder] < 1.5 * MIB
    decoder.feed(wire[400_000:-1])
    assert memory.sizes[decoder] > 2 * len(noise)


@pytest.mark.parametrize("name", ENCODE)
def test_a_member_that_has_ended_holds_nothing(name: str) -> None:
    memory = Bounded()
    decoder = BodyDecoder(coding=HEADER[name], memory=memory)
    wire = ENCODE[name](b"hello")
    decoder.feed(wire[:-1])
    assert memory.sizes[decoder] > 0
    decoder.feed(wire[-1:])
    assert memory.sizes[decoder] == 0 or name == "zstd"  # a frame passes its context on to the next one
    decoder.release()
    assert memory.sizes[decoder] == 0


@pytest.mark.parametrize("coding", ["br", "zstd", "zstd, br"])
def test_a_body_without_memory_is_too_large_and_its_bytes_are_still_counted(coding: str) -> None:
    wire, memory = window_filled(coding), Bounded(4 * MIB)
    decoder = BodyDecoder(Plain(len(wire)), coding=coding, memory=memory)
    piece = decoder.feed(wire)
    assert (piece.body_bytes, decoder.fault, memory.sizes[decoder]) == (len(wire), DecodeFault.TOO_LARGE, 0)
    assert memory.most <= 4 * MIB
    assert 0 < len(piece.decoded) < 5 * MIB
    assert dense(40 * MIB).startswith(piece.decoded)
    assert decoder.complete
    assert not decoder.finish()


def test_an_evicted_body_is_too_large() -> None:
    memory = Bounded()
    decoder = BodyDecoder(coding="gzip", memory=memory)
    wire = b"".join(flushed("gzip", EVENTS[:100]))
    assert decoder.feed(wire[:500]).decoded
    decoder.evict()
    assert (decoder.fault, memory.sizes[decoder]) == (DecodeFault.TOO_LARGE, 0)
    assert decoder.feed(wire[500:]) == Piece(len(wire) - 500, b"", b"")
    assert not decoder.finish()


@pytest.mark.parametrize("wrong", [b"\xff" * 9, gzip.compress(bytes(1 << 25))])
def test_a_fault_returns_the_memory(wrong: bytes) -> None:
    memory = Bounded()
    decoder = BodyDecoder(coding="gzip", memory=memory)
    decoder.feed(wrong)
    assert decoder.fault in (DecodeFault.CORRUPT, DecodeFault.BOMB)
    assert memory.sizes.get(decoder, 0) == 0


def test_bad_framing_returns_the_memory() -> None:
    memory = Bounded()
    decoder = BodyDecoder(Chunked(), coding="gzip", memory=memory)
    decoder.feed(b"a\r\n%b\r\n" % EMPTY_MEMBER[:10])
    assert memory.sizes[decoder] > 0
    decoder.feed(b"zz\r\n")
    assert (decoder.fault, memory.sizes[decoder]) == (DecodeFault.BAD_FRAMING, 0)


# --- with framing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCODE)
@given(data=DATA, sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8), places=cuts.places())
@settings(max_examples=settings().max_examples // 3)
def test_chunks_and_coding_are_cut_independently(name: str, data: bytes, sizes: list[int], places: list[int]) -> None:
    wire, rest, body = b"", ENCODE[name](data), 0
    while rest:
        size = sizes[len(rest) % len(sizes)]
        wire += b"%x;ext=1\r\n%b\r\n" % (len(rest[:size]), rest[:size])
        body += len(rest[:size])
        rest = rest[size:]
    decoder = BodyDecoder(Chunked(), coding=HEADER[name])
    out = [decoder.feed(piece) for piece in cuts.at(wire + b"0\r\nTrailer: x\r\n\r\nHTTP/1.1", places)]
    assert b"".join(piece.decoded for piece in out) == data
    assert sum(piece.body_bytes for piece in out) == body
    assert b"".join(piece.rest for piece in out) == b"HTTP/1.1"
    assert decoder.finish()


def test_bad_framing_stops_the_decoding() -> None:
    decoder = BodyDecoder(Chunked())
    piece = decoder.feed(b"5\r\nhello\r\nzz\r\nmore")
    assert (piece.decoded, piece.body_bytes, piece.rest) == (b"hello", 5, b"")
    assert decoder.feed(b"5\r\nhello\r\n").body_bytes == 0
    assert (decoder.complete, decoder.fault, decoder.finish()) == (False, DecodeFault.BAD_FRAMING, False)


def test_framing_continues_after_a_coding_fault() -> None:
    decoder = BodyDecoder(Chunked(), coding="gzip")
    decoder.feed(b"5\r\nhello\r\n")
    assert decoder.fault is DecodeFault.CORRUPT
    piece = decoder.feed(b"3\r\nabc\r\n0\r\n\r\nX")
    assert (piece.body_bytes, piece.decoded, piece.rest) == (3, b"", b"X")
    assert decoder.complete
    assert not decoder.finish()


def test_the_first_fault_stays() -> None:
    decoder = BodyDecoder(Chunked(), coding="compress")
    decoder.feed(b"zz\r\n")
    assert decoder.fault is DecodeFault.UNKNOWN_CODING
    assert not decoder.complete


def test_a_body_of_unknown_length_has_bad_framing() -> None:
    decoder = BodyDecoder(Unframed(), coding="compress")
    assert decoder.fault is DecodeFault.BAD_FRAMING
    assert decoder.feed(b"abc").body_bytes == 0
    assert not decoder.finish()
    assert not decoder.complete
