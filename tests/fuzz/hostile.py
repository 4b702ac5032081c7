"""Malformed or extreme JSON in place of a provider's value, as bytes.

Strings with WORD have a character next to it that is not allowed in a label: neither a record nor a masked segment may
show it.
"""

# Must not occur in anything that is kept, for any capture: next to it is a character that no type, code, id or name may have.
WORD = "kAnArIe"
CANARY = f"\u00df{WORD}\u00df"

# Levels of nesting: readable by all, at the limit of Python's stack, and far beyond.
DEPTHS = (40, 300, 480, 960, 990, 100_000)
# Digits of an integer: beyond 64 bits, beyond Python's default limit (4,300), and far beyond.
DIGITS = (20, 41, 309, 5_000, 100_000)
# More members than a masked object keeps, and more elements than any list of a provider has.
MANY_MEMBERS = 600
MANY_ELEMENTS = 300
HUGE_STRING_BYTES = 1024 * 1024

SCALARS: tuple[bytes, ...] = (
    *(b"null", b"true", b"false", b"0", b"-0", b"-1", b"1", b"5", b"55", b"1.5", b"-0.0", b"1e2", b"1e-400"),
    *(b"1e400", b"-1e400", b"NaN", b"Infinity", b"9007199254740993", b"9223372036854775808", b"18446744073709551616"),
    *(b'""', b'"0"', b'"[DONE]"', b'"error"', b'"masked"', b'"stop"', b'"x y"', b'"a\\u0000b"', b'"\\ud800"'),
    *(b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"', b'"\\ufeff"', b'"\\u2028"', "\u2028\ufeff".encode().join([b'"', b'"'])),
    b'"' + CANARY.encode() + b'"',
    b'"chat.completion ' + CANARY.encode() + b'"',
    b'"response.' + CANARY.encode() + b'"',
    b'"' + b"i" * 300 + b'"',
)
CONTAINERS: tuple[bytes, ...] = (
    *(b"[]", b"{}", b"[[]]", b"[{}]", b"[null]", b'[1,"a"]', b'{"a":1}', b'{"a":1,"a":2}', b'{"":""}'),
    *(b'{"a":"\\ud800"}', b'{"a":18446744073709551616}', b'{"a":1e400}', b'[{"text":"t"},{"text":5,"summary":"s"}]'),
    b'{"' + CANARY.encode() + b'":"' + CANARY.encode() + b'"}',
    b"{" + b",".join(b'"k%d":0' % number for number in range(MANY_MEMBERS)) + b"}",
    b"[" + b",".join([b'{"type":"a","id":"b"}'] * MANY_ELEMENTS) + b"]",
)
DEEP: tuple[bytes, ...] = (
    *(b"[" * depth + b"]" * depth for depth in DEPTHS),
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in DEPTHS),
)
LONG: tuple[bytes, ...] = (
    *(b"1" * digits for digits in DIGITS),
    b"-1." + b"3" * DIGITS[-1],
    b'"' + b"y" * HUGE_STRING_BYTES + b'"',
    b'"' + b"\\ud800" * 1000 + b'"',
)

SMALL: tuple[bytes, ...] = (*SCALARS, *CONTAINERS)
VALUES: tuple[bytes, ...] = (*SMALL, *DEEP, *LONG)

# Bytes that must not be within a stream.
RAW: tuple[bytes, ...] = (
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r", b":", b": ping\n", b"\0", b"\xff", b"\xc3"),
    *(b"\xef\xbb\xbf", "\u2028".encode(), b"data", b"data:", b"data: ", b"event: error\n", b"event: output\n"),
    *(b"id: 7\n", b"id: \0\n", b"retry: 10\n", b"retry: " + b"9" * 5000 + b"\n", b"error: {}\n", b"data: [DONE]\n\n"),
    *(b'error: {"type":"' + CANARY.encode() + b'"}\n', b"id: " + CANARY.encode() + b"\n"),
    *(b'{"error":{"code":503}}\n\n', b"streamgauge-oversized\n", b"<html>\n\n", b"data: {\n\n", b"data\n\n"),
)
