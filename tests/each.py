"""Many cases in one test: each test id costs every process that collects it a millisecond, more than many cases take."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TypeVar

Item = TypeVar("Item")


def check_each(items: Iterable[Item], check: Callable[[Item], None], name: Callable[[Item], str] = str) -> None:
    """Calls `check` with each item, also after one has failed. Raises if there is no item.

    What fails has the item's name as a note; of several that fail an ExceptionGroup is raised.
    """
    failed: list[Exception] = []
    count = 0
    for item in items:
        count += 1
        try:
            check(item)
        except Exception as why:  # noqa: BLE001 - raised below
            why.add_note(f"case: {name(item)}")
            failed.append(why)
    assert count, "there is no case"
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {count} cases failed", failed)


def each(
    items: Iterable[Item], name: Callable[[Item], str] = str
) -> Callable[[Callable[[Item], None]], Callable[[], None]]:
    """Makes one test of a check that takes one of `items`."""
    cases = list(items)

    def decorate(check: Callable[[Item], None]) -> Callable[[], None]:
        @wraps(check)
        def test() -> None:
            check_each(cases, check, name)

        del test.__wrapped__  # pytest would take the check's parameter for a fixture
        return test

    return decorate
