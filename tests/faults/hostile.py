"""Messages of an attacker who may write the segments topic, each a key and a value."""

import base64
import pickle
from pathlib import Path
from typing import NamedTuple

import msgspec
import zstandard

from streamgauge.core.capture.segments import Bundle, Opening, Read, RequestFacts, Segment

_HEAD = b"SG\x01"
_INSTANCE = bytes(range(16))


_READS = [[None, 0, 0, b""]] * 50_000


class Sent(NamedTuple):
    """`readable`: it has the form of a bundle, whatever its content."""

    key: bytes | None
    value: bytes | None
    readable: bool = False


class Touch:
    """Creates a file when it is unpickled: proof that the message's code was run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def packed(content: bytes) -> bytes:
    return _HEAD + zstandard.ZstdCompressor().compress(content)


def _head(segments: bytes) -> bytes:
    """The beginning of a bundle, up to its segments, whose array's own head is given."""
    return b"\x95\xc4\x10" + _INSTANCE + b"\x00\x00\x00" + segments


def forged(bundle: object) -> bytes:
    return packed(msgspec.msgpack.encode(bundle))


def pickles(canary: Path) -> list[Sent]:
    """Bare, as Faust's own codec would decode them (base64), within a frame, and as keys."""
    made = [pickle.dumps(Touch(canary), protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    values = [*made, *map(base64.b64encode, made), *map(packed, made), b'{"__faust": {"ns": "os.system"}}']
    return [Sent(value, value) for value in values] + [Sent(None, value) for value in values]


def hostile(canary: Path) -> list[Sent]:
    """All of them except those as large as a topic's limit."""
    ids = [number.to_bytes(16, "big") for number in range(64)]
    large = 2**53
    return [
        *pickles(canary),
        Sent(None, None),
        Sent(b"key alone", None),
        Sent(None, b""),
        Sent(None, _HEAD),
        # Sizes that are wrong: a frame of 2^40 bytes; 4 GiB of members; 60 MB of zeros, of nesting, of one member's name.
        Sent(None, _HEAD + b"\x28\xb5\x2f\xfd\xe0" + (2**40).to_bytes(8, "little") + b"\x01\x00\x00"),
        Sent(None, packed(b"\xdd\xff\xff\xff\xff")),
        Sent(None, packed(bytes(60_000_000))),
        Sent(None, packed(b"\x91" * 60_000_000)),
        Sent(None, packed(b"\x98\xc4\x10" + _INSTANCE + b"\x00\x00\x00\xdb\xff\xff\xff\xff")),
        Sent(None, packed(b"x" * (65 * 1024 * 1024))),
        # Very many small things: ten million reads in one bundle, and as many segments.
        Sent(None, packed(_head(b"\xdc\x00\xc8") + msgspec.msgpack.encode([ids[2], 0, *[None] * 3, _READS]) * 200)),
        Sent(None, packed(_head(b"\xdd\x00\x98\x96\x80") + b"\x92\xc4\x00\x00" * 10_000_000)),
        # Numbers that are too large, too small, or of another type.
        Sent(None, forged([_INSTANCE, 0, 2**63, 0])),
        Sent(None, forged([_INSTANCE, 0, -1, 0])),
        Sent(None, forged([_INSTANCE, 64, 0, 0])),
        Sent(None, forged([_INSTANCE, 0, 0, 2**64 - 1])),
        Sent(None, forged([_INSTANCE, 0, 1.5, float("nan")])),
        # Words that would fill the state of a stream.
        Sent(None, forged(Bundle(_INSTANCE, 0, 5, 0, [Segment(ids[0], 0, Opening("t" * 2_000_000, "0", "masked"))]))),
        Sent(None, forged(Bundle(_INSTANCE, 0, 6, 0, [Segment(ids[0], 0, None, RequestFacts(model="m" * 5_000))]))),
        # Well-formed bundles: extreme numbers, another instance's id, streams that never begin, malformed content.
        Sent(None, forged(Bundle(_INSTANCE, 0, large, 2**63 - 1, [])), True),
        Sent(None, forged(Bundle(_INSTANCE, 1, 0, 0, [Segment(one, large) for one in ids])), True),
        Sent(
            None,
            forged(Bundle(_INSTANCE, 2, 0, 0, [Segment(ids[1], 0, reads=[Read(0, large, large, b"\xff" * 99)])])),
            True,
        ),
    ]
