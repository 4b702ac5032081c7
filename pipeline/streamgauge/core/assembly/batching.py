"""Applies reads or events in order, as many at a time as hold plain deltas, and the others one by one."""

from collections.abc import Callable, Sequence
from typing import TypeVar

# After a batch that held no plain deltas, so many items are tried, and at most so many are applied one by one before the
# next try: twice as many after each such batch in a row.
_TRIAL = 8
_LONGEST_PAUSE = 32

_Item = TypeVar("_Item")


def in_batches(
    items: Sequence[_Item],
    batched: int,
    may_batch: Callable[[], bool],
    take: Callable[[Sequence[_Item]], int],
    one: Callable[[_Item], None],
) -> None:
    """Apply items in order: by `take`, which returns how many of the first ones it applied, and the others by `one`.

    Those before `batched` may be given to `take`, as long as `may_batch` holds. A batch of which nothing is taken costs time
    for each of its items. So after such a batch fewer items are tried, and later.
    """
    at, window, pause = 0, batched, 1
    while at < len(items):
        taken = take(items[at : min(batched, at + window)]) if at < batched and may_batch() else 0
        if taken:
            window, pause = 2 * window, 1
        else:
            for item in items[at : at + pause]:
                one(item)
            taken, window, pause = pause, _TRIAL, min(2 * pause, _LONGEST_PAUSE)
        at += taken
