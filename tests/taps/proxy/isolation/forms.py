"""Forms of responses in which clients may see another end than the relay, and ordinary ones beside them."""

OK = b"HTTP/1.1 200 OK"
JSON = b"Content-Type: application/json"
CHUNKED = b"Transfer-Encoding: chunked"
LENGTH = b"Content-Length: 2"
BODY = b"{}"
ONE_CHUNK = b"2\r\n{}\r\n"


def head(*fields: bytes, status: bytes = OK) -> bytes:
    """A head with its blank line."""
    return b"\r\n".join((status, JSON, *fields, b"", b""))


def chunks(body: bytes, *fields: bytes, status: bytes = OK) -> bytes:
    """A chunked response with these bytes as its chunks."""
    return head(CHUNKED, *fields, status=status) + body


INNER = b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"by": "hostile"}'

ORDINARY = {
    "length": head(LENGTH) + BODY,
    "chunked": chunks(ONE_CHUNK + b"0\r\n\r\n"),
    "trailers": chunks(ONE_CHUNK + b"0\r\nX-A: b\r\n\r\n"),
    "extension": chunks(b"2;a=b\r\n{}\r\n0\r\n\r\n"),
    "no content": head(status=b"HTTP/1.1 204 No Content"),
    "not modified": head(LENGTH, status=b"HTTP/1.1 304 Not Modified"),
    "connection close": head(b"Connection: close", LENGTH) + BODY,
    "1.0": head(LENGTH, status=b"HTTP/1.0 200 OK") + BODY,
    "1.0 keep-alive": head(LENGTH, b"Connection: keep-alive", status=b"HTTP/1.0 200 OK") + BODY,
}
INTERIM = {
    "100": b"HTTP/1.1 100 Continue\r\n\r\n",
    "102": b"HTTP/1.1 102 Processing\r\n\r\n",
    "103": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
    "199": b"HTTP/1.1 199 X\r\n\r\n",
    "103 with a length": head(b"Content-Length: 0", status=b"HTTP/1.1 103 X"),
    "199 with a body": head(LENGTH, status=b"HTTP/1.1 199 X") + BODY,
    "100 with a length": head(b"Content-Length: 0", status=b"HTTP/1.1 100 X"),
    "100 chunked": head(CHUNKED, status=b"HTTP/1.1 100 X") + b"0\r\n\r\n",
    "101": head(b"Upgrade: a", b"Connection: upgrade", status=b"HTTP/1.1 101 X"),
    "two of 103, then whole": b"HTTP/1.1 103 X\r\n\r\n" * 2 + ORDINARY["length"],
}
CHUNKS = {
    "LF alone": chunks(b"2\n{}\n0\n\n"),
    "size line LF": chunks(b"2\n{}\r\n0\r\n\r\n"),
    "data LF": chunks(b"2\r\n{}\n0\r\n\r\n"),
    "last size LF": chunks(ONE_CHUNK + b"0\n\r\n"),
    "last LF": chunks(ONE_CHUNK + b"0\r\n\n"),
    "last CR": chunks(ONE_CHUNK + b"0\r\n\r"),
    "trailer LF": chunks(ONE_CHUNK + b"0\r\nA: b\n\r\n"),
    "trailer without a colon": chunks(ONE_CHUNK + b"0\r\nfoo\r\n\r\n"),
    "trailer folded": chunks(ONE_CHUNK + b"0\r\nA: b\r\n c\r\n\r\n"),
    "trailer of blanks": chunks(ONE_CHUNK + b"0\r\n \r\n\r\n"),
    "trailer with CR": chunks(ONE_CHUNK + b"0\r\nA: b\r\r\n\r\n"),
    "trailer Content-Length": chunks(ONE_CHUNK + b"0\r\nContent-Length: 0\r\n\r\n"),
    "trailer Content-Length 16": chunks(ONE_CHUNK + b"0\r\nContent-Length: 16\r\n\r\n"),
    "trailer Transfer-Encoding": chunks(ONE_CHUNK + b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "trailer Connection": chunks(ONE_CHUNK + b"0\r\nConnection: close\r\n\r\n"),
    "trailer Upgrade": chunks(ONE_CHUNK + b"0\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n"),
    "extension with a control character": chunks(b"2;\x01\r\n{}\r\n0\r\n\r\n"),
    "last extension with DEL": chunks(ONE_CHUNK + b"0;\x7f\r\n\r\n"),
    "extension after a blank": chunks(b"2 ;a\r\n{}\r\n0\r\n\r\n"),
    "extension with CR": chunks(b"2;a\rb\r\n{}\r\n0\r\n\r\n"),
    "extension with a quoted LF": chunks(b'2;a="\n"\r\n{}\r\n0\r\n\r\n'),
    "size 0x": chunks(b"0x2\r\n{}\r\n0\r\n\r\n"),
    "size +": chunks(b"+2\r\n{}\r\n0\r\n\r\n"),
    "size -": chunks(b"-2\r\n{}\r\n0\r\n\r\n"),
    "size after a blank": chunks(b" 2\r\n{}\r\n0\r\n\r\n"),
    "size before a blank": chunks(b"2 \r\n{}\r\n0\r\n\r\n"),
    "size _": chunks(b"0_2\r\n{}\r\n0\r\n\r\n"),
    "size of 21 digits": chunks(b"0" * 20 + b"2\r\n{}\r\n0\r\n\r\n"),
    "size beyond 64 bits": chunks(b"1" + b"0" * 15 + b"2\r\n{}\r\n0\r\n\r\n"),
    "size of 2**32": chunks(ONE_CHUNK + b"100000000\r\n\r\n"),
    "size of 2**32 + 2": chunks(b"100000002\r\n{}\r\n0\r\n\r\n"),
    "size empty": chunks(ONE_CHUNK + b"\r\n\r\n"),
    "size minus zero": chunks(ONE_CHUNK + b"-0\r\n\r\n"),
    "data without an end": chunks(b"2\r\n{}0\r\n\r\n"),
    "data with a wrong end": chunks(b"2\r\n{}XX0\r\n\r\n"),
    "data end of CR alone": chunks(b"2\r\n{}\r0\r\n\r\n"),
    "upgrade offered": chunks(ONE_CHUNK + b"0\r\n\r\n", b"Upgrade: h2c", b"Connection: upgrade"),
}
HEADS = {
    "identity beside a length": head(b"Transfer-Encoding: identity", LENGTH) + BODY,
    "unknown coding beside a length": head(b"Transfer-Encoding: x-none", LENGTH) + BODY,
    "empty coding beside a length": head(b"Transfer-Encoding: ,", LENGTH) + BODY,
    "coding list beside a length": head(b"Transfer-Encoding: gzip, identity", LENGTH) + BODY,
    "xchunked": head(b"Transfer-Encoding: xchunked") + ONE_CHUNK + b"0\r\n\r\n",
    "chunked, identity": head(b"Transfer-Encoding: chunked, identity") + ONE_CHUNK + b"0\r\n\r\n",
    "identity, chunked": head(b"Transfer-Encoding: identity, chunked") + ONE_CHUNK + b"0\r\n\r\n",
    "gzip, chunked": head(b"Transfer-Encoding: gzip, chunked") + ONE_CHUNK + b"0\r\n\r\n",
    "chunked twice": head(CHUNKED, CHUNKED) + ONE_CHUNK + b"0\r\n\r\n",
    "chunked before a blank": head(b"Transfer-Encoding: chunked ") + ONE_CHUNK + b"0\r\n\r\n",
    "chunked before a tab": head(b"Transfer-Encoding: chunked\t") + ONE_CHUNK + b"0\r\n\r\n",
    "chunked after VT": head(b"Transfer-Encoding: \x0bchunked") + ONE_CHUNK + b"0\r\n\r\n",
    "chunked before a no-break space": head(b"Transfer-Encoding: chunked\xa0", LENGTH) + ONE_CHUNK + b"0\r\n\r\n",
    "coding before a blank": head(b"Transfer-Encoding : chunked", LENGTH) + BODY,
    "coding beside a length": head(CHUNKED, LENGTH) + ONE_CHUNK + b"0\r\n\r\n",
    "length beside a coding": head(b"Content-Length: 9", CHUNKED) + ONE_CHUNK + b"0\r\n\r\n",
    "1.0 with a coding": head(CHUNKED, b"Connection: keep-alive", status=b"HTTP/1.0 200 OK") + ONE_CHUNK + b"0\r\n\r\n",
    "1.0 with both": head(CHUNKED, LENGTH, b"Connection: keep-alive", status=b"HTTP/1.0 200 OK") + BODY,
    "1.0 with a coding, closing": head(CHUNKED, status=b"HTTP/1.0 200 OK") + ONE_CHUNK + b"0\r\n\r\n",
    "204 with a coding": chunks(ONE_CHUNK + b"0\r\n\r\n", status=b"HTTP/1.1 204 X"),
    "204 with a length": head(LENGTH, status=b"HTTP/1.1 204 X") + BODY,
    "304 with a coding": chunks(ONE_CHUNK + b"0\r\n\r\n", status=b"HTTP/1.1 304 X"),
    "205 with a length": head(LENGTH, status=b"HTTP/1.1 205 X") + BODY,
    "205 without a length": head(status=b"HTTP/1.1 205 X"),
    "205 with a response": head(b"Content-Length: %d" % len(INNER), status=b"HTTP/1.1 205 X") + INNER,
    "205 with a response in a chunk": chunks(b"%x\r\n%b\r\n0\r\n\r\n" % (len(INNER), INNER), status=b"HTTP/1.1 205 X"),
    "305 with a response": head(b"Content-Length: %d" % len(INNER), status=b"HTTP/1.1 305 X") + INNER,
    "range without a length": head(b"Content-Range: bytes 0-1/2", status=b"HTTP/1.1 206 X") + BODY,
    "range before the length's end": head(b"Content-Range: bytes 0-1/2", b"Content-Length: 90") + BODY,
    "X-Accel-Redirect": head(LENGTH, b"X-Accel-Redirect: /u1/1") + BODY,
    "range in a chunk": chunks(b"5a\r\n{}", b"Content-Range: bytes 0-1/2"),
    "no length": head() + BODY,
    "no length, keep-alive": head(b"Connection: keep-alive") + BODY,
    "length with a no-break space": head(b"Content-Length: 2\xa0") + BODY,
    "length folded into another field": head(b"A: b", b"\tContent-Length: 2") + BODY,
    "length empty": head(b"Content-Length:"),
    "length list": head(b"Content-Length: 2, 2") + BODY,
    "length with a comma": head(b"Content-Length: 2,") + BODY,
    "length 02": head(b"Content-Length: 02") + BODY,
    "length +2": head(b"Content-Length: +2") + BODY,
    "length 2_0": head(b"Content-Length: 2_0") + BODY,
    "length -1": head(b"Content-Length: -1") + BODY,
    "lengths 2 and 2": head(LENGTH, LENGTH) + BODY,
    "lengths 2 and 0": head(LENGTH, b"Content-Length: 0") + BODY,
    "lengths 0 and 2": head(b"Content-Length: 0", LENGTH) + BODY,
    "length after a line without a colon": head(b"no colon", LENGTH) + BODY,
    "length after an odd name": head(b"a b: c", LENGTH) + BODY,
    "length after a Latin-1 name": head(b"\xe9: c", LENGTH) + BODY,
    "length after a bare CR": head(b"A: b\rContent-Length: 0", LENGTH) + BODY,
    "length before a NUL": head(b"Content-Length: 2\0") + BODY,
    "name with a NUL": head(b"A\0: b", LENGTH) + BODY,
    "first field folded": b"HTTP/1.1 200 OK\r\n Content-Length: 0\r\nContent-Length: 2\r\n\r\n{}",
    "LF alone": b"HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 2\n\n{}",
    "blank lines before": b"\r\n\r\n" + head(LENGTH) + BODY,
    "version 1.9": head(LENGTH, status=b"HTTP/1.9 200 OK") + BODY,
    "From line": head(b"From a b", LENGTH) + BODY,
    "head of LF and CRLF": b"HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\n{}",
}
FORMS = {
    f"{kind}: {name}": form
    for kind, forms in (("ordinary", ORDINARY), ("interim", INTERIM), ("chunks", CHUNKS), ("head", HEADS))
    for name, form in forms.items()
}
