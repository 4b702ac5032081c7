"""A canary in every place of a stream: each string, number and key of each event of each dialect, one stream per place.

A canary has the form of a code, an id or a number, so that masking can only tell it by its place.
"""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tests.vectors.load import blocks, vectors

# Patterns that find canaries: words, and numbers of ten digits that occur nowhere else.
FOUND = re.compile(rb"canary-(\d{5})-x|\b73(\d{8})\b", re.IGNORECASE)
# Distance of two numbers that are canaries: the sum of one and a small number next to it still identifies it.
_APART = 1_900
_DATA = re.compile(rb"^data: ?(.*?)\r?$", re.MULTILINE)


@dataclass(frozen=True)
class Stream:
    """A stream with canary `number` at `place`."""

    number: int
    dialect: str
    place: str
    target: str
    content_type: str
    status: int
    body: bytes


def word(number: int) -> str:
    return f"canary-{number:05d}-x"


def figure(number: int) -> int:
    return 73 * 10**8 + number * _APART


def found_in(content: bytes) -> set[int]:
    """The canaries in these bytes."""
    return {int(text) if text else int(digits) // _APART for text, digits in FOUND.findall(content)}


def streams(first: int = 1) -> Iterator[Stream]:
    """One stream for each place of each dialect, from the vectors: the first event that has such a place."""
    seen: set[tuple[str, str]] = set()
    number = first
    for vector in vectors():
        if vector.status >= 300 or vector.live_only:
            continue
        pieces = blocks(vector.body)
        for at, piece in enumerate(pieces):
            event = _event(piece)
            for place in _places(event):
                if (vector.dialect, name := _name(place)) in seen:
                    continue
                seen.add((vector.dialect, name))
                changed = [*pieces]
                changed[at] = _with_event(piece, _changed(event, place, number))
                body = b"".join(changed)
                yield Stream(number, vector.dialect, name, vector.target, vector.content_type, vector.status, body)
                number += 1


Place = tuple[str | int, ...]
KEY = "(key)"


def _event(piece: bytes) -> Any:
    data = b"\n".join(_DATA.findall(piece))
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _with_event(piece: bytes, event: Any) -> bytes:
    """The piece with its data lines replaced by one line."""
    kept = [line for line in piece.splitlines() if line and not line.startswith(b"data")]
    return b"".join(line + b"\n" for line in [*kept, b"data: " + json.dumps(event).encode()]) + b"\n"


def _places(value: Any, before: Place = ()) -> Iterator[Place]:
    """Each string and number, and for each object a key that it does not have."""
    if isinstance(value, dict):
        yield (*before, KEY)
        for key, inner in value.items():
            yield from _places(inner, (*before, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, (*before, index))
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield (*before, "'" if isinstance(value, str) else "#")


def _name(place: Place) -> str:
    return ".".join("[]" if isinstance(part, int) else part for part in place)


def _changed(event: Any, place: Place, number: int) -> Any:
    changed = deepcopy(event)
    inside = changed
    for part in place[:-2]:
        inside = inside[part]
    if place[-1] == KEY:
        target = inside[place[-2]] if len(place) > 1 else changed
        target[word(number)] = word(number)
    elif len(place) == 1:
        return word(number) if place[-1] == "'" else figure(number)
    else:
        inside[place[-2]] = word(number) if place[-1] == "'" else figure(number)
    return changed
