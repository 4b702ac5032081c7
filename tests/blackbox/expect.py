"""What a record must say, read independently from the bytes that were sent and the stamps taken while sending."""

import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import brotli
import zstandard

from tests.blackbox.provider import Piece

Json = dict[str, Any]


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
    pieces: list[Piece] = field(default_factory=list)
    whole: bool = False
    events: list[Event] = field(default_factory=list)
    comments: int = 0
    error_fields: int = 0
    half: bool = False

    @property
    def bytes(self) -> int:
        return sum(len(piece.data) for piece in self.pieces)


class Dechunk:
    """Chunked framing, undone as it comes."""

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
    """Content coding, undone as it comes."""

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


def read_body(sent: list[Piece], method: str = "POST") -> Body:
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
        body.pieces.append(Piece(piece.at, payload))
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


@dataclass
class Told:
    """What one event says, whatever its dialect."""

    text: int = 0
    reasoning: int = 0
    refusal: int = 0
    tool: bool = False
    audio: bool = False

    @property
    def token(self) -> bool:
        return bool(self.text or self.reasoning or self.refusal or self.tool or self.audio)


@dataclass
class Reading:
    """One stream as an independent reader understands it."""

    told: list[tuple[Event, Told]] = field(default_factory=list)
    finish: dict[int, str] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)
    finish_at: float | None = None
    terminal: bool = False
    error: Json | None = None
    response_id: str | None = None
    model: str | None = None
    usage: Json = field(default_factory=dict)
    usage_final: bool = False
    tools: list[list[Any]] = field(default_factory=list)
    unparsed: int = 0

    @property
    def tokens(self) -> list[tuple[Event, Told]]:
        return [one for one in self.told if one[1].token]

    def first(self, kind: str) -> float | None:
        for event, told in self.told:
            if getattr(told, kind):
                return event.at
        return None


def size(value: object) -> int:
    return len(value) if isinstance(value, str) else 0


def read_chat(events: list[Event]) -> Reading:
    """OpenAI chat and legacy completions."""
    reading = Reading()
    for event in events:
        if event.data.startswith("[DONE]"):
            reading.terminal = True
            continue
        chunk = _json(event, reading)
        if chunk is None:
            continue
        reading.response_id = reading.response_id or chunk.get("id") or None
        reading.model = reading.model or chunk.get("model") or None
        told = Told()
        for place, choice in enumerate(chunk.get("choices") or []):
            _chat_choice(reading, told, choice, choice.get("index", place), event.at)
        if chunk.get("error"):
            reading.error = reading.error or {"of": chunk["error"]}
        if usage := chunk.get("usage"):
            reading.usage.update({key: value for key, value in usage.items() if value is not None})
            reading.usage_final = reading.usage_final or bool(reading.finish)
        reading.told.append((event, told))
    if reading.started and set(reading.finish) == reading.started:
        reading.terminal = True
    return reading


def _chat_choice(reading: Reading, told: Told, choice: Json, index: int, at: float) -> None:
    reading.started.add(index)
    delta = choice.get("delta") or {}
    told.text += size(delta.get("content")) + size(choice.get("text"))
    told.reasoning += size(delta.get("reasoning") or delta.get("reasoning_content"))
    told.refusal += size(delta.get("refusal"))
    for call in delta.get("tool_calls") or []:
        function = call.get("function") or {}
        told.tool = told.tool or bool(function.get("name") or function.get("arguments"))
        if function.get("name"):
            reading.tools.append([function["name"], 0])
        reading.tools[-1][1] += size(function.get("arguments"))
    if reason := choice.get("finish_reason"):
        reading.finish[index] = reason
        reading.finish_at = at if reading.finish_at is None else reading.finish_at
        if reason == "error":
            reading.error = reading.error or {"of": {"type": "error"}}


def read_anthropic(events: list[Event]) -> Reading:
    reading = Reading()
    for event in events:
        chunk = _json(event, reading)
        if chunk is None:
            continue
        told, kind = Told(), chunk.get("type")
        delta, block = chunk.get("delta") or {}, chunk.get("content_block") or {}
        if kind == "message_start":
            message = chunk["message"]
            reading.response_id, reading.model = message.get("id"), message.get("model")
            reading.usage.update({k: v for k, v in message.get("usage", {}).items() if k != "output_tokens"})
            reading.started.add(0)
        elif kind == "content_block_start" and block.get("type") == "tool_use":
            told.tool = True
            reading.tools.append([block["name"], 0])
        elif kind == "content_block_delta":
            told.text, told.reasoning = size(delta.get("text")), size(delta.get("thinking"))
            arguments = size(delta.get("partial_json"))
            told.tool = bool(arguments)
            if arguments:
                reading.tools[-1][1] += arguments
        elif kind == "message_delta":
            if delta.get("stop_reason"):
                reading.finish[0] = delta["stop_reason"]
                reading.finish_at = event.at if reading.finish_at is None else reading.finish_at
            reading.usage.update({k: v for k, v in (chunk.get("usage") or {}).items() if v is not None})
            reading.usage_final = "output_tokens" in (chunk.get("usage") or {})
        elif kind == "message_stop":
            reading.terminal = True
        elif kind == "error" or event.name == "error":
            reading.error = reading.error or {"of": chunk.get("error") or chunk}
        reading.told.append((event, told))
    return reading


def read_responses(events: list[Event]) -> Reading:
    reading = Reading()
    for event in events:
        if event.data == "[DONE]":
            continue
        chunk = _json(event, reading)
        if chunk is None:
            continue
        kind, told = str(chunk.get("type")), Told()
        response = chunk.get("response") or {}
        reading.response_id = reading.response_id or response.get("id")
        reading.model = reading.model or response.get("model")
        amount = size(chunk.get("delta"))
        if kind == "response.output_text.delta":
            told.text = amount
        elif kind in {"response.reasoning_text.delta", "response.reasoning_summary_text.delta"}:
            told.reasoning = amount
        elif kind == "response.refusal.delta":
            told.refusal = amount
        elif kind == "response.function_call_arguments.delta":
            told.tool = bool(amount)
            reading.tools[-1][1] += amount
        elif kind == "response.output_item.added" and chunk["item"].get("type") == "function_call":
            told.tool = True
            reading.tools.append([chunk["item"]["name"], 0])
        elif kind in {"response.completed", "response.incomplete", "response.failed"}:
            reading.terminal, reading.finish_at = True, event.at
            reading.usage, reading.usage_final = dict(response.get("usage") or {}), bool(response.get("usage"))
            if kind == "response.failed":
                reading.error = reading.error or {"of": response.get("error") or {}}
        elif kind == "error":
            reading.error = reading.error or {"of": chunk.get("error") or chunk}
        reading.told.append((event, told))
    return reading


READERS = {
    "openai-chat": read_chat,
    "openai-completions": read_chat,
    "anthropic-messages": read_anthropic,
    "openai-responses": read_responses,
}


def _json(event: Event, reading: Reading) -> Json | None:
    try:
        value = json.loads(event.data)
    except ValueError:
        reading.unparsed += 1
        return None
    return value if isinstance(value, dict) else None


def usage_of(dialect: str, usage: Json) -> Json:
    """Usage under the record's names: input with the cache, output with the reasoning; None where not seen."""
    if dialect == "anthropic-messages":
        parts = [usage.get(k) for k in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
        whole = sum(part or 0 for part in parts) if usage.get("input_tokens") is not None else None
        output = usage.get("output_tokens")
        total = whole + output if whole is not None and output is not None else None
        return {"input_tokens": whole, "output_tokens": output, "total_tokens": total, "input_cached_tokens": parts[2]}
    names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "total_tokens": "total_tokens"}
    return {name: usage.get(name, usage.get(other)) for name, other in names.items()}


def outcome_of(body: Body, reading: Reading, ended: str) -> str:
    """By the design's order. `ended`: proper, early (EOF inside the framing), rst, left (the client)."""
    if body.status >= 300:
        return "http_error"
    if reading.error is not None or body.error_fields:
        return "stream_error"
    if reading.terminal:
        return "completed"
    if ended == "left":
        return "client_abort"
    if not body.head or ended in {"early", "rst"}:
        return "upstream_reset"
    return "truncated"
