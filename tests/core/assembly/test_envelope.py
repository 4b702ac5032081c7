"""What fits an envelope: to the letter, or not at all."""

import json

import pytest

from streamgauge.core.assembly.forms import Run
from tests.core.assembly.deltas import GEMINI, Delta, block, delta, learnt


def test_the_text_is_what_differs() -> None:
    envelope = learnt(delta("a", {"x": 1, "d": "a"}), delta("bc", {"x": 1, "d": "bc"}))
    assert envelope.run([b'data: {"x":1,"d":"hello"}\n\n']) == Run(1, None, "hello")
    assert envelope.run([b'data: {"x":2,"d":"hello"}\n\n']) is None


def test_several_events_a_read_are_told_apart() -> None:
    envelope = learnt(delta("a"), delta("b"))
    assert envelope.run([b'data: {"d":"x"}\n\ndata: {"d":"yz"}\n\n', b'data: {"d":"u"}\n\n']) == Run(2, [2, 1], "xyzu")


def test_a_read_that_is_not_all_of_it_is_not_taken() -> None:
    envelope = learnt(delta("a"), delta("b"))
    good, other = b'data: {"d":"x"}\n\n', b'data: {"e":"x"}\n\n'
    assert envelope.run([2 * good, 3 * good, good + other, good]) == Run(2, [2, 3], "x" * 5)
    assert envelope.run([good + other, 2 * good]) is None
    broken = b'data: {"d":"\xc3"}\n\n'  # of this form, and no text: what is before it is taken at least by half
    taken = envelope.run([2 * good, good + broken, 2 * good])
    assert taken == Run(1, [2], "xx")


def test_it_goes_up_to_the_first_that_does_not_fit() -> None:
    envelope = learnt(delta("a"), delta("b"))
    good, other = b'data: {"d":"x"}\n\n', b'data: {"e":"x"}\n\n'
    assert envelope.run([good, good, other, good]) == Run(2, None, "xx")
    assert envelope.run([other, good]) is None
    assert envelope.run([b"", good]) is None


@pytest.mark.parametrize(
    "text", ['"', "\\", "a\\", '\\"},"x":{"', "\x01", "x\x00y", "", '","y":"', "\\ud800", "\\q", '"}\n\ndata: {"d":"']
)
def test_what_is_no_text_between_quotes_does_not_fit(text: str) -> None:
    envelope = learnt(delta("a"), delta("b"))
    found = envelope.run([b'data: {"d":"' + text.encode() + b'"}\n\n'])
    assert found is None or (found.events == [2] and found.text == "")


@pytest.mark.parametrize("text", ["ü", "\n", '"', "\\", "🙂", "\u2028", "\x7f", "a\tb", "\\n", "\ufeff"])
def test_text_is_read_as_json_has_it(text: str) -> None:
    envelope = learnt(delta("a"), delta("b"))
    for ascii_only in (True, False):
        raw = json.dumps({"d": text}, separators=(",", ":"), ensure_ascii=ascii_only).encode()
        assert envelope.run([b"data: " + raw + b"\n\n"]) == Run(1, None, text)


def test_padding_numbers_and_ids_are_holes() -> None:
    one = delta("a", {"sequence_number": 7, "d": "a", "obfuscation": "xyz"}, "n", "1")
    envelope = learnt(one, delta("b", {"sequence_number": 8, "d": "b", "obfuscation": "x"}, "n", "2"))
    third = delta("ccc", {"sequence_number": 12, "d": "ccc", "obfuscation": "pqrs"}, "n", "abc-3")
    assert envelope.run([block(third)]) == Run(1, None, "ccc", b"abc-3", 12)
    for bad in (b"-1", b"1.5", b"01", b"1e3", b"", b"x", b"1234567890123456"):
        assert envelope.run([block(third).replace(b":12,", b":" + bad + b",")]) is None


def test_a_running_usage_is_read_from_its_holes() -> None:
    def chunk(text: str, count: int) -> Delta:
        usage = {"promptTokenCount": 5, "candidatesTokenCount": count, "totalTokenCount": 5 + count}
        return delta(text, {"d": text, "usageMetadata": usage}, usage=("usageMetadata",))

    envelope = learnt(chunk("a", 1), chunk("b", 2), GEMINI)
    found = envelope.run([block(chunk("c", 3)), block(chunk("d", 44))])
    assert found == Run(2, None, "cd", None, None, [(("candidatesTokenCount",), 44), (("totalTokenCount",), 49)])


def test_a_copy_of_the_text_must_be_one() -> None:
    envelope = learnt(delta("a", {"r": "a", "d": [{"t": "a"}]}), delta("bc", {"r": "bc", "d": [{"t": "bc"}]}))
    assert envelope.run([b'data: {"r":"xy","d":[{"t":"xy"}]}\n\n']) == Run(1, None, "xy")
    assert envelope.run([b'data: {"r":"xy","d":[{"t":"xz"}]}\n\n']) is None
