"""Many cases in one test (tests/each.py), and some of many cases (tests/few.py)."""

from pathlib import Path

import pytest

from tests.each import check_each, each
from tests.few import examples, some


def test_every_case_is_tried_and_each_that_fails_is_named() -> None:
    tried = []

    def check(case: int) -> None:
        tried.append(case)
        assert case % 2

    with pytest.raises(ExceptionGroup, match="2 of 4 cases failed") as failed:
        check_each(range(4), check, "number {}".format)
    assert tried == [0, 1, 2, 3]
    assert [error.__notes__ for error in failed.value.exceptions] == [["case: number 0"], ["case: number 2"]]
    with pytest.raises(AssertionError, match="there is no case"):
        check_each([], check)


@each("ab")
def test_the_cases_share_what_fixtures_give(case: str, tmp_path: Path) -> None:
    (tmp_path / case).touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == list("ab"[: "ab".index(case) + 1])


def test_some_cases_are_the_same_in_one_run_and_others_for_another_name() -> None:
    chosen = some(range(1_000), "a")
    assert chosen == some(range(1_000), "a") == sorted(chosen)
    assert len(chosen) == examples(1_000)
    assert len(chosen) == 1_000 or chosen != some(range(1_000), "b")
    assert some(range(3)) == [0, 1, 2]
