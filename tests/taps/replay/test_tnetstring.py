"""Typed netstrings: written values are read, cut or damaged ones are reported, and sizes are not trusted."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.taps.replay import flows
from streamgauge.taps.replay.contract import BrokenRecording
from streamgauge.taps.replay.flows import MAX_DEPTH, values
from tests.taps.replay.recordings import netstring

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False)
    | st.binary(max_size=20)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
    max_leaves=12,
)


def read(data: bytes) -> list[object]:
    return list(values(io.BytesIO(data)))


@given(st.lists(VALUES, max_size=4))
def test_what_is_written_is_read(written: list[object]) -> None:
    assert read(b"".join(map(netstring, written))) == written


def test_keys_are_text_in_both_encodings() -> None:
    assert read(netstring({b"type": b"http"})) == [{"type": b"http"}]


@given(st.lists(VALUES, min_size=1, max_size=3), st.data())
def test_a_cut_file_gives_its_complete_values_and_where_it_ends(written: list[object], data: st.DataObject) -> None:
    parts = list(map(netstring, written))
    whole = b"".join(parts)
    cut = data.draw(st.integers(0, len(whole) - 1))
    reading = values(io.BytesIO(whole[:cut]))
    read: list[object] = []
    starts = [sum(map(len, parts[:number])) for number in range(len(parts))]
    if cut in starts:
        assert list(reading) == written[: starts.index(cut)]
        return
    with pytest.raises(BrokenRecording) as raised:
        read.extend(reading)
    number = sum(start < cut for start in starts)
    assert read == written[: number - 1]
    assert f"flow {number}, at byte {starts[number - 1]}, cannot be read" in str(raised.value)


@given(st.binary(max_size=60))
def test_any_bytes_are_values_or_a_sentence(data: bytes) -> None:
    try:
        read(data)
    except BrokenRecording as fault:
        assert str(fault)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"x", "does not start with its size"),
        (b":", "does not start with its size"),
        (b"3", "does not start with its size"),
        (b"1" * 14 + b":", "does not start with its size"),
        (b"\xb2:", "does not start with its size"),
        (b"3:abc", "the file ends inside it"),
        (b"3:ab,", "the file ends inside it"),
        (b"1:a?", "unknown type"),
        (b"1:a#", "a number in it is not valid"),
        (b"5000:%b#" % (b"1" * 5_000), "a number in it is not valid"),
        (b"2:ab]", "a part of it does not start with its size"),
        (b"4:9:a,]", "a part of it is longer than the whole"),
        (b"4:1:a,}", "a key without a value"),
        (b"8:1:1#1:a,}", "a key in it is not text"),
        (b"999999999999:", "the limit is"),
    ],
)
def test_errors_are_reported(data: bytes, why: str) -> None:
    with pytest.raises(BrokenRecording) as raised:
        read(data)
    assert why in str(raised.value)


@pytest.mark.parametrize(("depth", "fits"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False), (100_000, False)])
def test_nesting_is_bounded(depth: int, fits: bool) -> None:
    data = b"0:~"
    for _ in range(min(depth, 2_000)):
        data = b"%d:%b]" % (len(data), data)
    if fits:
        assert len(read(data)) == 1
        return
    with pytest.raises(BrokenRecording, match="nested deeper"):
        read(data)


def test_a_size_without_its_bytes_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "MAX_VALUE_BYTES", 10)
    with pytest.raises(BrokenRecording, match="it has 11 bytes, but the limit is 10"):
        read(b"11:abc")
    assert read(netstring(b"a" * 10)) == [b"a" * 10]
