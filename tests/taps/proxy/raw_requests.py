"""Raw requests, and the expected result of each: refused with a status and a code, or exactly these bytes at the
upstream.

The relay has one upstream `u0` with the base path /base. `HOST` is replaced by its authority.
"""

from dataclasses import dataclass

CHUNKED = b"Transfer-Encoding: chunked\r\n"
LAST = b"0\r\n\r\n"


@dataclass(frozen=True)
class Refused:
    """The relay's own response. `begun`: the part of the request that the upstream received before, never all of it."""

    status: int
    code: bytes
    begun: bytes = b""


@dataclass(frozen=True)
class Case:
    """One request. `expected`: the relay's refusal, or the bytes that the upstream receives."""

    name: str
    sent: bytes
    expected: Refused | bytes


def get(target: bytes = b"/u0/x", *lines: bytes, version: bytes = b"HTTP/1.1") -> bytes:
    return b"\r\n".join((b"GET " + target + b" " + version, b"Host: c", *lines, b"", b""))


def post(fields: bytes, body: bytes = b"") -> bytes:
    return b"POST /u0/x HTTP/1.1\r\nHost: c\r\n" + fields + b"\r\n" + body


def forwarded(target: bytes = b"/base/x", *lines: bytes) -> bytes:
    return b"\r\n".join((b"GET " + target + b" HTTP/1.1", b"Host: HOST", *lines, b"", b""))


def forwarded_post(fields: bytes, body: bytes = b"") -> bytes:
    return b"POST /base/x HTTP/1.1\r\nHost: HOST\r\n" + fields + b"\r\n" + body


MALFORMED = Refused(400, b"malformed_request")
FRAMING = Refused(400, b"ambiguous_framing")
TARGET = Refused(400, b"target_refused")
METHOD = Refused(400, b"method_refused")
UNKNOWN = Refused(404, b"unknown_upstream")
# Within a chunked body: the upstream has received the head, perhaps a chunk, and never the end.
BAD_CHUNK = Refused(400, b"malformed_request", forwarded_post(CHUNKED))
BAD_AFTER_CHUNK = Refused(400, b"malformed_request", forwarded_post(CHUNKED, b"5\r\nhello\r\n"))

FRAMING_FIELDS = [
    Case("length", post(b"Content-Length: 5\r\n", b"hello"), forwarded_post(b"Content-Length: 5\r\n", b"hello")),
    Case("length 0", post(b"Content-Length: 0\r\n"), forwarded_post(b"Content-Length: 0\r\n")),
    Case(
        "length with zeros",
        post(b"Content-Length: 005\r\n", b"hello"),
        forwarded_post(b"Content-Length: 5\r\n", b"hello"),
    ),
    Case(
        "length and blanks",
        post(b"Content-Length: \t5\t \r\n", b"hello"),
        forwarded_post(b"Content-Length: 5\r\n", b"hello"),
    ),
    Case("no length", post(b""), forwarded_post(b"")),
    Case(
        "GET with a body",
        get(b"/u0/x", b"Content-Length: 2") + b"hi",
        forwarded(b"/base/x", b"Content-Length: 2") + b"hi",
    ),
    Case("two lengths", post(b"Content-Length: 5\r\nContent-Length: 6\r\n", b"hello"), MALFORMED),
    Case("one length twice", post(b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"), MALFORMED),
    Case("a list of lengths", post(b"Content-Length: 5, 5\r\n", b"hello"), MALFORMED),
    Case("length, then chunked", post(b"Content-Length: 5\r\n" + CHUNKED, LAST), MALFORMED),
    Case("chunked, then length", post(CHUNKED + b"Content-Length: 5\r\n", LAST), MALFORMED),
    Case("length +5", post(b"Content-Length: +5\r\n", b"hello"), MALFORMED),
    Case("length -5", post(b"Content-Length: -5\r\n", b"hello"), MALFORMED),
    Case("length 0x5", post(b"Content-Length: 0x5\r\n", b"hello"), MALFORMED),
    Case("length 5_0", post(b"Content-Length: 5_0\r\n", b"hello"), MALFORMED),
    Case("length 5.0", post(b"Content-Length: 5.0\r\n", b"hello"), MALFORMED),
    Case("length 5 5", post(b"Content-Length: 5 5\r\n", b"hello"), MALFORMED),
    Case("a length without digits", post(b"Content-Length: \r\n", b"hello"), MALFORMED),
    Case("length beyond 64 bits", post(b"Content-Length: 18446744073709551617\r\n", b"hello"), MALFORMED),
    Case("length beyond 63 bits", post(b"Content-Length: 9223372036854775808\r\n", b"hello"), FRAMING),
    Case("chunked twice", post(CHUNKED + CHUNKED, LAST), MALFORMED),
    Case("chunked in a list twice", post(b"Transfer-Encoding: chunked, chunked\r\n", LAST), MALFORMED),
    Case("gzip, chunked", post(b"Transfer-Encoding: gzip, chunked\r\n", LAST), FRAMING),
    Case("chunked, gzip", post(b"Transfer-Encoding: chunked, gzip\r\n", LAST), MALFORMED),
    Case("identity", post(b"Transfer-Encoding: identity\r\n"), FRAMING),
    Case("chunked with a parameter", post(b"Transfer-Encoding: chunked;q=1\r\n", LAST), FRAMING),
    Case("chunked in quotes", post(b'Transfer-Encoding: "chunked"\r\n', LAST), FRAMING),
    Case("an empty member", post(b"Transfer-Encoding: ,chunked\r\n", LAST), FRAMING),
    Case("vertical tab", post(b"Transfer-Encoding:\x0bchunked\r\n", LAST), MALFORMED),
    Case("xchunked", post(b"Transfer-Encoding: xchunked\r\n", LAST), FRAMING),
    Case("empty coding", post(b"Transfer-Encoding:\r\n", LAST), MALFORMED),
    Case("Transfer_Encoding", post(b"Transfer_Encoding: chunked\r\n", LAST), FRAMING),
    Case("Content_Length", post(b"Content_Length: 5\r\n"), FRAMING),
    Case("1.0 and chunked", b"POST /u0/x HTTP/1.0\r\n" + CHUNKED + b"\r\n" + LAST, FRAMING),
]

CHUNKS = [
    Case("chunks", post(CHUNKED, b"5\r\nhello\r\n" + LAST), forwarded_post(CHUNKED, b"5\r\nhello\r\n" + LAST)),
    Case(
        "CHUNKED",
        post(b"tE: x\r\nTRANSFER-encoding: CHUNKED\r\n", LAST),
        forwarded_post(b"TRANSFER-encoding: chunked\r\n", LAST),
    ),
    Case(
        "size with zeros",
        post(CHUNKED, b"00005\r\nhello\r\n00\r\n\r\n"),
        forwarded_post(CHUNKED, b"5\r\nhello\r\n" + LAST),
    ),
    Case(
        "upper-case size",
        post(CHUNKED, b"A\r\nhellohello\r\n" + LAST),
        forwarded_post(CHUNKED, b"a\r\nhellohello\r\n" + LAST),
    ),
    Case(
        "extensions",
        post(CHUNKED, b'5;a=b;c="d"\r\nhello\r\n0;x\r\n\r\n'),
        forwarded_post(CHUNKED, b"5\r\nhello\r\n" + LAST),
    ),
    Case(
        "trailers", post(CHUNKED, b"5\r\nhello\r\n0\r\nA: b\r\n\r\n"), forwarded_post(CHUNKED, b"5\r\nhello\r\n" + LAST)
    ),
    Case("size +5", post(CHUNKED, b"+5\r\nhello\r\n" + LAST), BAD_CHUNK),
    Case("size -5", post(CHUNKED, b"-5\r\nhello\r\n" + LAST), BAD_CHUNK),
    Case("size 0x5", post(CHUNKED, b"0x5\r\nhello\r\n" + LAST), BAD_CHUNK),
    Case("size 5_0", post(CHUNKED, b"5_0\r\nhello\r\n" + LAST), BAD_CHUNK),
    Case("blank before size", post(CHUNKED, b" 5\r\nhello\r\n" + LAST), BAD_CHUNK),
    Case("blank after size", post(CHUNKED, b"5 \r\nhello\r\n" + LAST), BAD_CHUNK),
    Case("no size", post(CHUNKED, b"\r\nhello\r\n" + LAST), BAD_CHUNK),
    Case("size beyond 64 bits", post(CHUNKED, b"10000000000000005\r\nhello\r\n" + LAST), BAD_CHUNK),
    Case("bare LF after size", post(CHUNKED, b"5\nhello\r\n" + LAST), BAD_CHUNK),
    Case("bare CR after size", post(CHUNKED, b"5\rhello\r\n" + LAST), BAD_CHUNK),
    Case("bare LF in an extension", post(CHUNKED, b"5;a\nb\r\nhello\r\n" + LAST), BAD_CHUNK),
    Case("bare CR in an extension", post(CHUNKED, b"5;a\rb\r\nhello\r\n" + LAST), BAD_CHUNK),
    Case("NUL in an extension", post(CHUNKED, b"5;a=\0\r\nhello\r\n" + LAST), BAD_CHUNK),
    Case("CR LF in quotes", post(CHUNKED, b'5;a="\r\n"\r\nhello\r\n' + LAST), BAD_CHUNK),
    Case("a chunk longer than its size", post(CHUNKED, b"5\r\nhello!\r\n" + LAST), BAD_AFTER_CHUNK),
    Case("bare LF after a chunk", post(CHUNKED, b"5\r\nhello\n" + LAST), BAD_AFTER_CHUNK),
    Case("no CR LF after a chunk", post(CHUNKED, b"5\r\nhello" + LAST), BAD_AFTER_CHUNK),
    Case("bare LF at the end", post(CHUNKED, b"5\r\nhello\r\n0\r\n\n"), BAD_AFTER_CHUNK),
    Case("bare LF in trailers", post(CHUNKED, b"5\r\nhello\r\n0\r\nA: b\n\r\n"), BAD_AFTER_CHUNK),
    Case("a folded trailer", post(CHUNKED, b"5\r\nhello\r\n0\r\nA: b\r\n c\r\n\r\n"), BAD_AFTER_CHUNK),
    Case("framing in trailers", post(CHUNKED, b"5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n"), BAD_AFTER_CHUNK),
]

LINES = [
    Case("empty lines before", b"\r\n\r\n" + get(), forwarded()),
    Case("blanks in the first line", b"GET   /u0/x   HTTP/1.1\r\nHost: c\r\n\r\n", forwarded()),
    Case("bare LF", b"GET /u0/x HTTP/1.1\nHost: c\n\n", MALFORMED),
    Case("a bare LF at the end", b"GET /u0/x HTTP/1.1\r\nHost: c\r\n\n", MALFORMED),
    Case("bare CR in a value", get(b"/u0/x", b"A: b\rHost: d"), MALFORMED),
    Case("bare CR before a line end", get(b"/u0/x", b"A: b\r"), MALFORMED),
    Case("obs-fold", get(b"/u0/x", b"A: b", b" c"), MALFORMED),
    Case("obs-fold with a tab", get(b"/u0/x", b"A: b", b"\tc"), MALFORMED),
    Case("a folded first field", b"GET /u0/x HTTP/1.1\r\n Host: c\r\n\r\n", MALFORMED),
    Case("a folded coding", post(b"Transfer-Encoding:\r\n chunked\r\n", LAST), MALFORMED),
    Case("NUL in a value", get(b"/u0/x", b"A: b\0c"), MALFORMED),
    Case("NUL in a name", get(b"/u0/x", b"A\0: b"), MALFORMED),
    Case("DEL in a value", get(b"/u0/x", b"A: b\x7f"), MALFORMED),
    Case("a blank before the colon", post(b"Content-Length : 5\r\n", b"hello"), MALFORMED),
    Case("a tab before the colon", post(b"Content-Length\t: 5\r\n", b"hello"), MALFORMED),
    Case("an empty name", get(b"/u0/x", b": b"), MALFORMED),
    Case("no colon", get(b"/u0/x", b"AAA"), MALFORMED),
    Case("a name that is no token", get(b"/u0/x", b"A(b: c"), MALFORMED),
    Case("a name that is no ASCII", get(b"/u0/x", b"\xc3\x84: c"), MALFORMED),
    Case("an empty value", get(b"/u0/x", b"A:"), forwarded(b"/base/x", b"A: ")),
    Case("a value beyond ASCII", get(b"/u0/x", b"A: \xe9\xff"), forwarded(b"/base/x", b"A: \xe9\xff")),
    Case("1.0", b"GET /u0/x HTTP/1.0\r\n\r\n", b"GET /base/x HTTP/1.0\r\nHost: HOST\r\n\r\n"),
    Case("0.9", b"GET /u0/x\r\n\r\n", MALFORMED),
    Case("1.2", get(version=b"HTTP/1.2"), MALFORMED),
    Case("RTSP", get(version=b"RTSP/1.0"), MALFORMED),
    Case("RTSP 1.1", get(version=b"RTSP/1.1"), MALFORMED),
    Case("1.10", get(version=b"HTTP/1.10"), MALFORMED),
    Case("2.0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", MALFORMED),
    Case("http/1.1", get(version=b"http/1.1"), MALFORMED),
    Case("a word after the version", get(version=b"HTTP/1.1 x"), MALFORMED),
    Case("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", MALFORMED),
    Case("a method in lower case", b"get /u0/x HTTP/1.1\r\nHost: c\r\n\r\n", MALFORMED),
    Case("a head too large", get(b"/u0/x", b"A: " + b"a" * 70_000), Refused(431, b"headers_too_large")),
    Case("a target too large", get(b"/u0/" + b"a" * 70_000), Refused(431, b"headers_too_large")),
]

TARGETS = [
    Case("base path", get(b"/u0/a%2Fb/./c//d;e@f:g?h=/../i&j=\\"), forwarded(b"/base/a%2Fb/./c//d;e@f:g?h=/../i&j=\\")),
    Case("only the name", get(b"/u0"), forwarded(b"/base")),
    Case("the name and a query", get(b"/u0?x"), forwarded(b"/base?x")),
    Case("dots that are no parent", get(b"/u0/..a/.../b.."), forwarded(b"/base/..a/.../b..")),
    Case("a host after the name", get(b"/u0//evil.example/x"), forwarded(b"/base//evil.example/x")),
    Case("@ after the name", get(b"/u0/@evil.example"), forwarded(b"/base/@evil.example")),
    Case("absolute form", get(b"http://evil.example/u0/x"), TARGET),
    Case("absolute form to our host", get(b"http://c/u0/x"), TARGET),
    Case("absolute form, https", get(b"https://169.254.169.254/u0/x"), TARGET),
    Case("asterisk", b"OPTIONS * HTTP/1.1\r\nHost: c\r\n\r\n", TARGET),
    Case("no slash", get(b"u0/x"), MALFORMED),
    Case("//host", get(b"//evil.example/u0/x"), UNKNOWN),
    Case("@ in the name", get(b"/u0@evil.example/x"), UNKNOWN),
    Case(": in the name", get(b"/u0:80/x"), UNKNOWN),
    Case("a host as a name", get(b"/169.254.169.254/x"), UNKNOWN),
    Case("a decimal address", get(b"/2852039166/x"), UNKNOWN),
    Case("an IPv6 address", get(b"/[fd00:ec2::254]/x"), UNKNOWN),
    Case("a URL as a name", get(b"/http://evil.example/x"), UNKNOWN),
    Case("a percent-encoded name", get(b"/%75%30/x"), UNKNOWN),
    Case("..", get(b"/u0/../x"), TARGET),
    Case("a .. at the end", get(b"/u0/a/.."), TARGET),
    Case(".. and a query", get(b"/u0/..?x"), TARGET),
    Case(".. before the name", get(b"/../u0/x"), TARGET),
    Case("%2e%2e", get(b"/u0/%2e%2E/x"), TARGET),
    Case(".%2e", get(b"/u0/.%2e/x"), TARGET),
    Case("..%2f", get(b"/u0/..%2Fx"), TARGET),
    Case("%5c..%5c", get(b"/u0/%5c..%5Cx"), TARGET),
    Case("..;", get(b"/u0/..;/x"), TARGET),
    Case("..;a=b", get(b"/u0/..;a=b/x"), TARGET),
    Case("backslash", get(b"/u0/..\\x"), TARGET),
    Case("fragment", get(b"/u0/x#/../y"), TARGET),
    Case("fragment after a query", get(b"/u0/x?a#b"), TARGET),
    Case("a target beyond ASCII", get(b"/u0/\xc3\xa9"), MALFORMED),
    Case("NUL in a target", get(b"/u0/\0"), MALFORMED),
    Case("a tab in a target", get(b"/u0/\tx"), MALFORMED),
]

FIELDS = [
    Case(
        "Host is the upstream's",
        b"GET /u0/x HTTP/1.1\r\nhOST: evil.example\r\n\r\n",
        b"GET /base/x HTTP/1.1\r\nhOST: HOST\r\n\r\n",
    ),
    Case("an odd Host", b"GET /u0/x HTTP/1.1\r\nHost: a b@[::1]/\r\n\r\n", forwarded()),
    Case("two Hosts", get(b"/u0/x", b"host: d"), MALFORMED),
    Case("two equal Hosts", get(b"/u0/x", b"Host: c"), MALFORMED),
    Case("no Host", b"GET /u0/x HTTP/1.1\r\nA: b\r\n\r\n", MALFORMED),
    Case(
        "hop-by-hop fields",
        get(
            b"/u0/x",
            b"Keep-Alive: 5",
            b"Proxy-Connection: x",
            b"Proxy-Authorization: Basic eA==",
            b"TE: trailers",
            b"Trailer: A",
            b"B: c",
        ),
        forwarded(b"/base/x", b"B: c"),
    ),
    Case(
        "fields named by Connection",
        get(b"/u0/x", b"Connection: x-a ,X-B,", b"X-A: 1", b"connection: X-C", b"x-b: 2", b"X-c: 3", b"X-D: 4"),
        forwarded(b"/base/x", b"X-D: 4"),
    ),
    Case(
        "Connection names fields of the relay",
        post(b"Connection: host, content-length, transfer-encoding\r\nContent-Length: 2\r\n", b"hi"),
        forwarded_post(b"Content-Length: 2\r\n", b"hi"),
    ),
    Case(
        "forwarding fields",
        get(b"/u0/x", b"X-Forwarded-Host: evil", b"Forwarded: host=evil"),
        forwarded(b"/base/x", b"X-Forwarded-Host: evil", b"Forwarded: host=evil"),
    ),
    Case(
        "h2c is ignored",
        get(b"/u0/x", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AA"),
        forwarded(),
    ),
    Case(
        "TLS and another version of HTTP are ignored, too",
        get(b"/u0/x", b"Connection: Upgrade", b"Upgrade: TLS/1.2, http/2.0,"),
        forwarded(),
    ),
    Case("an upgrade without a Connection option", get(b"/u0/x", b"Upgrade: websocket"), forwarded()),
    Case(
        "WebSocket",
        get(b"/u0/x", b"Connection: keep-alive, Upgrade", b"Upgrade: websocket"),
        Refused(426, b"upgrade_refused"),
    ),
    Case(
        "an upgrade among others",
        get(b"/u0/x", b"Connection: upgrade", b"Upgrade: h2c, foo/2"),
        Refused(426, b"upgrade_refused"),
    ),
    Case("CONNECT", b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: c\r\n\r\n", METHOD),
    Case("CONNECT with a path", b"CONNECT /u0/x HTTP/1.1\r\nHost: c\r\n\r\n", METHOD),
    Case("a method of another protocol", b"DESCRIBE /u0/x HTTP/1.1\r\nHost: c\r\n\r\n", MALFORMED),
]

# A request inside a body: it must remain a part of the body.
INNER = b"GET /u0/inner HTTP/1.1\r\nHost: c\r\n\r\n"
BODIES = [
    Case(
        "a request in a body",
        post(b"Content-Length: %d\r\n" % len(INNER), INNER),
        forwarded_post(b"Content-Length: %d\r\n" % len(INNER), INNER),
    ),
    Case(
        "a request in a chunk",
        post(CHUNKED, b"%x\r\n%b\r\n%b" % (len(INNER), INNER, LAST)),
        forwarded_post(CHUNKED, b"%x\r\n%b\r\n%b" % (len(INNER), INNER, LAST)),
    ),
    Case("a request after a refused one", post(b"Content-Length: 1\r\n" + CHUNKED, LAST + INNER), MALFORMED),
    Case("a request after bad chunks", post(CHUNKED, b"5\r\nhello\r\n0\r\n\n" + INNER), BAD_AFTER_CHUNK),
    Case(
        "a request after bytes too many",
        post(b"Content-Length: 2\r\n", b"hi!" + INNER),
        forwarded_post(b"Content-Length: 2\r\n", b"hi"),
    ),
]

CASES = [*FRAMING_FIELDS, *CHUNKS, *LINES, *TARGETS, *FIELDS, *BODIES]
