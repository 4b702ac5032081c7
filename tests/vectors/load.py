"""The vectors as data: the files of tests/vectors, read and checked. README.md in the same folder describes the format."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parent

# In an expected record it means "not null": a value that no document fixes exactly.
PRESENT = "<present>"

TARGETS = {
    "openai-chat": "/v1/chat/completions",
    "openai-completions": "/v1/completions",
    "openai-responses": "/v1/responses",
    "openai-realtime": "/v1/realtime?model=gpt-realtime-2",
    "anthropic-messages": "/v1/messages",
    "anthropic-completions": "/v1/complete",
    "gemini": "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    "gemini-interactions": "/v1beta/interactions?alt=sse",
    "cohere-v2": "/v2/chat",
    "watsonx": "/ml/v1/text/generation_stream?version=2024-05-01",
    "tgi-native": "/generate_stream",
    "llama-cpp-native": "/completion",
    "replicate": "/v1/streams/prediction",
    "ollama": "/api/chat",
    "bedrock-converse": "/model/us.amazon.nova-lite-v1%3A0/converse-stream",
    "bedrock-text": "/model/meta.llama3-8b-instruct-v1%3A0/invoke-with-response-stream",
    "cohere-v1": "/v1/chat",
    "sourcegraph": "/.api/completions/stream?api-version=8",
    "dashscope": "/api/v1/services/aigc/text-generation/generation",
    "workers-ai": "/client/v4/accounts/account/ai/run/@cf/meta/llama-3.1-8b-instruct",
    "triton": "/v2/models/ensemble/generate_stream",
    "openai-transcription": "/v1/audio/transcriptions",
    "openai-speech": "/v1/audio/speech",
    "openai-images": "/v1/images/generations",
}

BOM = b"\xef\xbb\xbf"


class Vector(msgspec.Struct, frozen=True):
    """One stream and its expected record; `body` are the bytes of NAME.sse, the rest is NAME.json."""

    about: str
    record: dict[str, Any]
    token_events_at: list[int]
    terminal_at: int | None = None
    dialect: str = ""
    name: str = ""
    body: bytes = b""
    method: str = "POST"
    target: str = ""
    headers: list[tuple[str, str]] = []
    response_headers: list[tuple[str, str]] = []
    request: dict[str, Any] | None = None
    status: int = 200
    content_type: str = "text/event-stream"
    ending: str = "complete"
    live_only: bool = False
    name_dialect: bool = False
    replay_only: bool = False
    no_timing: bool = False
    stamps_ms: list[int] = []
    timing: dict[str, Any] = {}

    @property
    def is_stream(self) -> bool:
        return self.content_type == "text/event-stream"


class Series(msgspec.Struct, frozen=True):
    """Streams of one dialect that one reader reads in this order; none changes the result of another."""

    dialect: str
    name: str
    vectors: list[Vector]


def vectors() -> list[Vector]:
    """Every vector, ordered by dialect and name. Raises msgspec.ValidationError for a file that does not fit the format."""
    return list(_vectors())


@cache
def _vectors() -> tuple[Vector, ...]:
    return tuple(_read(path, path.parent.name) for path in sorted(ROOT.glob("*/*.json")))


def series() -> list[Series]:
    """Every series, ordered by dialect and name. Raises as `vectors` does."""
    return [_read_series(path) for path in sorted(ROOT.glob("*/*/")) if any(path.glob("*.json"))]


def _read_series(folder: Path) -> Series:
    paths = sorted(folder.glob("*.json"), key=lambda path: int(path.stem))
    return Series(
        folder.parent.name, folder.name, [_read(path, folder.parent.name, f"{folder.name}/") for path in paths]
    )


def _read(path: Path, dialect: str, within: str = "") -> Vector:
    given = json.loads(path.read_text(encoding="utf-8"))
    facts = {"target": TARGETS[dialect], **given}
    facts |= {"dialect": dialect, "name": within + path.stem, "body": b""}
    vector = msgspec.convert(facts, Vector, strict=True)
    return msgspec.structs.replace(vector, body=path.with_suffix(".sse").read_bytes())


def with_line_ends(body: bytes, end: bytes) -> bytes:
    """The same body with every line end replaced by `end`."""
    return body.replace(b"\r\n", b"\n").replace(b"\n", end)


def blocks(body: bytes) -> list[bytes]:
    """The body cut after each blank line: the pieces that a server would write."""
    return re.findall(rb"(?s).*?(?:\n\n|\r\n\r\n)|.+\Z", body)


def ends(body: bytes) -> list[int]:
    """Where each block of the body is complete: the position of the byte that ends its blank line (a CR does)."""
    found, at = [], 0
    for block in blocks(body):
        at += len(block)
        found.append(at - (2 if block.endswith(b"\r\n") else 1))
    return found


def is_dispatched(block: bytes) -> bool:
    """Whether a block has a data line, and so makes an event."""
    return any(re.match(rb"data(:|\Z)", line) for line in block.removeprefix(BOM).splitlines())


def differences(want: object, got: object, at: str = "record") -> Iterator[str]:
    """Where a record differs from the expected part: dicts in the given fields, lists in length and each element."""
    if want == PRESENT:
        if got is None:
            yield f"{at}: null, but something must be there"
    elif isinstance(want, dict) and isinstance(got, dict):
        for key, value in want.items():
            yield from differences(value, got.get(key, "<no such name>"), f"{at}.{key}")
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for place, (one, other) in enumerate(zip(want, got, strict=True)):
            yield from differences(one, other, f"{at}[{place}]")
    elif type(want) is not type(got) or want != got:
        yield f"{at}: expected {want!r}, the record says {got!r}"
