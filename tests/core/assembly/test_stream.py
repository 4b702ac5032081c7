"""Items are applied once each and in order, and batches that hold nothing to take cost little."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.assembly.stream import in_batches


class _Applied:
    """Takes those items of a batch that come before the first odd one; counts how many were offered."""

    def __init__(self) -> None:
        self.items: list[int] = []
        self.batched: list[int] = []
        self.offered = 0

    def take(self, some: Sequence[int]) -> int:
        self.offered += len(some)
        taken = next((at for at, item in enumerate(some) if item % 2), len(some))
        self.items += some[:taken]
        self.batched += some[:taken]
        return taken


@given(st.lists(st.integers(0, 9), max_size=300), st.integers(0, 300), st.booleans())
def test_each_item_is_applied_once_and_in_order(items: list[int], batched: int, may: bool) -> None:
    applied = _Applied()
    in_batches(items, batched, lambda: may, applied.take, applied.items.append)
    assert applied.items == items
    assert len(applied.batched) <= (min(batched, len(items)) if may else 0)


def test_items_that_all_fit_are_one_batch() -> None:
    applied = _Applied()
    in_batches([0] * 256, 256, lambda: True, applied.take, applied.items.append)
    assert (len(applied.batched), applied.offered) == (256, 256)


@pytest.mark.parametrize("length", [256, 2_048])
def test_items_that_never_fit_are_seldom_tried(length: int) -> None:
    applied = _Applied()
    in_batches([1] * length, length, lambda: True, applied.take, applied.items.append)
    assert applied.offered <= 1.5 * length + 64  # all of them once; afterwards few, and ever more seldom


def test_after_one_that_does_not_fit_batches_grow_again() -> None:
    applied = _Applied()
    in_batches([1, *[0] * 255], 256, lambda: True, applied.take, applied.items.append)
    assert len(applied.batched) == 255
