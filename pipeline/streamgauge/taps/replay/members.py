"""Members of what somebody wrote down, by the type that they must have. What is of another type is not there."""

import base64
import binascii
import codecs
from collections.abc import Mapping
from urllib.parse import urlsplit

from streamgauge.taps.replay.contract import BrokenExchange, Header

# Fields of one head that are looked at; clients stop at 100 to 1,000.
MAX_FIELDS = 1_000
# Nanoseconds that a bundle can hold (see segments.Count and Wall).
_MAX_NS = 2**53
_MAX_WALL_NS = 2**63 - 1
# How a body's text is told to be coded; all else is written as UTF-8.
_ONE_BYTE = frozenset(("iso8859-1", "cp1252"))


def mapping(value: object) -> Mapping[object, object]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def text(value: object) -> str | None:
    """The value if it is text; bytes are Latin-1, as in HTTP's heads."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else None


def number(value: object) -> float | None:
    """The value if it is a number, or (in YAML, where all scalars come as text) reads as a whole one."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def status_of(value: object) -> int | None:
    """A status code; None for 0, which stands for no answer, and for what is none."""
    code = number(value)
    return int(code) if code is not None and 100 <= code <= 999 else None


def size_of(value: object) -> int | None:
    """A size in bytes; None for -1, which stands for unknown, and for what is none."""
    size = number(value)
    return int(size) if size is not None and 0 <= size < _MAX_NS else None


def since(seconds: float | None, start: float | None) -> int | None:
    """Nanoseconds from one moment to a later one (seconds, so told to a microsecond); None where either is unknown, or they
    are out of order."""
    if seconds is None or start is None or not 0 <= seconds - start < _MAX_NS / 1e9:
        return None
    return round((seconds - start) * 1e6) * 1000


def wall(seconds: float | None) -> int | None:
    """A moment (seconds since 1970) in nanoseconds; None for what no clock shows."""
    if seconds is None or not 0 < seconds < _MAX_WALL_NS / 1e9 - 1:
        return None
    return round(seconds * 1e6) * 1000


def place_of(url: object) -> tuple[str | None, str]:
    """The host and the target (path and query) of a URL. Raises BrokenExchange for what is none."""
    try:
        parts = urlsplit(text(url) or "")
        host = parts.hostname
    except ValueError:  # a bracket that is no IPv6 address
        host = None
    if not host:
        raise BrokenExchange("its request has no URL")
    return host, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def headers(pairs: list[tuple[object, object]]) -> list[Header]:
    """Fields by lower-case names, without those of HTTP/2 that are no fields (`:path`)."""
    known = ((text(name), text(value)) for name, value in pairs[:MAX_FIELDS])
    return [(name.lower(), value) for name, value in known if name and value is not None and name[0] != ":"]


def from_base64(value: str | bytes) -> bytes:
    """The bytes; blanks between the digits mean nothing. Raises BrokenExchange."""
    try:
        digits = value if isinstance(value, bytes) else value.encode("ascii")
        return base64.b64decode(b"".join(digits.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BrokenExchange("a body is not valid base64") from None


def to_bytes(value: object, encoding: object = None) -> bytes | None:
    """A body's bytes, of text in the encoding that is named beside it; None if it is neither text nor bytes.

    Raises BrokenExchange where that is what stands for them (see cassette_yaml.py).
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
        except UnicodeEncodeError:  # more than it says
            pass
    return value.encode("utf-8", "replace")


def _is_one_byte(encoding: object) -> bool:
    try:
        return codecs.lookup(text(encoding) or "utf-8").name in _ONE_BYTE
    except (LookupError, ValueError):
        return False
