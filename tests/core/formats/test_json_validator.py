"""json_validator.py against RFC 8259, with a strict form of Python's json as oracle; pieces give the same result."""

import json
import re

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.formats import json_validator
from streamgauge.core.formats.json_validator import MAX_DEPTH, JsonState, feed, is_valid
from tests.each import each


def check(*pieces: str) -> bool:
    state = JsonState()
    for piece in pieces:
        feed(state, piece)
    return is_valid(state)


def refuse(name: str) -> None:
    raise ValueError(name)


def oracle(text: str) -> bool:
    try:
        json.loads(text, parse_constant=refuse, parse_int=str, parse_float=str)
    except ValueError:
        return False
    return not text.startswith("\ufeff")


VALID = [
    "0", "-0", "7", "-12", "0.5", "1e3", "1E+3", "1e-03", "-1.25e10", '""', '"a"', '"\\u00e9\\n\\/"', '"\\ud800"',
    '"\x7f\u2028"',
    "true", "false", "null", "[]", "{}", "[1]", "[1,2,[3]]", '{"a":1}', '{"a":{"b":[true,null]},"a":2}',
    ' \t\n\r[ 1 , "x" ] \n',
    '{ "a" : -1.5e2 , "b" : [ ] }', '{"":""}', '"' + "x" * 10_000 + '"', "1" * 10_000,
    "[" * MAX_DEPTH + "]" * MAX_DEPTH,
]  # fmt: skip
INVALID = [
    "", " ", "-", "+1", "01", "-01", "1.", ".5", "1e", "1e+", "1.e1", "0x1", "1 2", "--1", "1-", "٣", '"', '"\\"',
    "'a'", '"\n"',
    '"\0"', '"\x1f"', '"\\x"', '"\\u12"', '"\\u12g4"', '"\\u 123"', "tru", "True", "truex", "nul", "nulll", "NaN",
    "Infinity",
    "-Infinity", "[", "]", "[1", "[1,]", "[,1]", "[1 2]", "[1}", "{", "}", "{1:2}", '{"a"}', '{"a":}', '{"a":1,}',
    '{"a":1 "b":2}',
    '{"a" "b"}', '{a:1}', '{"a":1]', '{,}', '{"a":1,,"b":2}', '{"a"::1}', "[]]", "{}{}", '""""', "1,2", "// x\n1",
    "\ufeff1",
    "\xa01", "\x0b1", "[1]x", '{"a":[}',
]  # fmt: skip


@each(VALID, repr)
def test_valid(text: str) -> None:
    assert check(text)
    assert check(*text)


@each(INVALID, repr)
def test_invalid(text: str) -> None:
    assert not check(text)
    assert not check(*text)
    assert not oracle(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
DUMPED = st.builds(
    json.dumps,
    VALUES,
    ensure_ascii=st.booleans(),
    indent=st.sampled_from([None, 1]),
    separators=st.sampled_from([None, (",", ":")]),
)
SCRAPS = st.lists(
    st.sampled_from(
        [*'{}[],:"\\ -+.eE0123u\n\0é', "true", "false", "null", "nul", '"a"', '"a":', "12", "\\u00e9", "\\n", "\ud800"]
    ),
    max_size=16,
).map("".join)


def pieces(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(places), len(text)]
    return [text[start:end] for start, end in zip(edges, edges[1:])]  # noqa: B905, RUF007


PLACES = st.lists(st.integers(0, 80), max_size=8)


@given(DUMPED, PLACES)
def test_the_output_of_json_is_valid_in_any_pieces(text: str, places: list[int]) -> None:
    assert check(*pieces(text, places))


@given(DUMPED, st.data())
def test_a_truncated_text_is_not_valid(text: str, data: st.DataObject) -> None:
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    assert check(cut) is oracle(cut)


@given(SCRAPS, PLACES)
def test_any_text_is_judged_as_by_json(text: str, places: list[int]) -> None:
    assert check(*pieces(text, places)) is oracle(text)


@given(DUMPED, st.data())
def test_one_character_changed(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.sampled_from('{}[],:"\\ -.e0u\n')) + text[place + 1 :]
    assert check(changed) is oracle(changed)


def test_depth_is_bounded() -> None:
    state = JsonState()
    for _ in range(100):
        feed(state, "[" * 1000)
        feed(state, '{"a":' * 1000)
    assert not is_valid(state)
    assert len(msgspec.msgpack.encode(state)) < MAX_DEPTH + 20
    assert not check("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


ARGUMENTS = '{"city": "Paris", "days": [1, 2.5e3, {"hour": "\\u0041m", "rain": false}], "note": null}'


def test_the_state_is_small_and_survives_storage_between_any_two_characters() -> None:
    for place in range(len(ARGUMENTS) + 1):
        state = JsonState()
        feed(state, ARGUMENTS[:place])
        stored = msgspec.msgpack.encode(state)
        assert len(stored) <= 32
        restored = msgspec.msgpack.decode(stored, type=JsonState)
        feed(restored, ARGUMENTS[place:])
        assert is_valid(restored)
        assert is_valid(state) is (place == len(ARGUMENTS))


def test_bad_stays_bad() -> None:
    assert not check("x", ARGUMENTS)
    assert not check(ARGUMENTS, ARGUMENTS)
    assert check(ARGUMENTS, "", " \n")


def test_every_mode_is_reached_and_is_in_the_table() -> None:
    """All states that the machine reaches have a row in its table."""
    reached = {
        following
        for steps in [*json_validator._STEPS.values(), *json_validator._AFTER.values()]
        for following in steps.values()
    }
    assert reached - {"after"} == set(json_validator._STEPS) - {"bad"} | {"value"}
    assert all(re.fullmatch(r"[a-z0-9 ]+", mode) for mode in reached)
