"""Objectives: what is accepted, and what an error says to write."""

import pytest

from streamgauge.metrics.objectives import NAMES, Objectives, objectives_of
from streamgauge.metrics.table import FIRST_TOKEN
from tests.each import each


def test_the_defaults_stay_where_nothing_is_given() -> None:
    assert objectives_of(()) == Objectives()
    assert objectives_of(["unbroken=0.995", "ttft=2", "ttft_share=0.9", "usage=0"]) == Objectives(0.995, 2.0, 0.9, 0.0)


@each(FIRST_TOKEN.bounds)
def test_every_bound_of_a_bucket_is_a_threshold(bound: float) -> None:
    assert objectives_of([f"ttft={bound}"]).ttft == bound


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["ttft=2.5"], "give 2 or 3"),
        (["ttft=0.001"], "cannot be counted: give 0.025"),
        (["ttft=1000000"], f"give {FIRST_TOKEN.bounds[-1]:g}"),
        (["ttft=nan"], "ttft=nan is no bound"),
        (["unbroken=99"], "give a share above 0 and below 1, such as 0.99"),
        (["unbroken=1"], "give a share"),
        (["ttft_share=0"], "give a share"),
        (["usage=1"], "give a share from 0"),
        (["usage=nan"], "give a share from 0"),
        (["speed=1"], f"write NAME=NUMBER with one of {', '.join(NAMES)}"),
        (["unbroken"], "write unbroken=0.99"),
        (["unbroken=much"], "write unbroken=0.99"),
        (["ttft=2", "ttft=3"], "ttft is given twice"),
    ],
)
def test_an_error_says_what_to_write(given: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=r"\A[^\n]*\Z") as refused:
        objectives_of(given)
    assert says in str(refused.value)
