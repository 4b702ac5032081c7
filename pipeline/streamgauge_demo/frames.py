"""One server-sent event as bytes, with what it carries: the truth for a measurement."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Frame:
    """One block of a stream, with its blank line.

    `token`: it carries generated output of any kind. `text`, `reasoning` and `arguments` are that output.
    """

    data: bytes
    token: bool = False
    text: str = ""
    reasoning: str = ""
    arguments: str = ""


def block(data: str, *, name: str = "") -> bytes:
    """An event's bytes: its name if it has one, its data, the blank line."""
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def compact(value: object, *, ascii_only: bool = False) -> str:
    """JSON without spaces, as the providers send it; with `ascii_only`, other characters become Unicode escapes."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only)


def comment(text: str) -> Frame:
    """A comment block: it keeps a connection alive and has no meaning."""
    return Frame(f": {text}\n\n".encode())


DONE = Frame(block("[DONE]"))


def with_ids(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """The same events, numbered from 1 by an `id:` line before everything else."""
    return tuple(replace(frame, data=b"id: %d\n" % number + frame.data) for number, frame in enumerate(frames, 1))


def with_crlf(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """The same events with CRLF line ends. JSON contains no raw line end, so only the framing changes."""
    return tuple(replace(frame, data=frame.data.replace(b"\n", b"\r\n")) for frame in frames)


def on_two_lines(frame: Frame) -> Frame:
    """The same event with its JSON on two data lines: a parser joins them with a line feed, white space to JSON."""
    return replace(frame, data=frame.data.replace(b',"choices"', b',\ndata: "choices"', 1))
