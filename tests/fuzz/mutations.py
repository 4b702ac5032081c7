"""Streams that are damaged by steps of plain data, so that they can be generated, shrunk, repeated and read.

A step has a name, and three numbers that each kind of step interprets in its own way, always modulo the possible values.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tests.fuzz import hostile
from tests.vectors.load import blocks, vectors, with_line_ends

# A body does not grow beyond this by mutation (bytes): some hostile values have a megabyte.
MAX_BODY = 4 * hostile.HUGE_STRING_BYTES

_HOLE = "@hole@"

# Texts of a repeated event in turn: ordinary ones, and some that must not be read by the fast path.
TEXTS: tuple[bytes, ...] = (
    *(
        b'"a"',
        b'" b"',
        b'"cd"',
        b'""',
        b'"\\n"',
        b'"\\u00e9"',
        b'"\\ud83d\\ude00"',
        b'"\\ud800"',
        b'"\\\\"',
        b'"\\""',
        b'" "',
    ),
    *(
        "\u00e9\u2028\U0001f600".encode().join([b'"', b'"']),
        b'"}]}"',
        b'"%s"',
        b"null",
        b"7",
        b'"\x7f"',
        b'"\t"',
        b'["a"]',
    ),
)
NUMBERS: tuple[bytes, ...] = (
    *(b"1", b"2", b"3", b"10", b"0", b"999999999999999", b"1234567890123456", b"-1", b"1.0", b"1e2", b"-0", b"01"),
    *(b"true", b"null", b'"4"', b"9007199254740993", b"18446744073709551616"),
)
# How many times an event is repeated: a reader learns the shape from two.
FEWEST, MOST = 4, 24


class Step(NamedTuple):
    kind: str
    at: int
    other: int = 0
    value: int = 0


def donors() -> list[bytes]:
    """Events of all vectors, each once: they are inserted into other streams."""
    return list(dict.fromkeys(block for vector in vectors() if vector.is_stream for block in blocks(vector.body)))


DONORS = donors()


def mutated(body: bytes, steps: Iterable[Step], values: Sequence[bytes] = hostile.VALUES) -> bytes:
    """The body after all steps; `values`: the hostile JSON that may be inserted."""
    for step in steps:
        changed = _KINDS[step.kind](body, step, values)
        body = changed if len(changed) <= MAX_BODY else body
    return body


# --- events --------------------------------------------------------------------------------------------------------


def _delete(body: bytes, step: Step, _: Sequence[bytes]) -> bytes:
    cut = blocks(body)
    return b"".join(block for place, block in enumerate(cut) if place != step.at % len(cut)) if cut else body


def _duplicate(body: bytes, step: Step, _: Sequence[bytes]) -> bytes:
    cut = blocks(body)
    return _insert_block(cut, step.other, cut[step.at % len(cut)]) if cut else body


def _swap(body: bytes, step: Step, _: Sequence[bytes]) -> bytes:
    cut = blocks(body)
    if cut:
        one, two = step.at % len(cut), step.other % len(cut)
        cut[one], cut[two] = cut[two], cut[one]
    return b"".join(cut)


def _splice(body: bytes, step: Step, _: Sequence[bytes]) -> bytes:
    return _insert_block(blocks(body), step.at, DONORS[step.other % len(DONORS)])


def _insert_block(cut: list[bytes], at: int, block: bytes) -> bytes:
    place = at % (len(cut) + 1)
    return b"".join((*cut[:place], block, *cut[place:]))


# --- the JSON of one event -----------------------------------------------------------------------------------------


def _replace(body: bytes, step: Step, values: Sequence[bytes]) -> bytes:
    """A hostile value in place of an existing one."""
    return _in_json(body, step, values, lambda parent, key: parent.__setitem__(key, _HOLE))


def _add(body: bytes, step: Step, values: Sequence[bytes]) -> bytes:
    """A hostile value under another event's key, or appended to a list."""

    def add(parent: Any, key: Any) -> None:
        if isinstance(parent, list):
            parent.append(_HOLE)
        else:
            parent[_KEYS[step.value % len(_KEYS)]] = _HOLE

    return _in_json(body, step, values, add)


def _drop(body: bytes, step: Step, values: Sequence[bytes]) -> bytes:
    return _in_json(body, step, values, lambda parent, key: parent.pop(key))


def _wrap(body: bytes, step: Step, values: Sequence[bytes]) -> bytes:
    """A list around a value."""
    return _in_json(body, step, values, lambda parent, key: parent.__setitem__(key, [parent[key], _HOLE]))


def _repeat(body: bytes, step: Step, _: Sequence[bytes]) -> bytes:
    """An event many times, with another value in one place of each: the fast path for repeated shapes."""
    chosen = _chosen(body, step.at)
    if chosen is None:
        return body
    cut, place, (before, value, after) = chosen
    spots = [(parent, key) for parent, key in _spots(value) if isinstance(parent[key], str | int)]
    if not spots:
        return body
    parent, key = spots[step.other % len(spots)]
    fillings = TEXTS if isinstance(parent[key], str) else NUMBERS
    parent[key] = _HOLE
    text = json.dumps(value, separators=(",", ":")).encode()
    hole = json.dumps(_HOLE).encode()
    first, count = step.value % len(fillings), FEWEST + step.value % (MOST - FEWEST)
    fills = ((*fillings[first:], *fillings[:first]) * MOST)[:count]
    cut[place : place + 1] = [before + text.replace(hole, fill) + after for fill in fills]
    return b"".join(cut)


def _in_json(body: bytes, step: Step, values: Sequence[bytes], change: Callable[[Any, Any], object]) -> bytes:
    chosen = _chosen(body, step.at)
    if chosen is None:
        return body
    cut, place, (before, value, after) = chosen
    spots = list(_spots(value))
    if not spots:
        return body
    change(*spots[step.other % len(spots)])
    text = json.dumps(value, separators=(",", ":")).encode()
    filled = text.replace(json.dumps(_HOLE).encode(), values[step.value % len(values)])
    cut[place] = before + filled + after
    return b"".join(cut)


def _chosen(body: bytes, at: int) -> tuple[list[bytes], int, tuple[bytes, Any, bytes]] | None:
    """The body's blocks, the place of one that holds JSON, and that one around its value. None if none does."""
    cut = blocks(body)
    places = [place for place, block in enumerate(cut) if b"{" in block]
    if not places:
        return None
    place = places[at % len(places)]
    before, data, after = _data_of(cut[place])
    try:
        return cut, place, (before, json.loads(data), after)
    except (ValueError, RecursionError):
        return None


def _data_of(block: bytes) -> tuple[bytes, bytes, bytes]:
    """A block around its (first) JSON value: what comes before it, the value, what comes after."""
    start = block.index(b"{")
    end = block.find(b"\n", start)
    end = len(block) if end < 0 else end
    return block[:start], block[start:end], block[end:]


def _spots(value: object) -> Iterable[tuple[Any, Any]]:
    """Every place in a JSON value, as its container and its key or index."""
    found: list[tuple[Any, Any]] = []
    todo: list[Any] = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, dict | list):
            inner = list(one.items() if isinstance(one, dict) else enumerate(one))
            found += [(one, key) for key, _ in inner]
            todo += [member for _, member in inner]
    return found


def _keys() -> list[str]:
    """Every key that any vector's events use."""
    found: set[str] = set()
    for block in DONORS:
        try:
            value = json.loads(_data_of(block)[1]) if b"{" in block else None
        except ValueError:
            continue
        found |= {key for _, key in _spots(value) if isinstance(key, str)}
    return sorted(found)


_KEYS = _keys()


# --- bytes ---------------------------------------------------------------------------------------------------------


def _flip(body: bytes, step: Step, _: Sequence[bytes]) -> bytes:
    if not body:
        return body
    place = step.at % len(body)
    return body[:place] + bytes((body[place] ^ 1 << step.other % 8,)) + body[place + 1 :]


def _truncate(body: bytes, step: Step, _: Sequence[bytes]) -> bytes:
    return body[: step.at % (len(body) + 1)]


def _insert(body: bytes, step: Step, _: Sequence[bytes]) -> bytes:
    place = step.at % (len(body) + 1)
    return body[:place] + hostile.RAW[step.other % len(hostile.RAW)] + body[place:]


def _line_ends(body: bytes, step: Step, _: Sequence[bytes]) -> bytes:
    """Other line ends, everywhere or up to a place."""
    place = step.at % (len(body) + 1) if step.other % 2 else len(body)
    return with_line_ends(body[:place], (b"\r\n", b"\r", b"\n")[step.value % 3]) + body[place:]


_KINDS: dict[str, Callable[[bytes, Step, Sequence[bytes]], bytes]] = {
    "replace": _replace,
    "add": _add,
    "drop": _drop,
    "wrap": _wrap,
    "repeat": _repeat,
    "delete": _delete,
    "duplicate": _duplicate,
    "swap": _swap,
    "splice": _splice,
    "flip": _flip,
    "truncate": _truncate,
    "insert": _insert,
    "line_ends": _line_ends,
}
KINDS = tuple(_KINDS)
