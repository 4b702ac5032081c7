"""Totals of several ledgers as one list, in one order."""

from dataclasses import asdict
from typing import Any

from streamgauge.ledger import Total
from streamgauge.ledger.totals import add_totals, sort_totals


def total(*keys: Any, **known: Any) -> Total:
    numbers: dict[str, Any] = {
        "streams": 1,
        "with_usage": 0,
        "input_tokens": None,
        "output_tokens": None,
        "total_tokens": None,
    }
    return Total(keys, **{**numbers, **known})


def test_the_order_is_that_of_the_keys_with_none_last() -> None:
    totals = [total(None, 1), total("b", 1), total("a", None), total("a", 10), total("a", 2)]
    assert [one.keys for one in sort_totals(totals)] == [("a", 2), ("a", 10), ("a", None), ("b", 1), (None, 1)]


def test_the_newest_are_first_on_request_and_those_without_a_start_last() -> None:
    totals = [total("a", last_us=1), total("b"), total("c", last_us=3), total("d", last_us=3)]
    assert [one.keys[0] for one in sort_totals(totals, newest_first=True)] == ["c", "d", "a", "b"]


def test_known_numbers_are_added_and_unknown_ones_stay_null() -> None:
    one = total("a", streams=2, with_usage=1, input_tokens=5, kinds={"input_uncached": 5}, cost=7, without_price=1,
                without_usage=1, longest_wait_us=4, last_us=20)  # fmt: skip
    other = total("a", streams=3, with_usage=3, input_tokens=1, output_tokens=2, kinds={"input_uncached": 1, "reasoning": 2},
                  longest_wait_us=9, last_us=6)  # fmt: skip
    (added,) = add_totals([[one], [other]])
    assert asdict(added) == asdict(
        total("a", streams=5, with_usage=4, input_tokens=6, output_tokens=2, kinds={"input_uncached": 6, "reasoning": 2},
              cost=7, without_price=1, without_usage=1, longest_wait_us=9, last_us=20)
    )  # fmt: skip
    assert added.total_tokens is None


def test_lines_of_one_ledger_alone_stay() -> None:
    assert [one.keys for one in add_totals([[total("b")], [total("a"), total(None)], []])] == [("a",), ("b",), (None,)]
