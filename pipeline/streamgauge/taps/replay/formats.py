"""Detects the format of a recording from its content. The file name decides only if the content is ambiguous."""

import re
from enum import Enum, auto

import msgspec

from streamgauge.core.dialects import error_in, recognised, recognised_body
from streamgauge.core.formats.cut_json import first_members
from streamgauge.core.formats.json_text import UNPARSED, parse
from streamgauge.core.formats.sse import BOM

# How much of a file is checked (bytes): leading comments and blank lines of a cassette fit.
FIRST_BYTES = 64 * 1024

# Formats by file name suffix. A file with such a name and other content is damaged or misnamed.
FORMATS_BY_SUFFIX = {
    ".har": "a HAR file",
    ".flow": "a flow file of mitmproxy",
    ".flows": "a flow file of mitmproxy",
    ".mitm": "a flow file of mitmproxy",
    ".pcap": "a packet capture",
    ".pcapng": "a packet capture",
}
# Suffixes that other files than recordings have, too: in a directory those are skipped.
AMBIGUOUS = frozenset((".yaml", ".yml", ".json"))
# Suffixes of the recordings in a directory; a file named by the user may have any name. .ndjson: a body of JSON lines; .bin:
# any body, as AWS's event stream.
SUFFIXES = frozenset((".sse", ".ndjson", ".bin", *FORMATS_BY_SUFFIX, *AMBIGUOUS))
SPOOL = "spool.sqlite"


class Format(Enum):
    """The format of a file."""

    BODY = auto()  # a response's body: SSE, JSON or anything else
    HAR = auto()
    CASSETTE_JSON = auto()
    CASSETTE_YAML = auto()
    FLOWS = auto()
    CAPTURE = auto()  # pcap, pcapng
    SPOOL = auto()
    TEXTS = auto()  # the texts that `up` keeps
    DATABASE = auto()  # another SQLite file
    PACKED = auto()  # an archive of recordings


_SQLITE = b"SQLite format 3\0"
# Offset of the application id in an SQLite file, big-endian (https://sqlite.org/fileformat.html, 1.3).
_APPLICATION_AT = slice(68, 72)
_APPLICATIONS = {b"SGSP": Format.SPOOL, b"SGTX": Format.TEXTS}
# https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html, 4: microseconds and nanoseconds, either byte order.
_PCAP = (b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1")
# https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-02.html, 4.1: block type, length, byte-order magic. The type alone
# is four line ends.
_PCAPNG = re.compile(rb"\n\r\r\n....(?:\x1a\x2b\x3c\x4d|\x4d\x3c\x2b\x1a)", re.DOTALL)
# A tnetstring whose content begins with one: a flow is a mapping (https://tnetstrings.info).
_FLOWS = re.compile(rb"[1-9][0-9]{0,11}:[0-9]{1,3}:[A-Za-z_]")
# The first member of a JSON recording; if it is ambiguous, other members decide.
_JSON_HAR = re.compile(rb'\s*\{\s*"log"\s*:\s*\{')
_JSON_CASSETTE = re.compile(rb'\s*\{\s*"(?:http_)?interactions"\s*:\s*\[')
_JSON_OTHER_FIRST = re.compile(rb'\s*\{\s*"(?:version|metadata|recorded_with)"\s*:')
_JSON_INTERACTIONS = re.compile(rb'"(?:http_)?interactions"\s*:\s*\[')
_HAR_LOG = re.compile(rb'"log"\s*:\s*\{')
# The first line of a YAML cassette after comments, directives and the document's mark; an old cassette is a bare list.
_YAML_PREFIX = re.compile(rb"(?:[ \t]*(?:#[^\n]*\n|\r?\n)|%[^\n]*\n|---[ \t]*\r?\n)*")
_YAML_CASSETTE = re.compile(
    rb"(?:http_)?interactions[ \t]*:[ \t]*\r?(?:\n|\[|&|#|\Z)|-[ \t]+request[ \t]*:[ \t]*[\r\n!&{]"
)
_YAML_OTHER_FIRST = re.compile(rb"(?:version|metadata|recorded_with)[ \t]*:(?:[ \t]|\r?\n)")
_YAML_INTERACTIONS = re.compile(rb"^(?:http_)?interactions[ \t]*:", re.MULTILINE)
_ARCHIVES = {".gz": b"\x1f\x8b", ".zip": b"PK\x03\x04", ".zst": b"\x28\xb5\x2f\xfd"}


# Lines of server-sent events: a comment, or a field that the format knows (HTML standard, 9.2.6). Any text has lines that
# the format ignores.
_SSE_LINE = re.compile(rb"(?:\A|[\r\n])(?::|(?:data|event|id|retry)(?:[:\r\n]|\Z))")
# The beginning of a JSON object or list, and of HTML, as of a gateway's error page.
_JSON_BEGINS = re.compile(rb'\s*(?:\{\s*(?:["}]|\Z)|\[\s*(?:["{\[\]0-9tfn-]|\Z))')
_HTML_BEGINS = re.compile(rb"\s*<")


def may_be_body(first: bytes) -> bool:
    """Whether a file of no other format, which begins with `first`, may hold a response's body: server-sent events, JSON,
    HTML, or nothing. Text without a line of server-sent events (a program, a configuration), a JSON document a line (a log,
    records) and binary data do not.
    """
    text = first.removeprefix(BOM)
    if not text.strip():
        return True
    if _is_json_lines(text):
        return False
    return b"\0" not in text and any((_SSE_LINE.search(text), _JSON_BEGINS.match(text), _HTML_BEGINS.match(text)))


def shows_response(first: bytes) -> bool:
    """Whether a JSON file that begins with `first` shows a model's response: its whole object, first line or first element,
    or of a longer one the members that `first` has whole. Other JSON than recordings has no member of a dialect.
    """
    text = first.removeprefix(BOM).lstrip()
    if text[:1] not in (b"{", b"["):
        return False
    values = parse(text), parse(text.partition(b"\n")[0])
    value = next((whole for whole in values if whole is not UNPARSED), None) or first_members(text.removeprefix(b"["))
    if isinstance(value, list):
        value = value[0] if value else None
    return bool(recognised("", value) or recognised_body(value) or error_in("", value))


def _is_json_lines(text: bytes) -> bool:
    """Whether the first line is a whole JSON object, and another one begins after it."""
    line, newline, rest = text.lstrip().partition(b"\n")
    if not (newline and line.startswith(b"{") and rest.lstrip().startswith(b"{")):
        return False
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def format_of(first: bytes, suffix: str = "") -> Format:
    """The format of a file that begins with `first` (FIRST_BYTES, or all of it). `suffix`: of its name, in lower case, with
    the dot.
    """
    if first.startswith(_SQLITE):
        return _APPLICATIONS.get(first[_APPLICATION_AT], Format.DATABASE)
    if first.startswith(_PCAP) or _PCAPNG.match(first):
        return Format.CAPTURE
    if suffix in _ARCHIVES and first.startswith(_ARCHIVES[suffix]):
        return Format.PACKED
    if _FLOWS.match(first):
        return Format.FLOWS
    first = first.removeprefix(BOM)
    return _of_json(first, suffix) or _of_yaml(first) or Format.BODY


def _of_json(first: bytes, suffix: str) -> Format | None:
    if _JSON_HAR.match(first):
        return Format.HAR
    if suffix == ".har" and first.lstrip()[:1] == b"{" and _HAR_LOG.search(first):
        return Format.HAR
    if _JSON_CASSETTE.match(first):
        return Format.CASSETTE_JSON
    if _JSON_OTHER_FIRST.match(first) and _JSON_INTERACTIONS.search(first):
        return Format.CASSETTE_JSON
    return None


def _of_yaml(first: bytes) -> Format | None:
    prefix = _YAML_PREFIX.match(first)
    start = prefix.end() if prefix else 0
    if _YAML_CASSETTE.match(first, start):
        return Format.CASSETTE_YAML
    if _YAML_OTHER_FIRST.match(first, start) and _YAML_INTERACTIONS.search(first, start):
        return Format.CASSETTE_YAML
    return None
