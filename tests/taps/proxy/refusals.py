"""Requests that h11 accepts and the relay refuses: the reason, an example, and how it is recognised."""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from tests.taps.proxy.readings import Read

# Limits of the relay in these tests (bytes).
MAX_HEAD = 700
MAX_BODY = 20_000

_METHODS = frozenset(b"GET POST PUT HEAD OPTIONS DELETE PATCH TRACE".split())
_LOOK_ALIKE = (b"content_length", b"transfer_encoding")
_BLANK_LINE = re.compile(rb"\n\r?\n")


class Refusal(NamedTuple):
    """`raw`: the request's bytes; `read`: as h11 reads them. `always`: if this reason applies, not even the whole head
    goes to an upstream; "": the reason may also apply to valid requests.
    """

    why: str
    example: bytes
    applies: Callable[[bytes, Read], object]
    always: Literal["", "head", "whole"] = ""


def head_of(raw: bytes) -> bytes:
    raw = raw.lstrip(b"\r\n")
    end = _BLANK_LINE.search(raw)
    return raw[: end.end()] if end else raw


def climbs(target: bytes) -> bool:
    """Whether a segment of its path goes upwards for a server that decodes it up to five times, reads overlong UTF-8 and %u,
    takes a backslash for a slash, ends a segment at a semicolon, NUL, `?` or `#`, and removes blanks from its end.
    """
    path = target.partition(b"?")[0]
    for _ in range(6):
        plain = path.replace(b"\xc0\xae", b".").replace(b"\\", b"/")
        if any(re.split(rb"[;\0?#]", step)[0].rstrip(b" ") == b".." for step in plain.split(b"/")):
            return True
        path = re.sub(rb"(?i)%u00([0-9a-f]{2})", rb"%\1", path)
        path = re.sub(rb"(?i)%([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), path)
    return False


def _offers(read: Read) -> set[bytes]:
    """The protocols that are offered and are not HTTP itself."""
    offers = {one.strip().lower() for value in read.values(b"upgrade") for one in value.split(b",")}
    return {one for one in offers if one not in (b"", b"h2c") and not re.match(rb"(tls|http)/[0-9.]+$", one)}


def _get(*lines: bytes, first: bytes = b"GET /u0/x HTTP/1.1") -> bytes:
    return b"\r\n".join((first, b"Host: c", *lines, b"", b""))


def _chunks(body: bytes) -> bytes:
    return _get(b"Transfer-Encoding: chunked", first=b"POST /u0/x HTTP/1.1") + body


REFUSALS = [
    Refusal(
        "a bare LF ends a line (RFC 9112, 2.2: may be taken, but others do not)",
        b"GET /u0/x HTTP/1.1\nHost: c\n\n",
        lambda raw, _: re.search(rb"(?<!\r)\n", raw),
    ),
    Refusal(
        "a folded line (RFC 9112, 5.2: refuse)",
        _get(b"A: b", b" c"),
        lambda raw, _: re.search(rb"\r\n[ \t]", head_of(raw)),
        always="head",
    ),
    Refusal(
        "a folded trailer",
        _chunks(b"0\r\nA: b\r\n c\r\n\r\n"),
        lambda raw, read: read.values(b"transfer-encoding") and re.search(rb"\r\n[ \t]", raw),
    ),
    Refusal(
        "a control character in a value (RFC 9110, 5.5)",
        _get(b"A: b\x7f"),
        lambda raw, _: re.search(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]", head_of(raw)),
        always="head",
    ),
    Refusal(
        "a control character in a chunk's extension or a trailer",
        _chunks(b"5;a\x01\r\nhello\r\n0\r\n\r\n"),
        lambda raw, read: read.values(b"transfer-encoding") and re.search(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]", raw),
    ),
    Refusal(
        "a bare CR (RFC 9112, 2.2)",
        _chunks(b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
        lambda raw, _: re.search(rb"\r(?!\n)", raw),
    ),
    Refusal(
        "a method that HTTP does not register",
        _get(first=b"BREW /u0/x HTTP/1.1"),
        lambda _, read: read.method not in _METHODS,
        always="head",
    ),
    Refusal(
        "a version other than 1.0 and 1.1",
        _get(first=b"GET /u0/x HTTP/1.2"),
        lambda _, read: read.version not in (b"1.0", b"1.1"),
        always="head",
    ),
    Refusal(
        "no path: absolute form, authority or *",
        _get(first=b"GET http://c/ HTTP/1.1"),
        lambda _, read: read.target[:1] != b"/",
        always="head",
    ),
    Refusal(
        "no name of an upstream",
        _get(first=b"GET //u0/x HTTP/1.1"),
        lambda _, read: not re.match(rb"/u[01](?=[/?]|\Z)", read.target),
        always="head",
    ),
    Refusal(
        "a fragment or a backslash in the target",
        _get(first=b"GET /u0/a\\b HTTP/1.1"),
        lambda _, read: re.search(rb"#|^[^?]*\\", read.target),
        always="head",
    ),
    Refusal(
        "a path that climbs",
        _get(first=b"GET /u0/a/..;b/ HTTP/1.1"),
        lambda _, read: climbs(read.target),
        always="head",
    ),
    Refusal(
        "a length beside a coding, or twice (RFC 9112, 6.3)",
        _get(b"Content-Length: 0", b"Content-Length: 0"),
        lambda raw, read: (
            len(re.findall(rb"(?i)\ncontent-length:", head_of(raw))) + len(read.values(b"transfer-encoding")) > 1
            or re.search(rb"(?i)\ncontent-length:[^\n]*,", head_of(raw))
        ),
        always="head",
    ),
    Refusal(
        "HTTP/1.0 with a coding (RFC 9112, 6.1)",
        _get(b"Transfer-Encoding: chunked", first=b"GET /u0/x HTTP/1.0") + b"0\r\n\r\n",
        lambda _, read: read.version == b"1.0" and read.values(b"transfer-encoding"),
        always="head",
    ),
    Refusal(
        "a length of more than 18 digits",
        _get(b"Content-Length: " + b"0" * 19),
        lambda raw, _: re.search(rb"(?i)\ncontent-length:[ \t]*[0-9]{19}", head_of(raw)),
        always="head",
    ),
    Refusal(
        "a name with _ for - (WSGI and CGI take it for the other)",
        _get(b"Content_Length: 5"),
        lambda _, read: any(name.lower() in _LOOK_ALIKE for name, _ in read.fields),
        always="head",
    ),
    Refusal(
        "an upgrade",
        _get(b"Connection: upgrade", b"Upgrade: x"),
        lambda _, read: b"upgrade" in read.options and _offers(read),
        always="head",
    ),
    Refusal(
        "too large a head",
        _get(b"A: " + b"b" * MAX_HEAD),
        lambda raw, _: len(head_of(raw)) > MAX_HEAD,
    ),
    Refusal(
        "too large a body",
        _get(b"Content-Length: %d" % (MAX_BODY + 1)) + b"x" * (MAX_BODY + 1),
        lambda _, read: max(len(read.body), *map(int, read.values(b"content-length")), 0) > MAX_BODY,
        always="whole",
    ),
    Refusal(
        "a chunk's size with a blank behind it, or an extension that is none (RFC 9112, 7.1.1)",
        _chunks(b"5 \r\nhello\r\n0\r\n\r\n"),
        lambda raw, _: re.search(rb"\n[0-9a-fA-F]+(?=[ \t;])(?!(?:;\w+(?:=\w+)?)+\r\n)", raw),
    ),
    Refusal(
        "a tab behind a coding (llhttp; RFC 9112, 5.1 allows it, clients do not send it)",
        _get(b"Transfer-Encoding: chunked\t", first=b"POST /u0/x HTTP/1.1") + b"0\r\n\r\n",
        lambda raw, _: re.search(rb"(?i)\ntransfer-encoding:[^\r]*\t", raw),
    ),
    Refusal(
        "a trailer that tells framing",
        _chunks(b"0\r\nContent-Length: 5\r\n\r\n"),
        lambda raw, _: re.search(rb"(?i)\n0+[^\n]*\r\n(.*\n)*?(content-length|transfer-encod)", raw),
    ),
]


def why_refused(raw: bytes, read: Read) -> list[Refusal]:
    """The reasons to refuse a request that h11 accepts."""
    return [one for one in REFUSALS if one.applies(raw, read)]
