"""The expected record, computed independently from the bytes that were sent and the stamps taken while sending."""

import zlib
from dataclasses import dataclass, field
from typing import Any

import brotli
import zstandard

from streamgauge_demo.provider import Sent


@dataclass
class Event:
    at: float
    name: str
    data: str
    unterminated: bool = False


@dataclass
class Body:
    """A response, undone: its head's stamp, its body bytes a send, its events."""

    head_at: float = 0.0
    head: bytes = b""
    status: int = 0
    pieces: list[Sent] = field(default_factory=list)
    whole: bool = False
    events: list[Event] = field(default_factory=list)
    comments: int = 0
    error_fields: int = 0
    half: bool = False

    @property
    def bytes(self) -> int:
        return sum(len(piece.data) for piece in self.pieces)


class Dechunk:
    """Decodes chunked framing as it arrives."""

    def __init__(self) -> None:
        self.buffer, self.left, self.state, self.done = b"", 0, "size", False

    def feed(self, data: bytes) -> bytes:
        self.buffer += data
        out = b""
        while not self.done:
            if self.state == "data":
                take = min(self.left, len(self.buffer))
                out, self.buffer, self.left = out + self.buffer[:take], self.buffer[take:], self.left - take
                if self.left:
                    return out
                self.state = "gap"
            line, sep, rest = self.buffer.partition(b"\r\n")
            if not sep:
                return out
            self.buffer = rest
            if self.state == "gap":
                self.state = "size"
            elif self.state == "size":
                self.left = int(line.split(b";")[0], 16)
                self.state = "data" if self.left else "trailer"
            elif not line:
                self.done = True
        return out


class Plain:
    def __init__(self, length: int | None) -> None:
        self.left = length
        self.done = length == 0

    def feed(self, data: bytes) -> bytes:
        if self.left is None:
            return data
        data = data[: self.left]
        self.left -= len(data)
        self.done = self.left == 0
        return data


class Decode:
    """Decodes a content coding as it arrives."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self.engine: Any = {
            "gzip": lambda: zlib.decompressobj(31),
            "deflate": lambda: zlib.decompressobj(15),
            "br": brotli.Decompressor,
            "zstd": lambda: zstandard.ZstdDecompressor().decompressobj(),
        }.get(coding, lambda: None)()

    def feed(self, data: bytes) -> bytes:
        if self.engine is None:
            return data
        return bytes(self.engine.process(data) if self.coding == "br" else self.engine.decompress(data))


class Lines:
    """Event stream lines, by LF, CR and CRLF, each with the stamp of the byte that ended it."""

    def __init__(self) -> None:
        self.buffer, self.skip_lf, self.first = b"", False, True

    def feed(self, data: bytes) -> list[bytes]:
        lines = []
        for value in data:
            byte = bytes([value])
            if self.skip_lf and byte == b"\n":
                self.skip_lf = False
                continue
            self.skip_lf = byte == b"\r"
            if byte in b"\r\n":
                lines.append(self._strip(self.buffer))
                self.buffer = b""
            else:
                self.buffer += byte
        return lines

    def _strip(self, line: bytes) -> bytes:
        first, self.first = self.first, False
        return line.removeprefix(b"\xef\xbb\xbf") if first else line


class Blocks:
    """Lines -> events, by the WHATWG rules, and an `error:` field counted."""

    def __init__(self, body: Body) -> None:
        self.body, self.data, self.name = body, list[str](), ""

    def line(self, line: bytes, at: float) -> None:
        if not line:
            self.flush(at, False)
            return
        if line.startswith(b":"):
            self.body.comments += 1
            return
        key, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if key == "data":
            self.data.append(value)
        elif key == "event":
            self.name = value
        elif key == "error":
            self.body.error_fields += 1

    def flush(self, at: float, unterminated: bool) -> None:
        if self.data:
            self.body.events.append(Event(at, self.name, "\n".join(self.data), unterminated))
        self.data, self.name = [], ""


def after_interim(sent: bytes) -> bytes:
    """What an upstream sent, without the heads with status 1xx before its final head."""
    while sent[9:10] == b"1" and b"\r\n\r\n" in sent:
        sent = sent.partition(b"\r\n\r\n")[2]
    return sent


def read_body(sent: list[Sent], method: str = "POST") -> Body:
    """Undo one response, as it was sent piece by piece. 1xx heads are skipped."""
    body, raw, start = Body(), b"", 0
    undo: Dechunk | Plain | None = None
    decode, lines, blocks = Decode(""), Lines(), Blocks(body)
    for piece in sent:
        data = piece.data
        if undo is None:
            raw += data
            while (end := raw.find(b"\r\n\r\n", start)) >= 0 and raw[start + 9 : start + 10] == b"1":
                start = end + 4
            if end < 0:
                continue
            body.head, body.head_at, data = raw[start : end + 4], piece.at, raw[end + 4 :]
            body.status = int(body.head[9:12])
            undo, decode = _framing(body.head, method)
        payload = undo.feed(data)
        if not payload:
            continue
        body.pieces.append(Sent(piece.at, payload))
        for line in lines.feed(decode.feed(payload)):
            blocks.line(line, piece.at)
    if undo is not None:
        body.whole = undo.done
    body.half = bool(lines.buffer or blocks.data or blocks.name)
    if lines.buffer:
        blocks.line(lines.buffer, sent[-1].at)
    blocks.flush(sent[-1].at if sent else 0.0, True)
    return body


def header(head: bytes, name: str) -> str:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    return ""


def _framing(head: bytes, method: str) -> tuple[Dechunk | Plain, Decode]:
    length = header(head, "content-length")
    decode = Decode(header(head, "content-encoding").lower())
    if method == "HEAD" or head[9:12] in {b"204", b"304"}:
        return Plain(0), decode
    if "chunked" in header(head, "transfer-encoding").lower():
        return Dechunk(), decode
    return Plain(int(length) if length else None), decode
