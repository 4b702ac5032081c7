"""Sorts totals, and adds up those of several ledgers. Pure."""

from collections.abc import Iterable, Sequence

from streamgauge.ledger.contract import Total


def sort_totals(totals: Iterable[Total], *, newest_first: bool = False) -> list[Total]:
    """Totals in the order of their keys' values, None last; `newest_first`: the latest start first, without a start last."""
    by_keys = sorted(
        totals, key=lambda total: [(value is None, "" if value is None else value) for value in total.keys]
    )
    if not newest_first:
        return by_keys
    return sorted(by_keys, key=lambda total: (total.last_us is None, -(total.last_us or 0)))


def add_totals(ledgers: Sequence[Sequence[Total]], *, newest_first: bool = False) -> list[Total]:
    """The totals of several ledgers as one list. They must not hold the same streams: these would count twice."""
    by_keys: dict[tuple[str | int | None, ...], Total] = {}
    for totals in ledgers:
        for total in totals:
            known = by_keys.get(total.keys)
            by_keys[total.keys] = total if known is None else _sum(known, total)
    return sort_totals(by_keys.values(), newest_first=newest_first)


def _sum(one: Total, other: Total) -> Total:
    return Total(
        one.keys,
        one.streams + other.streams,
        one.with_usage + other.with_usage,
        _plus(one.input_tokens, other.input_tokens),
        _plus(one.output_tokens, other.output_tokens),
        _plus(one.total_tokens, other.total_tokens),
        _plus(one.input_cached_tokens, other.input_cached_tokens),
        _plus(one.reasoning_tokens, other.reasoning_tokens),
        without_usage=one.without_usage + other.without_usage,
        kinds={
            kind: one.kinds.get(kind, 0) + other.kinds.get(kind, 0)
            for kind in dict.fromkeys((*one.kinds, *other.kinds))
        },
        cost=_plus(one.cost, other.cost),
        without_price=one.without_price + other.without_price,
        with_cost=one.with_cost + other.with_cost,
        without_cost=one.without_cost + other.without_cost,
        longest_wait_us=max(_known(one.longest_wait_us, other.longest_wait_us), default=None),
        last_us=max(_known(one.last_us, other.last_us), default=None),
    )


def _known(*numbers: int | None) -> list[int]:
    return [number for number in numbers if number is not None]


def _plus(one: int | None, other: int | None) -> int | None:
    return sum(known) if (known := _known(one, other)) else None
