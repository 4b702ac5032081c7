"""Bundles as bytes: what goes in comes out, and whatever is not a bundle is refused with a reason of a closed set."""

import random

import msgspec
import pytest
import zstandard

from streamgauge import bundles
from streamgauge.bundles import UnreadableBundle, decode_bundle, encode_bundle
from streamgauge.core.segments import FORMAT_VERSION, Bundle
from tests.streams import INSTANCE, bundles_of, interleaved

GOOD = encode_bundle(bundles_of(interleaved(3))[0])
HEAD = GOOD[:3]


def packed(content: object, **how: bool) -> bytes:
    return HEAD + zstandard.ZstdCompressor(**how).compress(msgspec.msgpack.encode(content))  # type: ignore[arg-type]


@pytest.mark.parametrize("number", range(3))
def test_what_goes_in_comes_out(number: int) -> None:
    bundle = bundles_of(interleaved(5, seed=number))[number]
    assert decode_bundle(encode_bundle(bundle)) == bundle


def test_its_head_says_what_it_is() -> None:
    assert b"SG" + bytes([FORMAT_VERSION]) == HEAD


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
    "nesting without end": (HEAD + zstandard.ZstdCompressor().compress(b"\x91" * 100_000), "schema"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_bundle_is_refused(case: str) -> None:
    message, error_class = REFUSED[case]
    with pytest.raises(UnreadableBundle) as refused:
        decode_bundle(message)
    assert refused.value.error_class == error_class


def test_a_frame_that_claims_more_than_the_limit_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", 1_000)
    with pytest.raises(UnreadableBundle, match="the limit is 1000"):
        decode_bundle(HEAD + zstandard.ZstdCompressor().compress(bytes(1_001)))


def test_a_damaged_one_is_refused_or_read_and_nothing_else() -> None:
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
