"""Which envelopes of other streams are taken, and which are not."""

from collections.abc import Iterator

import pytest

from streamgauge.core import known_envelopes
from streamgauge.core.envelope import Envelope
from streamgauge.core.forms import Run
from streamgauge.core.known_envelopes import MAX_KNOWN, envelope_of
from streamgauge.core.learning import VOLATILE
from tests.core.deltas import GEMINI, Delta, block, delta


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
    assert found(chunk("a", 6, 1), chunk("b", 6, 2)) not in (None, taught)
    assert found(chunk("a", 5, 1, serviceTier="x"), chunk("b", 5, 2, serviceTier="x")) not in (None, taught)


def test_not_more_are_kept_than_named() -> None:
    for number in range(2 * MAX_KNOWN + 10):
        assert found(of_model("m", "a"), of_model("m", "b"), f"dialect {number}") is not None
        assert len(known_envelopes._known) <= MAX_KNOWN
