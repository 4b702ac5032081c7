"""Repeated rows are added up in bounded memory, whatever their number and order."""

import random
from decimal import Decimal

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.invoices import InvoiceLine
from streamgauge.audit.repeated import MAX_EACH, MAX_IDS, Repeated

TOKENS = Tokens(3, 0, 0, 2)


def line(number: int, usd: str | None = None, tokens: Tokens | None = TOKENS) -> InvoiceLine:
    money = None if usd is None else Decimal(usd)
    digest = number.to_bytes(16, "big")
    return InvoiceLine(
        "p", "2026-03-01", "m", tokens=tokens, usd=money, requests=1, request_id=f"r{number}", digest=digest
    )


def test_extra_rows_are_added_up() -> None:
    repeated = Repeated()
    repeated.add(line(1, "0.5"), 2)
    repeated.add(line(2, "0.25"), 1)
    assert (repeated.rows, repeated.tokens, repeated.usd, repeated.requests) == (
        5,
        Tokens(9, 0, 0, 6),
        Decimal("1.25"),
        3,
    )
    assert [(one.request_id, extra) for one, extra in repeated.different()] == [("r1", 2), ("r2", 1)]
    assert repeated.ids == {"r1", "r2"}


def test_rows_for_money_alone_are_apart() -> None:
    repeated = Repeated()
    repeated.add(line(1), 1)
    repeated.add(line(2, "0.25", None), 1)
    assert (repeated.rows, repeated.usd, repeated.money) == (2, None, Decimal("0.25"))


def test_of_many_only_the_sum_is_kept() -> None:
    numbers = list(range(MAX_IDS + 5))
    sums = []
    for seed in range(2):
        random.Random(seed).shuffle(numbers)
        parts = Repeated(), Repeated()
        for number in numbers:
            parts[number % 2].add(line(number), 1)
        parts[0].merge(parts[1])
        sums.append(parts[0])
    assert sums[0] == sums[1]
    assert (sums[0].rows, sums[0].tokens.output) == (2 * len(numbers), 2 * len(numbers))
    assert (sums[0].different(), sums[0].ids) == ([], set())
    assert MAX_EACH < MAX_IDS
