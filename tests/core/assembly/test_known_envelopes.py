"""Which envelopes of other streams are taken, and which are not."""

from collections.abc import Iterator
from typing import Any

import pytest

from streamgauge.core.assembly import known_envelopes
from streamgauge.core.assembly.envelope import Envelope
from streamgauge.core.assembly.forms import Run
from streamgauge.core.assembly.known_envelopes import MAX_KNOWN, envelope_of, envelope_of_one
from streamgauge.core.assembly.learning import VOLATILE
from streamgauge.core.assembly.learning import learn as learn_anew
from tests.core.assembly.deltas import GEMINI, Delta, block, delta


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(known_envelopes, "_known", {})
    yield


def found(one: Delta, other: Delta, dialect: str = "chat") -> Envelope | None:
    return envelope_of(one, other, dialect, GEMINI, VOLATILE)


def of_model(model: str, text: str, **more: object) -> Delta:
    return delta(text, {"model": model, "d": text, **more})


def test_a_stream_takes_what_another_one_taught() -> None:
    taught = found(of_model("m", "a"), of_model("m", "b"))
    assert taught is not None
    assert found(of_model("m", "c"), of_model("m", "dd")) is taught
    assert found(of_model("m", 'e"'), of_model("m", "ü\n")) is taught  # what two such events would not have taught


def test_one_event_will_do_that_fits_to_the_letter() -> None:
    assert envelope_of_one(of_model("m", "a"), "chat") is None
    taught = found(of_model("m", "a"), of_model("m", "b"))
    assert envelope_of_one(of_model("m", 'ü "c"'), "chat") is taught
    assert envelope_of_one(of_model("m", "c"), "other") is None
    assert envelope_of_one(of_model("n", "c"), "chat") is None
    assert envelope_of_one(of_model("m", "c", extra=1), "chat") is None
    assert envelope_of_one(delta("c", {"model": "m", "d": "another"}), "chat") is None


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> list[Delta]:
    """The events of which something is learnt, from here on."""
    seen: list[Delta] = []

    def learn(one: Delta, other: Delta, *more: Any) -> Envelope | None:
        seen.append(other)
        return learn_anew(one, other, *more)

    monkeypatch.setattr(known_envelopes, "learn", learn)
    return seen


def test_ids_and_numbers_of_a_stream_need_not_be_learnt(learning: list[Delta]) -> None:
    def numbered(item: str, created: int, text: str, at: int) -> Delta:
        return delta(
            text, {"item": item, "created": created, "sequence_number": at, "d": text, "obfuscation": "x" * at}
        )

    assert found(numbered("id_1", 111, "a", 1), numbered("id_1", 111, "b", 2)) is not None
    learning.clear()
    like = found(numbered("id_2", 222, "a", 1), numbered("id_2", 222, 'c"', 3))
    assert like is not None and not learning
    again = [block(numbered("id_2", 222, "xy", 8)), block(numbered("id_2", 222, "z", 9))]
    assert like.run(again) == Run(2, None, "xyz", sequence=9)
    assert like.run([block(numbered("id_1", 222, "xy", 8))]) is None


@pytest.mark.parametrize(
    "other",
    [
        {"n": "xyz", "e": 1},
        {"m": "xyz", "i": 1},
        {"m": 12345, "e": 1},
        {"m": "x", "e": "1"},
        {"m": "x\n", "e": 1},
        {"m": "x", "e": 1.5},
    ],
    ids=str,
)
def test_what_is_as_long_and_differs_in_more_than_values_of_one_kind_is_learnt(
    other: dict[str, object], learning: list[Delta]
) -> None:
    def of(members: dict[str, object], text: str) -> Delta:
        return delta(text, {**members, "d": text})

    base = of({"m": "xyz", "e": 1}, "a")
    assert found(base, of({"m": "xyz", "e": 1}, "b")) is not None
    learning.clear()
    assert len(of(other, "a").event.data or b"") == len(base.event.data or b"")
    assert found(of(other, "a"), of(other, "b")) is not None
    assert len(learning) == 1


def test_another_dialect_or_other_literals_are_learnt_anew() -> None:
    taught = found(of_model("m", "a"), of_model("m", "b"))
    assert found(of_model("m", "a"), of_model("m", "b"), "other") not in (None, taught)
    other = found(of_model("n", "a"), of_model("n", "b"))
    assert other not in (None, taught)
    assert other.run([block(of_model("n", "xy"))]) == Run(1, None, "xy")
    assert found(of_model("m", "a", extra=1), of_model("m", "b", extra=1)) not in (None, taught, other)


def test_what_differs_between_the_two_is_no_stream_of_that_form() -> None:
    assert found(of_model("m", "a"), of_model("m", "b")) is not None
    assert found(of_model("m", "a"), of_model("n", "b")) is None


def test_a_running_usage_may_differ_in_its_counts_alone() -> None:
    def chunk(text: str, prompt: int, count: int, **more: object) -> Delta:
        usage = {"promptTokenCount": prompt, "candidatesTokenCount": count, **more}
        return delta(text, {"d": text, "usageMetadata": usage}, usage=("usageMetadata",), given=usage)

    taught = found(chunk("a", 5, 1), chunk("b", 5, 2))
    assert taught is not None
    assert found(chunk("a", 5, 7), chunk("b", 5, 8)) is taught
    other = found(chunk("a", 6, 1), chunk("b", 6, 2))
    assert other not in (None, taught)
    assert other.delta.given == {"promptTokenCount": 6, "candidatesTokenCount": 2}
    assert found(chunk("a", 5, 1, serviceTier="x"), chunk("b", 5, 2, serviceTier="x")) not in (None, taught)


def test_not_more_are_kept_than_named() -> None:
    for number in range(2 * MAX_KNOWN + 10):
        assert found(of_model("m", "a"), of_model("m", "b"), f"dialect {number}") is not None
        assert len(known_envelopes._known) <= MAX_KNOWN
