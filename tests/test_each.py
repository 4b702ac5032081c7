"""Many cases in one test."""

from pathlib import Path

import pytest

from tests.each import check_each, each


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
