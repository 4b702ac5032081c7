"""The parts of which stories.py makes requests: for each part the usual form and the irregular ones."""

from tests.taps.proxy.refusals import MAX_HEAD

# What the upstream does with a request (driving.py).
PLANS = (
    *(b"ok",) * 8, *(b"early",) * 3, *(b"slow",) * 2, b"chunked", b"close", b"stray", b"drop", b"empty", b"hints",
    b"eof", b"late", b"earlyclose",
)  # fmt: skip

# Placeholder for a story's key, with the same length.
KEY = b"k----KEY---"
# A request that looks like the content of a body, or the reverse.
INNER = b"GET /u0/%b/inner HTTP/1.1\r\nHost: c\r\nX: y\r\n\r\n" % KEY

BODIES = (
    b"", b"hi", b"hello", b"0", b"12", b"007 is a number", b"\r\n", b"\r\n\r\n", b"\n\n", b"0\r\n\r\n", INNER,
    INNER * 3, b"\r\n" + INNER, b"0\r\n\r\n" + INNER, b"5\r\nhello\r\n0\r\n\r\n", b'{"model":"m","messages":[]}',
    b"\0\xff" * 20, b"x" * 300, b"POST /u0/%b/inner HTTP/1.1\r\nHost: c\r\nContent-Length: 50\r\n\r\n" % KEY,
    b": \r\n",
)  # fmt: skip

# The parts of a request: the usual form of each, and the irregular ones.
USUAL: dict[str, tuple[bytes, ...]] = {
    "before": (b"",),
    "method": (b"GET", b"POST", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE"),
    "blank": (b" ",),
    "route": (b"/u0", b"/u0", b"/u1"),
    "tail": (b"", b"", b"?y=z", b"/a%2Fb", b"//c", b"/d;e@f", b"/..a/b..", b"?a=/../b\\", b"/.%2Ee", b"/./"),
    "blank 2": (b" ",),
    "version": (b"HTTP/1.1",) * 7 + (b"HTTP/1.0",),
    "line end": (b"\r\n",),
    "host": (b"Host: c\r\n",) * 4 + (b"hOST: evil.example\r\n",),
    "field": (
        b"X-A: b\r\n", b"Accept: */*\r\n", b"X-Api-Key: k\r\n", b"Authorization: Bearer %b\r\n" % KEY,
        b"X-Empty:\r\n", b"Connection: X-A, host\r\n", b"Connection: keep-alive\r\n", b"connection: close\r\n",
        b"TE: trailers\r\n", b"Expect: 100-continue\r\n", b"X:\xe9\r\n", b"X-B:  c\td \r\n",
        b"Proxy-Authorization: Basic eA==\r\n", b"Trailer: Z\r\n", b"Upgrade: websocket\r\n",
        b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"X-A: again\r\n",
    ),
}  # fmt: skip

ODD: dict[str, tuple[bytes, ...]] = {
    "before": (b"\r\n", b"\r\n\r\n", b"\n", b"\r", b" ", b"\0", b"x"),
    "method": (b"get", b"BREW", b"", b"PRI", b"G\xc3\xa9T", b"CONNECT", b"DESCRIBE", b"SOURCE", b"GET GET", b"TRACE"),
    "blank": (b"", b"  ", b"\t", b"\x0b"),
    "route": (
        b"/U0", b"//u0", b"http://c/u0", b"https://169.254.169.254/u0", b"u0", b"/u0@evil", b"/../u0", b"/%75%30",
        b"*", b"/",
    ),
    "tail": (
        b"/" + b"g" * MAX_HEAD, b"/a/../b", b"/..", b"/%2e%2E/x", b"/.%2e", b"/..%2fx", b"/%5c..%5Cx", b"/..;a/",
        b"/..%3bx", b"/%252e%252e/x", b"/%c0%ae./x", b"/..%00/x", b"/..%255cx", b"/%u002e./", b"/..%20/",
        b"/a\\b", b"/..\\b", b"/#", b"?#", b"?\\", b"/\x7f", b"/\xc3\xa9", b"/\0", b"/\t",
        b"/ HTTP/1.1\r\nX: ",
    ),
    "blank 2": (b"", b"  ", b"\t"),
    "version": (
        b"RTSP/1.0", b"RTSP/1.1",
        b"HTTP/1.2", b"HTTP/0.9", b"http/1.1", b"HTTP/11", b"", b"HTTP/2.0", b"HTTP/1.1 x", b"HTTP/1.10",
        b"HTTP/1.1 ",
    ),
    "line end": (b"\n", b"\r", b"\r\r\n", b"\r\n ", b"\r\n\t", b"\r\n\r\n", b"\n\r"),
    "host": (
        b"", b"Host: c\r\nhost: d\r\n", b"Host : c\r\n", b"Host:\r\n", b"Host: a b\r\n", b" Host: c\r\n",
        b"Host: c\r\nHost: c\r\n",
    ),
    "field": (
        b"X A: b\r\n", b"X\r\n", b": b\r\n", b"X: a\rb\r\n", b"X: a\0b\r\n", b"X: a\x7fb\r\n", b"X: a\r\n b\r\n",
        b"X: a\n", b"X: a\r\n\tContent-Length: 3\r\n", b"X: a\rContent-Length: 3\r\n", b"X: a\nContent-Length: 3\r\n",
        b"X(y: z\r\n", b"X\t: a\r\n", b"X\xff: a\r\n", b"Upgrade: x\r\nConnection: upgrade\r\n",
        b"Upgrade: h2c, x\r\nConnection: Upgrade\r\n", b"Upgrade: h2c,\r\nConnection: Upgrade\r\n",
        b"X: " + b"v" * MAX_HEAD + b"\r\n", b"Content-Length: 5\r\n", b"Content-Length: \r\n",
        b"Transfer-Encoding: chunked\r\n", b"Content_Length: 5\r\n", b"Transfer_Encoding: chunked\r\n",
        b"Connection: close, \x0bhost\r\n", b"Content-Length : 2\r\n", b"\r\n", b"X: y\r\n\r\n",
        b"Connection: content-length, transfer-encoding\r\n", b"X: y\r", b"\0: y\r\n",
    ),
}  # fmt: skip

# Content-Length fields around a number.
LENGTHS = (
    b"Content-Length:", b"Content-Length: ", b"Content-Length:\t", b"Content-Length: +%d", b"Content-Length: -%d",
    b"Content-Length: 0x%x", b"Content-Length: 0%d", b"Content-Length: 000%d", b"Content-Length: %d ",
    b"Content-Length:  \t%d\t", b"Content-Length: %d\x0b", b"Content-Length: %d_0", b"Content-Length: %d.0",
    b"Content-Length: %d %d", b"Content-Length: %d, %d", b"Content-Length: %d,", b"Content-Length: ,%d",
    b"Content-Length: %d;q=1", b'Content-Length: "%d"', b"Content-Length: %de0",
    b"Content-Length: 000000000000000000%d", b"Content-Length: 184467440737095516%d",
    b"Content-Length: 9223372036854775808", b"Content-Length: 999999999999999999",
    b"Content-Length: %d\r\nContent-Length: %d", b"Content-Length: %d\r\nContent-Length: 0",
    b"Content-Length: 0\r\nContent-Length: %d", b"Content-Length: \r\nContent-Length: %d",
    b"Content-Length: %d\r\nContent-Length: ", b"Content-Length: %d\r\nContent-Length",
    b"Content-Length: %d\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nContent-Length: %d",
    b"Content-Length: %d\r\nTransfer-Encoding: identity", b"Content-Length: %d\r\nTransfer-Encoding:",
    b"Content-Length:\r\n %d", b"Content-Length: %d\r\n 0", b"Content-Length: 1\r\n\t%d", b"Content-Length\r\n: %d",
    b"Content-Length : %d", b"Content-Length\t: %d", b" Content-Length: %d", b"content-length: %d",
    b"CONTENT-LENGTH:%d", b"Content_Length: %d", b"Content-Length\0: %d", b"Content-Length: %d\0",
    b"Content-Length: %d\r", b"Content-Length: %d\n", b"X: y\rContent-Length: %d", b"X: y\nContent-Length: %d",
    b"Content-Length: \xb2%d", b"Content-Length: \xef\xbc\x95%d", b"Content-Length:\x0c%d", b"Content-Length%d",
    b"Content Length: %d",
)  # fmt: skip

# Codings of a transfer, on a body in chunks.
CODINGS = (
    b"gzip, chunked", b"chunked, gzip", b"chunked, chunked", b"chunked, identity", b"identity", b"identity, chunked",
    b"xchunked", b"chunkedx", b"chunked;q=1", b'"chunked"', b",chunked", b"chunked,", b", chunked", b"", b" ",
    b"CHUNKED", b"Chunked", b" chunked\t", b"chunked\x0b", b"\x0bchunked", b"chunked\0", b"chunked\r", b"chunked\n",
    b"chun\rked", b"\r\n chunked", b"chunked\r\n x", b"chunked\r\nTransfer-Encoding: chunked",
    b"chunked\r\nTransfer-Encoding: identity", b"identity\r\nTransfer-Encoding: chunked",
    b"chunked\r\nTransfer_Encoding: chunked", b"chunked\r\nContent-Length: 3", b"chunked\r\ncontent-length: ", b"cow",
    b"\xe3chunked", b"chunked chunked",
)  # fmt: skip

# A chunk of b"hello" and the end of the body in unusual forms. The first ones are valid.
CHUNKS = (
    b"5\r\nhello\r\n0\r\n\r\n", b"05\r\nhello\r\n000\r\n\r\n", b"5;a=b\r\nhello\r\n0;c\r\n\r\n",
    b'5;a="b c"\r\nhello\r\n0\r\n\r\n', b"5\r\nhello\r\n0\r\nX: y\r\n\r\n", b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    b"5\r\nhello\r\n0\r\nX: y\r\nZ:\r\n\r\n", b"0\r\n\r\n", b"+5\r\nhello\r\n0\r\n\r\n", b"-5\r\nhello\r\n0\r\n\r\n",
    b"0x5\r\nhello\r\n0\r\n\r\n", b"5_\r\nhello\r\n0\r\n\r\n", b" 5\r\nhello\r\n0\r\n\r\n",
    b"5 \r\nhello\r\n0\r\n\r\n", b"5\t\r\nhello\r\n0\r\n\r\n", b"\r\nhello\r\n0\r\n\r\n",
    b"10000000000000005\r\nhello\r\n0\r\n\r\n", b"00000000000000005\r\nhello\r\n0\r\n\r\n",
    b"fffffffffffffffb\r\nhello\r\n0\r\n\r\n", b"5\nhello\r\n0\r\n\r\n", b"5\rhello\r\n0\r\n\r\n",
    b"5;\r\nhello\r\n0\r\n\r\n", b"5;a\nb\r\nhello\r\n0\r\n\r\n", b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    b"5;a=\0\r\nhello\r\n0\r\n\r\n", b'5;a="\r\n"\r\nhello\r\n0\r\n\r\n', b"5;a=b=c\r\nhello\r\n0\r\n\r\n",
    b"5; a\r\nhello\r\n0\r\n\r\n", b"5 ;a\r\nhello\r\n0\r\n\r\n", b"5\r\nhello!\r\n0\r\n\r\n",
    b"5\r\nhell\r\n0\r\n\r\n", b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\r0\r\n\r\n", b"5\r\nhello0\r\n\r\n",
    b"5\r\nhello\r\n\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\n\n", b"5\r\nhello\r\n0\n\r\n", b"5\r\nhello\r\n0\n\n",
    b"5\r\nhello\r\n0\r\n\r", b"5\r\nhello\r\n0\r\nX: y\n\r\n", b"5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n",
    b"5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n", b"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"5\r\nhello\r\n0\r\nX : y\r\n\r\n", b"5\r\nhello\r\n0\r\nX\0: y\r\n\r\n", b"5\r\nhello\r\n0\r\n: y\r\n\r\n",
    b"5\r\nhello\r\n0\r\n \r\n\r\n", b"5\r\nhello\r\n0 \r\n\r\n", b"5\r\nhello\r\n-0\r\n\r\n",
    b"5\r\nhello\r\n0;x=\r\r\n\r\n", b"5,5\r\nhello\r\n0\r\n\r\n", b"\xb2\r\nhe\r\n0\r\n\r\n",
    b"5\r\nhello\r\n" + INNER, b"5\r\nhello\r\n0\r\n" + INNER, b"5\r\nhello\r\n0\r\n\r" + INNER, b"5\r\nhello",
)  # fmt: skip
VALID_CHUNKS = 8

# What damages a request.
PIECES = (
    b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b";", b",", b"0", b"7", b"a", b"\x80", b"\x0b", b"\x7f", b"",
    b"\r\n\r\n",
)  # fmt: skip
