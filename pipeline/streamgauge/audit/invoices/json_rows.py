"""Reads the rows of JSON one by one, so that a file of any size takes little memory. Pure: text in, rows out.

A file holds a page, a list of pages, of buckets or of rows, or several of these one after another (JSON lines, `curl >>`).
A page is an object whose `data` is a list, or one element of it. Its elements are buckets with a list of rows in `results`
(older documents: `result`), or rows. Numbers with a point become Decimal, never float.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

from streamgauge.audit.invoices.contract import BadTextError, repeated_name
from streamgauge.audit.invoices.values import shown

# The longest accepted value, and the most that a page has beside `data`, or a bucket beside its rows (characters): rows have
# some hundred.
MAX_VALUE = 4 * 1024 * 1024
# Rows that wait for a bucket that names its start after them, and their characters: some hundred a row.
MAX_WAITING = 100_000
MAX_WAITING_CHARS = 8 * MAX_VALUE
# Digits of a number: more than any amount has, and few enough to be converted fast.
MAX_DIGITS = 60
_ROWS = ("results", "result")
_STARTS = ("start_time", "starting_at")
_ENDS = ("end_time", "ending_at")
_BLANK = " \t\r\n"


class JsonRow(NamedTuple):
    """A row: its line, its path in the document, its values, and those of its bucket. values: None after the last row of a
    bucket, also of an empty one.
    """

    line: int
    path: str
    values: Mapping[str, object] | None
    bucket: Mapping[str, object]


class Page(dict[str, object]):
    """The members of a page beside `data`. `line`: where it ends."""

    line = 1


def rows_of(chunks: Iterable[str], page: Page) -> Iterator[JsonRow]:
    """The rows of a document, in its order. `page` becomes the last page that was read whole. Raises BadTextError."""
    text = _Text(chunks)
    number = 0
    while (begin := text.peek()) and (begin in "{[" or not number):
        if begin == "[":
            for index in text.elements():
                yield from _item(text, f"[{index}]", page)
        elif begin == "{":
            yield from _item(text, "", page)
        else:
            raise BadTextError("the document is neither a page nor a list of pages, buckets or rows", text.line)
        number += 1
    if begin:
        raise BadTextError("text follows the end of the document", text.line)


def _item(text: "_Text", path: str, page: Page | None) -> Iterator[JsonRow]:
    """The rows of an object: a page if it has `data` and `page` is given, else a bucket or a row."""
    line = text.line_now()
    subject = path or "the page"
    if text.peek() != "{":
        raise BadTextError(f"{subject} is not an object", text.line)
    own: dict[str, object] = {}
    members = _Members(text, own, subject)
    before = f"{path}." if path else ""
    lists: set[str] = set()
    waiting: list[JsonRow] = []
    for name in text.members():
        if name == "data" and page is not None and text.peek() in ("{", "["):
            rows = _elements(text, f"{before}data")
        elif name in _ROWS and text.peek() == "[":
            rows = _results(text, f"{before}{name}", subject, own, waiting)
        else:
            members.read(name)
            continue
        if lists:
            raise BadTextError(f"{subject} has two lists of results", text.line)
        lists.add(name)
        yield from rows
    yield from waiting
    if page is not None and "data" in lists:
        page.clear()
        page.update(own)
        page.line = text.line_now()
    elif lists:
        yield JsonRow(line, path, None, own)
    else:
        yield JsonRow(line, path, own, {})


def _elements(text: "_Text", path: str) -> Iterator[JsonRow]:
    """The rows of a page's `data`: a list of buckets or rows, or one of them."""
    if text.peek() == "{":
        yield from _item(text, path, None)
        return
    for index in text.elements():
        yield from _item(text, f"{path}[{index}]", None)


def _results(
    text: "_Text", path: str, subject: str, bucket: Mapping[str, object], waiting: list[JsonRow]
) -> Iterator[JsonRow]:
    """The rows of a bucket. Those that come before its times are put into `waiting`."""
    waiting_chars = 0
    for number in text.elements():
        line, begin = text.line_now(), text.offset
        values = text.value()
        if not isinstance(values, dict):
            raise BadTextError(f"{path}[{number}] is not an object", line)
        row = JsonRow(line, f"{path}[{number}]", values, bucket)
        if _is_dated(bucket):
            yield row
        elif len(waiting) < MAX_WAITING and waiting_chars + text.offset - begin <= MAX_WAITING_CHARS:
            waiting.append(row)
            waiting_chars += text.offset - begin
        else:
            raise BadTextError(f"{subject} names its times after more than {len(waiting)} results", line)


class _Members:
    """Reads the members of an object into `into`, up to MAX_VALUE characters in all. `subject`: the object, for sentences."""

    def __init__(self, text: "_Text", into: dict[str, object], subject: str) -> None:
        self._text, self._into, self._subject = text, into, subject
        self._chars = 0

    def read(self, name: str) -> None:
        """Read the value of the member `name`, which the caller has read. Raises BadTextError."""
        if name in self._into:
            raise BadTextError(f"{self._subject} has the key {shown(name)} twice", self._text.line)
        begin = self._text.offset
        self._into[name] = self._text.value()
        self._chars += len(name) + self._text.offset - begin
        if self._chars > MAX_VALUE:
            raise BadTextError(
                f"{self._subject} has more than {MAX_VALUE} characters beside its rows", self._text.line_now()
            )


def _is_dated(bucket: Mapping[str, object]) -> bool:
    return any(name in bucket for name in _STARTS) and any(name in bucket for name in _ENDS)


class _Text:
    """A JSON text that is read from its beginning to its end."""

    def __init__(self, chunks: Iterable[str]) -> None:
        self._chunks = iter(chunks)
        self._buffer = ""
        self._at = 0
        self._counted = 0  # up to here in the buffer, line feeds are in `line`
        self._dropped = 0  # characters before the buffer
        self.line = 1
        decoder = json.JSONDecoder(
            parse_float=_decimal, parse_int=_whole, parse_constant=_constant, object_pairs_hook=_object
        )
        self._decode = decoder.raw_decode

    @property
    def offset(self) -> int:
        """The number of characters before the next one."""
        return self._dropped + self._at

    def line_now(self) -> int:
        """The line of the next character, from 1."""
        self.line += self._buffer.count("\n", self._counted, self._at)
        self._counted = self._at
        return self.line

    def peek(self) -> str:
        """The next character that is no blank; empty at the end."""
        while True:
            while self._at < len(self._buffer):
                char = self._buffer[self._at]
                if char not in _BLANK:
                    self.line_now()
                    return char
                self._at += 1
            if not self._more():
                self.line_now()
                return ""

    def take(self, expected: str) -> None:
        """The next character, which has to be this one."""
        if self.peek() != expected:
            self._fail(f"{expected!r} is missing")
        self._at += 1

    def members(self) -> Iterator[str]:
        """The names of an object's members; the caller reads each value."""
        self.take("{")
        if self.peek() == "}":
            self._at += 1
            return
        while True:
            if self.peek() != '"':
                self._fail("a member's name is missing")
            name = self.value()
            self.take(":")
            self.peek()
            yield str(name)
            if self.peek() == "}":
                self._at += 1
                return
            self.take(",")

    def elements(self) -> Iterator[int]:
        """The indexes of a list's elements; the caller reads each value."""
        self.take("[")
        if self.peek() == "]":
            self._at += 1
            return
        index = 0
        while True:
            self.peek()
            yield index
            index += 1
            if self.peek() == "]":
                self._at += 1
                return
            self.take(",")

    def value(self) -> Any:
        """The next value, whole."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._buffer, self._at)
                if end < len(self._buffer) or not self._more():  # a number may go on in the next chunk
                    self._at = end
                    return value
                continue
            except json.JSONDecodeError as error:
                if len(self._buffer) - self._at > MAX_VALUE:
                    self._fail(f"a value is not valid JSON, or longer than {MAX_VALUE} characters")
                if not self._more():
                    self._at = min(max(error.pos, self._at), len(self._buffer))
                    self._fail(f"the document is not valid JSON: {error.msg}")
            except RecursionError:
                self._fail("values are nested too deeply")
            except _NumberError as error:
                self._fail(str(error))

    def _more(self) -> bool:
        """Read a further chunk; False at the end of the text."""
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self.line_now()
        self._dropped += self._at
        self._buffer = self._buffer[self._at :] + chunk
        self._at = self._counted = 0
        return True

    def _fail(self, fault: str) -> NoReturn:
        raise BadTextError(fault, self.line_now())


class _NumberError(Exception):
    """A number or an object that no invoice has. It is no ValueError, which the decoder raises for incomplete text."""


def _decimal(digits: str) -> Decimal:
    if len(digits) > MAX_DIGITS:
        raise _NumberError(f"a number has more than {MAX_DIGITS} digits")
    return Decimal(digits)


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _NumberError(f"a number has more than {MAX_DIGITS} digits")
    return int(digits)


def _constant(name: str) -> object:
    return name  # the text "NaN" or "Infinity", which no reader of a number accepts


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _NumberError(f"an object has the key {shown(repeated_name(name for name, _ in pairs))} twice")
    return members
