"""Many cases in one test: each test id costs every process that collects it a millisecond, more than many cases take."""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Signature, signature
from typing import Any, TypeVar

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
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes one test of a check whose first parameter is one of `items`. Its other parameters are fixtures: all cases share
    what they give.
    """
    cases = list(items)

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        @wraps(check)
        def test(**fixtures: Any) -> None:
            check_each(cases, lambda case: check(case, **fixtures), name)

        # pytest takes each parameter for a fixture
        del test.__wrapped__
        _, *parameters = signature(check).parameters.values()
        vars(test)["__signature__"] = Signature(parameters)
        return test

    return decorate
