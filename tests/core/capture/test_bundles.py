"""Bundles as bytes: decoding inverts encoding, and other bytes are refused with a reason of a closed set."""

import random
import tracemalloc

import msgspec
import pytest
import zstandard

from streamgauge.core.capture import bundles
from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle, encode_bundle, without_reads
from streamgauge.core.capture.segments import (
    FORMAT_VERSION,
    SLOTS,
    Bundle,
    Ending,
    Head,
    Loss,
    Opening,
    RateLimit,
    Read,
    RequestFacts,
    Segment,
    StreamEnding,
)
from tests.streams import INSTANCE, bundles_of, interleaved

GOOD = encode_bundle(bundles_of(interleaved(3))[0])
HEAD = GOOD[:3]


def packed(content: object, **how: bool) -> bytes:
    return HEAD + zstandard.ZstdCompressor(**how).compress(msgspec.msgpack.encode(content))  # type: ignore[arg-type]


@pytest.mark.parametrize("number", range(3))
def test_decoding_inverts_encoding(number: int) -> None:
    bundle = bundles_of(interleaved(5, seed=number))[number]
    assert decode_bundle(encode_bundle(bundle)) == bundle


def test_the_head_identifies_a_bundle() -> None:
    assert b"SG" + bytes([FORMAT_VERSION]) == HEAD


def _with_model(model: str) -> Segment:
    return Segment(bytes(16), 0, request=RequestFacts(model=model))


def _with_attributes(*attributes: tuple[str, str]) -> Segment:
    return Segment(bytes(16), 0, Opening("proxy", "1", "masked", attributes=attributes))


_HEAD_BELOW_ZERO = [200, 1, True, None, None, None, None, None, [-1]]


REFUSED: dict[str, tuple[bytes | None, str]] = {
    "nothing": (None, "frame"),
    "no bytes": (b"", "frame"),
    "something else": (b'{"a": 1}', "frame"),
    "a head alone": (HEAD, "frame"),
    "a later version": (b"SG" + bytes([FORMAT_VERSION + 1]) + GOOD[3:], "version"),
    "half of one": (GOOD[: len(GOOD) // 2], "frame"),
    "a frame that does not say its size": (packed([], write_content_size=False), "frame"),
    "another value": (packed({"a": 1}), "schema"),
    "too few fields": (packed([INSTANCE]), "schema"),
    "an instance that is none": (packed(Bundle(b"short", 0, 0, 0, [])), "schema"),
    "another version inside": (packed(Bundle(INSTANCE, 0, 0, 0, version=FORMAT_VERSION + 1)), "version"),
    "a slot that there is not": (packed(Bundle(INSTANCE, SLOTS, 0, 0)), "schema"),
    "a number beyond all": (packed([INSTANCE, 0, 2**63, 0]), "schema"),
    "a dead instance that is none": (packed(Bundle(INSTANCE, 0, 0, 0, dead=[b"short"])), "schema"),
    "a word that would fill the state": (packed(Bundle(INSTANCE, 0, 0, 0, [_with_model("m" * 1_000_000)])), "schema"),
    "nine attributes": (packed(Bundle(INSTANCE, 0, 0, 0, [_with_attributes(*[("a", "b")] * 9)])), "schema"),
    "an attribute that would fill the state": (
        packed(Bundle(INSTANCE, 0, 0, 0, [_with_attributes(("a", "b" * 257))])),
        "schema",
    ),
    "a rate limit below zero": (packed([INSTANCE, 0, 0, 0, [[bytes(16), 0, None, None, _HEAD_BELOW_ZERO]]]), "schema"),
    "reads without number": (packed([INSTANCE, 0, 0, 0, [[bytes(16), 0, None, None, None, [[]] * 200_001]]]), "schema"),
    "segments without number": (packed([INSTANCE, 0, 0, 0, [[]] * 50_001]), "schema"),
    "the dead without number": (packed([INSTANCE, 0, 0, 0, [], False, [b""] * 100_001]), "schema"),
    "more members than bytes": (HEAD + zstandard.ZstdCompressor().compress(b"\xdd\xff\xff\xff\xff"), "schema"),
    "nesting without end": (HEAD + zstandard.ZstdCompressor().compress(b"\x91" * 100_000), "schema"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_bytes_are_refused(case: str) -> None:
    message, error_class = REFUSED[case]
    with pytest.raises(UnreadableBundle) as refused:
        decode_bundle(message)
    assert refused.value.error_class == error_class


def test_an_older_and_a_newer_writer_of_this_format_are_read() -> None:
    """Arrays that end earlier have defaults; fields that a later writer added at the end are ignored."""
    bundle = bundles_of(interleaved(2))[0]
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(bundle))
    assert decode_bundle(packed(fields[:5])) == bundle
    later = [*fields, "added", {"later": [1]}]
    later[4] = [[*segment, "added"] for segment in fields[4]]
    assert decode_bundle(packed(later)) == bundle


def test_a_frame_that_claims_more_than_the_limit_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", 1_000)
    with pytest.raises(UnreadableBundle, match="the limit is 1000"):
        decode_bundle(HEAD + zstandard.ZstdCompressor().compress(bytes(1_001)))


@pytest.mark.parametrize("content", [b"", b"x" * 3_000_000])
def test_a_large_bundle_is_decoded_segment_by_segment_to_the_same(content: bytes) -> None:
    segments = [Segment(bytes(16), 0, reads=[Read(1, 2, 3, content), Read(2, 3, 4)]), Segment(INSTANCE, 7)]
    bundle = Bundle(INSTANCE, 5, 6, 7, segments, farewell=True, dead=[bytes(16)])
    assert decode_bundle(encode_bundle(bundle)) == bundle


def test_the_undecoded_form_of_a_large_bundle_has_its_fields() -> None:
    fields = [field.name for field in msgspec.structs.fields(bundles._Undecoded)]
    assert fields == [field.name for field in msgspec.structs.fields(Bundle)]


def test_a_forgery_of_very_many_small_reads_takes_little_memory() -> None:
    """Ten million reads of six bytes: decoded, they would take a gigabyte."""
    segment = msgspec.msgpack.encode([bytes(16), 0, None, None, None, [[None, 0, 0, b""]] * 50_000])
    parts = [msgspec.msgpack.encode(part) for part in (INSTANCE, 0, 0, 0)]
    message = HEAD + zstandard.ZstdCompressor().compress(b"".join([b"\x95", *parts, b"\xdc\x00\xc8", segment * 200]))
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableBundle, match="more than 200000 reads"):
            decode_bundle(message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200 * 1024 * 1024


def test_a_damaged_bundle_is_refused_or_decoded() -> None:
    chance = random.Random(7)
    refused = 0
    for _ in range(2_000):
        spoilt = bytearray(GOOD)
        spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
        try:
            decode_bundle(bytes(spoilt))
        except UnreadableBundle:
            refused += 1
    assert refused > 1_000


def test_bundles_of_an_earlier_version_have_neither_attributes_nor_rate_limits() -> None:
    opening, head = ["proxy", "1", "masked"], [200, 5, True]
    [segment] = decode_bundle(packed([INSTANCE, 0, 0, 0, [[bytes(16), 0, opening, None, head]]])).segments
    assert (segment.opening, segment.head) == (Opening("proxy", "1", "masked"), Head(200, 5, True))
    assert segment.opening is not None and segment.opening.attributes == ()


def test_attributes_and_rate_limits_are_decoded_as_they_were_encoded() -> None:
    opening = Opening("proxy", "1", "masked", attributes=(("agent", "planner"), ("b" * 32, "c" * 256)))
    segment = Segment(bytes(16), 0, opening, head=Head(200, rate_limit=RateLimit(1, 2, 3, None, 5, 2**53)))
    bundle = Bundle(INSTANCE, 0, 0, 0, [segment])
    assert decode_bundle(encode_bundle(bundle)) == bundle


def test_without_its_reads_a_bundle_still_has_heads_ends_and_the_loss() -> None:
    opening, head = Opening("proxy", "1", "full", path="/chat/completions"), Head(200, 5, True)
    ending = StreamEnding(Ending.COMPLETE, tail=b"data: x\n", body=b"{}")
    first, second, third = (bytes([number]) * 16 for number in range(3))
    reads = [Read(1, 1, 1, b"x"), Read(2, 1, 1, b"y")]
    whole = [
        Segment(first, 0, opening=opening, head=head, reads=reads),
        Segment(second, 4, reads=reads, loss=Loss(3, 1, "corrupt"), end=ending),
        Segment(third, 1, end=StreamEnding(Ending.CUT)),
    ]
    light = [
        Segment(first, 0, opening=opening, head=head, loss=Loss(2)),
        Segment(
            second,
            4,
            loss=Loss(5, 1, "corrupt"),
            end=StreamEnding(Ending.COMPLETE, tail=b"data: x\n", body_capped=True),
        ),
        Segment(third, 1, end=StreamEnding(Ending.CUT)),
    ]
    dead = [b"a" * 16]
    assert without_reads(Bundle(INSTANCE, 1, 2, 3, whole, dead=dead)) == Bundle(INSTANCE, 1, 2, 3, light, dead=dead)
