"""The encoding of bundles in the spool and in Kafka. A bundle is compressed once, before it enters the spool."""

from threading import local
from typing import Annotated, Final, Literal

import msgspec
import zstandard

from streamgauge.core.capture.segments import (
    FORMAT_VERSION,
    MAX_DEAD,
    MAX_READS,
    MAX_SEGMENTS,
    SLOTS,
    Bundle,
    Count,
    Loss,
    Segment,
    Wall,
)

# The largest bundle that is decompressed (bytes). Taps make far smaller ones; a frame that declares more is forged or
# damaged.
MAX_BUNDLE_BYTES = 64 * 1024 * 1024
# A bundle of up to this size (bytes) cannot hold many reads. A larger one has large content, or is forged of very many
# small reads: it is decoded segment by segment, and its reads are counted.
_LARGE_BYTES = 1024 * 1024


class UnreadableBundle(ValueError):
    """A message is damaged, or not a bundle of a known version. `error_class` is one of a closed set, for a metric label."""

    def __init__(self, error_class: Literal["frame", "version", "schema"], why: str) -> None:
        super().__init__(why)
        self.error_class = error_class


# Error class of a bundle in the format of another version.
OTHER_VERSION: Final = "version"

_MAGIC = b"SG"
_BEGIN = _MAGIC + bytes((FORMAT_VERSION,))
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Bundle)
_SEGMENT = msgspec.msgpack.Decoder(Segment)


class _Undecoded(msgspec.Struct, array_like=True):
    """A `Bundle` whose segments are not decoded yet."""

    instance: bytes
    slot: Count
    number: Count
    tap_ns: Wall
    segments: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_SEGMENTS)] = []
    farewell: bool = False
    dead: Annotated[list[bytes], msgspec.Meta(max_length=MAX_DEAD)] = []
    version: Count = FORMAT_VERSION


_UNDECODED = msgspec.msgpack.Decoder(_Undecoded)


class _OfThread(local):
    """A compressor and a decompressor for each thread.

    Making one takes as long as compressing a small bundle, and two threads may not use one at the same time.
    """

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=1)
        self.decompressor = zstandard.ZstdDecompressor()


_OF_THREAD = _OfThread()


def encode_bundle(bundle: Bundle) -> bytes:
    """The message's bytes: `SG`, a version byte, then the bundle as MessagePack in one zstd frame."""
    return _BEGIN + _OF_THREAD.compressor.compress(_ENCODER.encode(bundle))


def without_reads(bundle: Bundle) -> Bundle:
    """The same bundle with its reads dropped: heads and ends stay, and each segment's loss counts its dropped reads.

    A whole body is as large as the reads that carried it: it is dropped as well, and marked as capped.
    """
    return msgspec.structs.replace(bundle, segments=[_without_reads(segment) for segment in bundle.segments])


def _without_reads(segment: Segment) -> Segment:
    loss, end = segment.loss, segment.end
    if segment.reads:
        loss = msgspec.structs.replace(loss, dropped_reads=loss.dropped_reads + len(segment.reads)) if loss else None
        loss = loss or Loss(dropped_reads=len(segment.reads))
    if end is not None and end.body is not None:
        end = msgspec.structs.replace(end, body=None, body_capped=True)
    return msgspec.structs.replace(segment, reads=[], loss=loss, end=end)


def is_of_this_format(message: bytes | None) -> bool:
    """Whether a message begins as a bundle of this version does. Its content may be damaged."""
    return message is not None and message.startswith(_BEGIN)


def is_bundle(message: bytes | None) -> bool:
    """Whether a message begins as a bundle of any version does. Its content may be damaged."""
    return message is not None and message[:2] == _MAGIC and len(message) >= 4


def decode_bundle(message: bytes | None) -> Bundle:
    """The bundle of a message. Raises UnreadableBundle, and no other error, if the message is not a bundle."""
    if message is None or not is_bundle(message):
        raise UnreadableBundle("frame", "not a Streamgauge bundle")
    if message[2] != FORMAT_VERSION:
        raise UnreadableBundle(OTHER_VERSION, f"bundle format {message[2]}; this version reads {FORMAT_VERSION}")
    try:
        size = zstandard.frame_content_size(message[3:])
        if not 0 <= size <= MAX_BUNDLE_BYTES:
            raise UnreadableBundle("frame", f"the bundle has {size} bytes: the limit is {MAX_BUNDLE_BYTES}")
        decode = _DECODER.decode if size <= _LARGE_BYTES else _decode_large
        bundle = decode(_OF_THREAD.decompressor.decompress(message[3:]))
    except zstandard.ZstdError as error:
        raise UnreadableBundle("frame", "the bundle's compressed frame is damaged") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBundle("schema", "the bundle's content does not fit its format") from error
    _check(bundle)
    return bundle


def _decode_large(content: bytes) -> Bundle:
    """Decode segment by segment, up to MAX_READS reads. Raises UnreadableBundle, and the errors of msgspec."""
    undecoded = _UNDECODED.decode(content)
    segments: list[Segment] = []
    reads = 0
    for encoded_segment in undecoded.segments:
        segments.append(_SEGMENT.decode(encoded_segment))
        reads += len(segments[-1].reads)
        if reads > MAX_READS:
            raise UnreadableBundle("schema", f"the bundle has more than {MAX_READS} reads")
    return Bundle(**{**msgspec.structs.asdict(undecoded), "segments": segments})


def _check(bundle: Bundle) -> None:
    """Check what the types of a bundle do not express. Raises UnreadableBundle."""
    if bundle.version != FORMAT_VERSION:
        raise UnreadableBundle(
            OTHER_VERSION, f"bundle content of format {bundle.version}; this version reads {FORMAT_VERSION}"
        )
    if len(bundle.instance) != 16 or any(len(segment.stream) != 16 for segment in bundle.segments):
        raise UnreadableBundle("schema", "an id in the bundle does not have 16 bytes")
    if bundle.slot >= SLOTS or any(len(instance) != 16 for instance in bundle.dead):
        raise UnreadableBundle("schema", "the bundle's slot or list of dead instances is not valid")
