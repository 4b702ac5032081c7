"""Path traversal: whether a server may read a '..' segment in a path, and so leave the base path of an upstream.

Servers decode paths in their own ways: percent encoding once or several times, also of `%uXXXX` (IIS), overlong UTF-8, and
compatible forms of Unicode; some end a segment at a semicolon (Java), cut it at NUL, or ignore blanks at its end (Windows).
What one of them may read as '..' is one here.
"""

import re
import unicodedata
from urllib.parse import unquote_to_bytes

# A path that is encoded more often than this climbs, whatever it says: no client encodes a path that often.
MOST_DECODINGS = 4
_UNICODE = re.compile(rb"%u([0-9a-f]{4})", re.IGNORECASE)
# Overlong UTF-8 of '.', '/' and '\\': two, three and four bytes for a character of one (RFC 3629, 10), and IIS' %c0%2e.
_OVERLONG = re.compile(rb"\xc0\xae|\xc0\x2e|\xe0\x80\xae|\xf0\x80\x80\xae|(\xc0\xaf|\xc1\x9c|\xe0[\x80\x81][\xaf\x9c])")
# A segment ends at a slash or a backslash. Its name ends at a parameter, a query, a fragment or NUL.
_SLASHES = re.compile(r"[/\\]")
_END_OF_NAME = re.compile("[;?#\0]")
# Blanks and control characters, which some servers remove.
_IGNORED = dict.fromkeys((*range(1, 33), 127))


def climbs(path: bytes) -> bool:
    """Whether a server may read a '..' segment in the path, which is as the client wrote it, without the query."""
    for _ in range(MOST_DECODINGS):
        if _has_step_upwards(path):
            return True
        decoded = unquote_to_bytes(_UNICODE.sub(_as_utf8, path)) if b"%" in path else path
        if decoded == path:
            return False
        path = decoded
    return True


def _has_step_upwards(path: bytes) -> bool:
    if b"." not in path and path.isascii():
        return False
    text = _OVERLONG.sub(lambda matched: b"/" if matched[1] else b".", path).decode(errors="replace")
    names = (
        _END_OF_NAME.split(segment, maxsplit=1)[0] for segment in _SLASHES.split(unicodedata.normalize("NFKC", text))
    )
    return any(name.translate(_IGNORED) == ".." for name in names)


def _as_utf8(matched: re.Match[bytes]) -> bytes:
    return chr(int(matched[1], 16)).encode(errors="replace")
