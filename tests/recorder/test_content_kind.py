"""The kind of a content, by its first bytes: the same for any split, and known as soon as they show it."""

import pytest

from streamgauge.core.http1.head import ResponseHead
from streamgauge.recorder.content_kind import MAX_FIRST_EVENT, ContentKind, KindDetector
from tests.core.cuts import every_way
from tests.core.formats import aws_messages

SSE, LINES, ARRAY, WHOLE = ContentKind.SSE, ContentKind.LINES, ContentKind.ARRAY, ContentKind.WHOLE
AWS, MESSAGE = ContentKind.AWS_EVENTS, aws_messages.event("messageStart", b'{"role":"assistant"}')
LINE = b'{"model":"m","message":{"content":"Hi"},"done":false}\n'
LAST_LINE = b'{"model":"m","message":{"content":"Hi"},"done":true}\n'
ELEMENT = b'[{\n "candidates": [{"content": {"parts": [{"text": "Hi"}]}}]\n}\n'
BOM = b"\xef\xbb\xbf"

CASES = [
    # type, status, the first bytes that show the kind, what follows them, the kind
    ("text/event-stream", 200, b"d", b"ata: {}\n\n", SSE),
    ("text/event-stream", 200, BOM + b"d", b"ata: {}\n\n", SSE),
    ("text/event-stream", 200, b'{"error":"busy"}\n', b"", WHOLE),
    ("text/event-stream", 200, LINE, LINE, LINES),
    ("application/x-ndjson", 200, b"{", LINE[1:], LINES),
    ("application/x-ndjson; charset=utf-8", 200, b"\n{", LAST_LINE[1:], LINES),
    ("application/x-ndjson", 200, BOM + b"{", LAST_LINE[1:], LINES),
    ("application/x-ndjson", 404, b"", b'{"error":"no such model"}\n', WHOLE),
    ("application/json", 200, LINE, LINE, LINES),  # ollama.com
    ("application/json", 200, LAST_LINE, b"", WHOLE),
    ("application/json", 200, b"{\n", b' "model": "m"}', WHOLE),
    ("application/json", 200, b'{"object":"chat.completion","choices":[]}\n', b"", WHOLE),
    ("application/json; charset=UTF-8", 200, ELEMENT[:-1], ELEMENT, ARRAY),
    ("application/json", 200, b'[{"error":{"code":503}}', b"]", WHOLE),
    ("application/json", 200, b"[1,", b"2]", WHOLE),
    ("application/json", 400, b"", ELEMENT + b"]", WHOLE),
    ("application/vnd.amazon.eventstream", 200, b"", MESSAGE, AWS),
    ("application/vnd.amazon.eventstream", 400, b"", b'{"message":"no"}', WHOLE),
    ("application/octet-stream", 200, MESSAGE[:12], MESSAGE[12:], AWS),
    ("application/octet-stream", 200, b"\0" * 12, b"", WHOLE),
    (None, None, MESSAGE[:12], MESSAGE[12:], AWS),
    (None, None, LINE, LINE, LINES),
    (None, None, BOM + ELEMENT[:-1], b"]", ARRAY),
    (None, None, b"d", b"ata: {}\n\n", SSE),
    (None, None, b"<", b"html>", WHOLE),
]  # fmt: skip


def detector(content_type: str | None, status: int | None, path: str | None = None) -> KindDetector:
    if content_type is None:
        return KindDetector(None, path)
    return KindDetector(ResponseHead(status or 200, 1, [("content-type", content_type)]), path)


def kind_of(made: KindDetector, pieces: list[bytes]) -> ContentKind:
    for piece in pieces:
        kind = made.feed(piece)
        if kind is not None:
            return kind
    return made.finish()


@pytest.mark.parametrize(("content_type", "status", "first", "rest", "kind"), CASES)
def test_the_first_bytes_show_the_kind(
    content_type: str | None, status: int | None, first: bytes, rest: bytes, kind: ContentKind
) -> None:
    for pieces in every_way(first + rest):
        assert kind_of(detector(content_type, status), pieces) is kind
    before = detector(content_type, status)
    assert first[:1] == b"" or before.feed(first[:-1]) is None
    at_once = detector(content_type, status)
    assert (at_once.feed(first) or (None if rest else at_once.finish())) is kind


def test_a_byte_order_mark_before_json_is_dropped() -> None:
    for content_type in ("application/json", "application/x-ndjson"):
        made = detector(content_type, 200)
        made.feed(BOM + LINE)
        assert made.first == LINE


@pytest.mark.parametrize(("path", "kind"), [(":streamGenerateContent", ARRAY), ("/messages", WHOLE), (None, WHOLE)])
def test_a_long_first_element_is_a_stream_where_the_endpoint_sends_one(path: str | None, kind: ContentKind) -> None:
    long = b'[{"candidates":[{"content":{"parts":[{"inlineData":{"data":"' + b"A" * MAX_FIRST_EVENT
    for size in (1_000, len(long)):
        made = detector("application/json", 200, path)
        assert kind_of(made, [long[at : at + size] for at in range(0, len(long), size)]) is kind


def test_a_first_line_at_the_limit_gives_one_kind_in_any_pieces() -> None:
    for spare in (0, 1):
        line = LINE[:-2] + b" " * (MAX_FIRST_EVENT - len(LINE) + spare) + b"}\n"
        whole = kind_of(detector("application/json", 200), [line])
        assert whole is (WHOLE if spare else LINES)
        assert kind_of(detector("application/json", 200), [line[:-1], line[-1:]]) is whole


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [("text/event-stream", SSE), ("application/x-ndjson", LINES), ("application/json", WHOLE), (None, SSE)],
)
def test_the_head_announces_a_kind(content_type: str | None, kind: ContentKind) -> None:
    assert detector(content_type, 200).announced is kind
