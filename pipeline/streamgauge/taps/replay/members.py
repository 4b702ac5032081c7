"""Reads members of recordings by their expected type. A member of another type counts as missing.

Parts of a large JSON document are decoded one at a time: the items of a list stay raw bytes until they are used.
"""

import base64
import binascii
import codecs
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from streamgauge.core.formats.json_text import UNPARSED, parse
from streamgauge.taps.replay.contract import BrokenExchange, BrokenRecording, Header

# Limit of header fields that are read from one head; clients stop at 100 to 1,000.
MAX_FIELDS = 1_000
# The largest times that a bundle can hold (ns; see segments.Count and Wall).
_MAX_NS = 2**53
_MAX_WALL_NS = 2**63 - 1
# Encodings of a body's text that are honoured; text in any other is written as UTF-8.
_ONE_BYTE = frozenset(("iso8859-1", "cp1252"))

_Decoder = msgspec.json.Decoder[dict[str, msgspec.Raw]] | msgspec.json.Decoder[list[msgspec.Raw]]
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def members(part: object) -> Mapping[str, object]:
    """The members of an object, each a raw part; empty if it is not an object. Raises BrokenRecording if it is not JSON."""
    whole = _decoded(part, _MEMBERS)
    return whole if isinstance(whole, dict) else {}


def items(part: object) -> Sequence[object] | None:
    """The items of a list, each a raw part; None if it is not a list. Raises BrokenRecording if it is not JSON."""
    whole = _decoded(part, _ITEMS)
    return whole if isinstance(whole, list) else None


def decoded(part: object) -> object:
    """A part, decoded whole; UNPARSED if it is not JSON or is nested too deeply."""
    return parse(bytes(part)) if isinstance(part, memoryview | msgspec.Raw) else part


def _decoded(part: object, decoder: _Decoder) -> object:
    if not isinstance(part, memoryview | msgspec.Raw):
        return part
    try:
        return decoder.decode(part)
    except msgspec.ValidationError:  # JSON of another shape
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _lenient(part, error)


def _lenient(part: memoryview | msgspec.Raw, error: Exception) -> object:
    """Decodes what is nearly JSON (NaN). Raises BrokenRecording, with the place, for anything else."""
    whole = parse(bytes(part))
    if whole is UNPARSED:
        where = str(error) if isinstance(error, msgspec.DecodeError) else "it is nested too deeply"
        raise BrokenRecording(f"it is not valid JSON ({where})")
    return whole


def mapping(value: object) -> Mapping[object, object]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def text(value: object) -> str | None:
    """The value if it is text; bytes are decoded as Latin-1, as in heads of HTTP."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else None


def number(value: object) -> float | None:
    """The value if it is a number, or text of a whole number (in YAML all scalars are text here)."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def status_of(value: object) -> int | None:
    """A status code; None for 0, which means no response, and for other values."""
    code = number(value)
    return int(code) if code is not None and 100 <= code <= 999 else None


def size_of(value: object) -> int | None:
    """A size in bytes; None for -1, which means unknown, and for other values."""
    size = number(value)
    return int(size) if size is not None and 0 <= size < _MAX_NS else None


def since(seconds: float | None, start: float | None) -> int | None:
    """Nanoseconds between two times given in seconds, rounded to microseconds; None if one is unknown or they are out of
    order.
    """
    if seconds is None or start is None or not 0 <= seconds - start < _MAX_NS / 1e9:
        return None
    return round((seconds - start) * 1e6) * 1000


def wall(seconds: float | None) -> int | None:
    """A time (seconds since 1970) in nanoseconds; None if it is out of range."""
    if seconds is None or not 0 < seconds < _MAX_WALL_NS / 1e9 - 1:
        return None
    return round(seconds * 1e6) * 1000


def host_and_target(url: object) -> tuple[str | None, str]:
    """The host and the target (path and query) of a URL. Raises BrokenExchange if it is not a URL."""
    try:
        parts = urlsplit(text(url) or "")
        host = parts.hostname
    except ValueError:  # a bracket without an IPv6 address
        host = None
    if not host:
        raise BrokenExchange("its request has no URL")
    return host, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def headers(pairs: list[tuple[object, object]]) -> list[Header]:
    """Header fields with names in lower case, without HTTP/2's pseudo-headers (`:path`)."""
    known = ((text(name), text(value)) for name, value in pairs[:MAX_FIELDS])
    return [(name.lower(), value) for name, value in known if name and value is not None and name[0] != ":"]


def from_base64(value: str | bytes) -> bytes:
    """The decoded bytes; white space between the digits is ignored. Raises BrokenExchange."""
    try:
        digits = value if isinstance(value, bytes) else value.encode("ascii")
        return base64.b64decode(b"".join(digits.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BrokenExchange("a body is not valid base64") from None


def to_bytes(value: object, encoding: object = None) -> bytes | None:
    """A body's bytes; text is encoded by `encoding` if that is in _ONE_BYTE, else as UTF-8. None for any other type.

    Raises a BrokenExchange that replaces the bytes (see cassette_yaml.py).
    """
    if isinstance(value, BrokenExchange):
        raise value
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        return None
    if _is_one_byte(encoding):
        try:
            return value.encode(str(encoding))
        except UnicodeEncodeError:  # the text does not fit the encoding
            pass
    return value.encode("utf-8", "replace")


def _is_one_byte(encoding: object) -> bool:
    try:
        return codecs.lookup(text(encoding) or "utf-8").name in _ONE_BYTE
    except (LookupError, ValueError):
        return False
