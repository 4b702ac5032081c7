"""YAML without constructors: it gives plain values, calls nothing, and expansion bombs stay small."""

import io
import tracemalloc

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.taps.replay import cassette_yaml
from streamgauge.taps.replay.cassette_yaml import MAX_DEPTH, yaml_interactions
from streamgauge.taps.replay.contract import BrokenExchange, BrokenRecording

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
VALUES = st.recursive(
    st.none() | TEXTS | st.binary(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


def read(document: bytes) -> list[object]:
    return list(yaml_interactions(io.BytesIO(document)))


@given(st.lists(VALUES, max_size=4))
def test_what_pyyaml_writes_is_read(interactions: list[object]) -> None:
    document = yaml.dump({"version": 1, "interactions": interactions, "metadata": {"a": [1]}}).encode()
    assert read(document) == interactions


@given(st.binary(max_size=100))
def test_any_bytes_are_interactions_or_a_sentence(rest: bytes) -> None:
    try:
        read(b"interactions:\n" + rest)
    except BrokenRecording as fault:
        assert str(fault)


def test_scalars_are_text_and_null_alone_is_special() -> None:
    document = b"interactions: [1, 1.5, true, 2024-01-01, null, ~, '~', 'null', 1:2:3, 0x1f, <<]\n"
    expected = ["1", "1.5", "true", "2024-01-01", None, None, "~", "null", "1:2:3", "0x1f", "<<"]
    assert read(document) == expected


@pytest.mark.parametrize("tag", ["!!binary", "!binary", "!<tag:yaml.org,2002:binary>"])
def test_bytes_by_either_tag(tag: str) -> None:
    assert read(f"interactions:\n- {tag} |\n  aGkg\n  /w==\n".encode()) == [b"hi \xff"]
    [broken] = read(f"interactions: [{tag} 'a']".encode())
    assert isinstance(broken, BrokenExchange)


def test_a_tag_is_ignored(capfd: pytest.CaptureFixture[str]) -> None:
    document = b"""interactions:
- !!python/object/apply:os.system ['echo called']
- !!python/object/new:io.BytesIO {state: [!!binary aGk=, 0, null]}
- !!python/unicode 'text'
- !!python/name:os.system ''
- !ruby/object:Thing {a: b}
"""
    assert read(document) == [["echo called"], {"state": [b"hi", "0", None]}, "text", "", {"a": "b"}]
    assert capfd.readouterr().out == ""


def test_an_old_cassette_is_the_list_itself() -> None:
    document = b"- request: !!python/object:vcr.request.Request\n    body: null\n  response: {}\n"
    assert read(document) == [{"request": {"body": None}, "response": {}}]


def test_aliases_give_the_values_of_their_anchors() -> None:
    assert read(b"interactions: [&a {b: &c x}, *a, *c, *c]") == [{"b": "x"}, {"b": "x"}, "x", "x"]


def test_an_alias_of_itself_gives_nothing() -> None:
    assert read(b"interactions: [&a [*a]]") == [[None]]


def test_a_bomb_of_aliases_stays_small() -> None:
    lines = ["interactions:", "- &a0 " + "x" * 1_000]
    lines += [f"- &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 31)]
    tracemalloc.start()
    try:
        assert len(read("\n".join(lines).encode())) == 31
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_merge_keys_are_not_merged() -> None:
    lines = ["interactions:", "- &a0 {k: v}"]
    lines += [f"- &a{level} {{<<: [*a{level - 1}, *a{level - 1}]}}" for level in range(1, 60)]
    assert len(read("\n".join(lines).encode())) == 60


@pytest.mark.parametrize("document", ["interactions: {}", "metadata: {}\ninteractions: []", "interactions: [{}]"])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 3, 100_000])
def test_nesting_is_bounded(document: str, depth: int) -> None:
    with pytest.raises(BrokenRecording, match="nested deeper"):
        read(document.replace("{}", "[" * depth + "]" * depth).encode())


def test_anchors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cassette_yaml, "MAX_ANCHORS", 3)
    with pytest.raises(BrokenRecording, match="more than 3 anchors"):
        read(b"interactions: [&a x, &b x, &a x, &c x, &d x]")


def test_interactions_are_given_while_the_file_is_read() -> None:
    document = b"interactions:\n" + b"- {request: x}\n" * 100_000 + b"- [\n"
    reading = yaml_interactions(io.BytesIO(document))
    assert next(reading) == {"request": "x"}
    count = 1
    with pytest.raises(BrokenRecording, match=r"line 100003, column 1: "):
        for _ in reading:
            count += 1
    assert count == 100_000


@pytest.mark.parametrize(
    "document", [b"", b"x", b"a: 1", b"interactions: x", b"x:\n  interactions: []", b"interactions: {}"]
)
def test_a_document_without_a_list_is_not_a_cassette(document: bytes) -> None:
    with pytest.raises(BrokenRecording, match="no list of interactions"):
        read(document)
