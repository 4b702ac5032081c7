"""The parsers, the masker and usage with any input: see `parsers` and `meanings` for what must hold."""

import functools
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.each import each
from tests.fuzz import hostile, logs, meanings, parsers
from tests.fuzz.drawing import PLACES, fuzzed, steps
from tests.fuzz.meanings import PATHS
from tests.fuzz.mutations import Step, mutated
from tests.fuzz.targets import TARGETS, short_vectors
from tests.vectors.load import Vector

PIECES = st.sampled_from(
    (*hostile.RAW, *hostile.SCALARS, b'{"a":', b"[", b"]", b"}", b",", b":", b'"', b"\\", b"5\r\n")
)
SOUP = st.lists(PIECES, max_size=20).map(b"".join)
VECTORS = st.sampled_from(short_vectors())
HOSTILE = st.sampled_from(hostile.VALUES)

# The functions that read bytes without a leading byte of options.
PLAIN = {
    "framing": parsers.check_framing,
    "aws_messages": parsers.check_aws_messages,
    "json_check": parsers.check_json_check,
    "json_text": parsers.check_json_text,
    "bundle": logs.check_bundle,
    "rate_limit": parsers.check_rate_limit,
}
CHOSEN = {
    "sse": parsers.check_sse,
    "body": parsers.check_body,
    "response": parsers.check_response,
    "masker": meanings.check_masker,
    "usage": meanings.check_usage,
}


@pytest.mark.parametrize("check", PLAIN.values(), ids=PLAIN)
@fuzzed(150)
@given(data=SOUP | st.binary(max_size=200))
def test_any_bytes_and_fragments(check: Callable[[bytes], None], data: bytes) -> None:
    check(data)


@pytest.mark.parametrize("check", CHOSEN.values(), ids=CHOSEN)
@fuzzed(150)
@given(choice=st.binary(min_size=4, max_size=6), data=SOUP | st.binary(max_size=200))
def test_any_bytes_and_fragments_after_a_choice(check: Callable[[bytes], None], choice: bytes, data: bytes) -> None:
    check(choice + data)


# Inputs that found bugs, for each target: a byte of choice, then the bytes.
FOUND = {
    "a zstd frame that promises more than it holds": ("body", b"\0\4\0\0" + bytes.fromhex("28b52ffd2080010000")),
    "a field whose name is NUL": ("response", b"\0HTTP/1.1 200 \n\0\0: {\n\n"),
}


@pytest.mark.parametrize("name", FOUND)
def test_earlier_bugs_stay_fixed(name: str) -> None:
    target, data = FOUND[name]
    TARGETS[target].check(data)


@each(hostile.VALUES, lambda value: f"{value[:12]!r}-{len(value)}")
def test_hostile_values_are_read_as_python_reads_them(value: bytes) -> None:
    parsers.check_json_text(value)
    parsers.check_json_check(value)


@fuzzed(150)
@given(st.integers(0, len(PATHS) - 1), VECTORS, steps())
def test_masking_of_damaged_streams(path: int, vector: Vector, how: list[Step]) -> None:
    meanings.check_masker(bytes((path,)) + mutated(vector.body, how))


@fuzzed(150)
@given(st.sampled_from(meanings.usage_seeds()), st.lists(st.tuples(st.integers(0, 2**16), HOSTILE), max_size=3))
@example(bytes((0,)) + b'{"prompt_tokens":true}', [])
def test_usage_with_hostile_values(seed: bytes, values: list[tuple[int, bytes]]) -> None:
    head, lines = seed[:1], seed[1:]
    for at, value in values:
        keys = lines.count(b":")
        place = -1
        for _ in range(at % keys + 1 if keys else 0):
            place = lines.index(b":", place + 1)
        end = min((found for mark in (b",", b"}") if (found := lines.find(mark, place)) >= 0), default=len(lines))
        lines = lines[: place + 1] + value + lines[end:]
    meanings.check_usage(head + lines)


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in ("stream", "log")])
@fuzzed(60)
@given(which=PLACES, changes=st.lists(st.tuples(PLACES, st.integers(0, 255)), max_size=4))
def test_seeds_with_a_few_bytes_changed(name: str, which: int, changes: list[tuple[int, int]]) -> None:
    seeds = seeds_of(name)
    data = bytearray(seeds[which % len(seeds)])
    for place, value in changes:
        data[place % len(data)] = value
    TARGETS[name].check(bytes(data))


@functools.cache
def seeds_of(name: str) -> list[bytes]:
    return TARGETS[name].seeds()
