"""Each member of a dialect's events with another value, or without one: batches read it as the ordinary way does.

The members are those of the dialect's events and of its allowlist. This finds a type that accepts what `read` understands in
another way, as an empty text that ends a stream.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from bench.wires import wire
from hypothesis import settings

from streamgauge.core.dialects import BY_NAME
from tests.core.assembly.test_plain_deltas import NAMES, canonical, same

pytestmark = pytest.mark.slow

_ABSENT = object()
_VALUES: tuple[Any, ...] = ("", 0, None, [], True, "x", 1.5, _ABSENT)
# At each path one of this many values is tried; the next path begins with the next value.
_EVERY = {"few": 4, "many": 1}.get(settings.get_current_profile_name(), 3)

Path = tuple[str | int, ...]


def members(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all members and elements of an event."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield from members(one, (*path, name))


def allowed(spec: object, path: Path = ()) -> Iterator[Path]:
    """The paths that an allowlist names, with the first element of each list."""
    if isinstance(spec, Mapping):
        for name, inner in spec.items():
            yield (*path, name)
            yield from allowed(inner, (*path, name))
    elif isinstance(spec, list | tuple):
        for inner in spec:
            yield from allowed(inner, (*path, 0) if isinstance(spec, list) else path)


def changed(event: Any, path: Path, value: object) -> Any:
    """The event with this value at the path, or without it; None where the path does not lead."""
    event = copy.deepcopy(event)
    inner = event
    try:
        for name in path[:-1]:
            inner = inner[name]
        if value is _ABSENT:
            del inner[path[-1]]
        else:
            inner[path[-1]] = copy.copy(value)
    except (LookupError, TypeError):
        return None
    return event


def shapes(events: list[bytes]) -> list[tuple[int, dict[str, Any]]]:
    """One event for each set of members that events have: its place among them, and its data."""
    found: dict[frozenset[Path], tuple[int, dict[str, Any]]] = {}
    for at, event in enumerate(events):
        data = [line for line in event.split(b"\n") if line.startswith(b"data: {")]
        if len(data) == 1:
            decoded = json.loads(data[0][6:])
            found[frozenset(members(decoded))] = at, decoded
    return list(found.values())


def test_a_providers_times_in_a_usage_beside_content_are_read() -> None:
    one = wire("openai-chat", 24)
    times = b',"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"queue_time":0.25}}\n'
    events = [event.replace(b"}\n", times, 1) if at > 20 else event for at, event in enumerate(one.events[:24])]
    same(canonical(b"".join(events), one.path, masked=True), 1, masked=True, path=one.path)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_a_member_with_another_value_is_read_the_same(name: str, masked: bool) -> None:
    one = wire(name, 24)
    found = shapes(one.events)
    paths = {path for _, event in found for path in members(event)} | set(allowed(BY_NAME[name].keep))
    tried = 0
    for at, event in found:
        data = next(line for line in one.events[at].split(b"\n") if line.startswith(b"data: "))
        place = min(max(at, 10), len(one.events) - 2)
        for number, path in enumerate(sorted(paths, key=str)):
            for value in _VALUES[number % _EVERY :: _EVERY]:
                other = changed(event, path, value)
                if other is None or other == event:
                    continue
                tried += 1
                text = b"data: " + json.dumps(other, separators=(",", ":")).encode()
                events = [*one.events[:place], one.events[at].replace(data, text), *one.events[place:]]
                same(canonical(b"".join(events), one.path or None, masked=masked), tried, masked=masked, path=one.path)
    assert tried > 100 // _EVERY
