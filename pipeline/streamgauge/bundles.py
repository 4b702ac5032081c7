"""Bundles as bytes: what rests in the spool and travels through Kafka. Compressed once, before the spool."""

from typing import Literal

import msgspec
import zstandard

from streamgauge.core.segments import FORMAT_VERSION, Bundle

# No bundle of ours comes near this; a frame that claims more is a forgery or damage, and is not inflated (bytes).
MAX_BUNDLE_BYTES = 64 * 1024 * 1024


class UnreadableBundle(ValueError):
    """A message that is no bundle of a version that is known here. `error_class` is one of a closed set, for a label."""

    def __init__(self, error_class: Literal["frame", "version", "schema"], why: str) -> None:
        super().__init__(why)
        self.error_class = error_class


_MAGIC = b"SG"
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Bundle)


def encode_bundle(bundle: Bundle) -> bytes:
    """The message's bytes: `SG`, a version byte, then the bundle as MessagePack in one zstd frame."""
    return _MAGIC + bytes((FORMAT_VERSION,)) + zstandard.ZstdCompressor(level=1).compress(_ENCODER.encode(bundle))


def decode_bundle(message: bytes | None) -> Bundle:
    """The bundle of a message. Raises UnreadableBundle, and nothing else, for whatever is not one."""
    if not message or message[:2] != _MAGIC or len(message) < 4:
        raise UnreadableBundle("frame", "not a Streamgauge bundle")
    if message[2] != FORMAT_VERSION:
        raise UnreadableBundle("version", f"bundle format {message[2]}; this version reads {FORMAT_VERSION}")
    try:
        size = zstandard.frame_content_size(message[3:])
        if not 0 <= size <= MAX_BUNDLE_BYTES:
            raise UnreadableBundle("frame", f"a bundle of {size} bytes: the limit is {MAX_BUNDLE_BYTES}")
        bundle = _DECODER.decode(zstandard.ZstdDecompressor().decompress(message[3:]))
    except zstandard.ZstdError as error:
        raise UnreadableBundle("frame", "the bundle's compressed frame is damaged") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableBundle("schema", "the bundle's content does not fit its format") from error
    if len(bundle.instance) != 16 or any(len(segment.stream) != 16 for segment in bundle.segments):
        raise UnreadableBundle("schema", "an id in the bundle is not of 16 bytes")
    return bundle
