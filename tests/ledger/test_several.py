"""Several ledgers, of both kinds, read as one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.ledger import Comparison, Filter, Ledger, SeveralLedgers, UnknownKeyError, open_ledger
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import make_timing


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Ledger, Ledger]]:
    with open_ledger(f"sqlite:///{tmp_path}/a.sqlite") as one, open_ledger(f"sqlite:///{tmp_path}/b.sqlite") as other:
        yield one, other


def ids(several: SeveralLedgers, *arguments: Any, **options: Any) -> list[str]:
    return [json.loads(record)["stream_id"] for record in several.query(*arguments, **options)]


def names(*numbers: int) -> list[str]:
    return [stream_id(number) for number in numbers]


def test_records_come_in_one_order(two: tuple[Ledger, Ledger]) -> None:
    one, other = two
    one.insert([make_row(number) for number in (1, 3, 5)])
    one.insert([make_row(8, started_at=None)])
    other.insert([make_row(number) for number in (2, 4)])
    other.insert([make_row(7, started_at=None), make_row(6, started_at="2026-03-01T00:00:05Z")])
    several = SeveralLedgers(two)
    assert ids(several) == names(1, 2, 3, 4, 5, 6, 7, 8)
    assert ids(several, newest_first=True) == names(6, 5, 4, 3, 2, 1, 8, 7)
    assert ids(several, 3) == names(1, 2, 3)


def test_a_record_that_both_hold_comes_once(two: tuple[Ledger, Ledger]) -> None:
    for ledger in two:
        ledger.insert([make_row(1), make_row(2)])
    assert ids(SeveralLedgers(two)) == names(1, 2)


def test_ids_and_the_slowest_are_looked_for_in_all(two: tuple[Ledger, Ledger]) -> None:
    one, other = two
    ends = "00000000-0000-7000-8000-000000ab0000", "ab000000-0000-7000-8000-000000000000"
    one.insert([make_row(1, timing=make_timing(first_token_s=1.0)), make_row(2, timing=make_timing(first_token_s=3.0))])
    other.insert(
        [make_row(2, timing=make_timing(first_token_s=3.0)), make_row(3, timing=make_timing(first_token_s=2.0))]
    )
    several = SeveralLedgers(two)
    assert [json.loads(record)["stream_id"] for record in several.slowest(3)] == names(2, 3, 1)
    assert len(several.slowest(2)) == 2
    assert sum(streams for _, _, streams in several.minutes(Filter())) == 4
    assert len(several.minutes(Filter())) == len({minute[:2] for minute in several.minutes(Filter())})
    one.insert([make_row(4, stream_id=ends[0])])
    other.insert([make_row(5, stream_id=ends[1])])
    assert [json.loads(record)["stream_id"] for record in several.with_id(names(2)[0], 9)] == names(2)
    for part, found in (("ab0000", ends[1:]), ("ab000000", ends[1:]), ("0ab0000", ends[:1]), ("cd", ())):
        assert [json.loads(record)["stream_id"] for record in several.with_id(part, 9)] == list(found)
    one.insert([make_row(6, attributes={"agent": "a"})])
    but = Filter(compared=(Comparison("agent", "!=", "a"), Comparison("ttft", ">=", 2.0)))
    assert ids(several, chosen=but) == names(2, 3), "an attribute of one ledger is a key of the other"


def test_totals_are_added(two: tuple[Ledger, Ledger]) -> None:
    one, other = two
    one.insert([make_row(1, tenant="a"), make_row(2, tenant="b")])
    other.insert([make_row(3, tenant="b"), make_row(90_000, started_at="2026-04-01T00:00:00Z", tenant="c")])
    several = SeveralLedgers(two)
    assert [(line.keys[0], line.streams, line.input_tokens) for line in several.totals(["tenant"])] == [
        ("a", 1, 10),
        ("b", 2, 20),
        ("c", 1, 10),
    ]
    assert [line.keys[0] for line in several.totals(["tenant"], newest_first=True)] == ["c", "b", "a"]


def test_an_attribute_is_a_key_if_one_of_them_knows_it(two: tuple[Ledger, Ledger]) -> None:
    one, other = two
    one.insert([make_row(1, attributes={"agent": "x"})])
    other.insert([make_row(2)])
    several = SeveralLedgers(two)
    assert several.has_attribute("agent")
    assert [(line.keys[0], line.streams) for line in several.totals(["agent"])] == [("x", 1), (None, 1)]
    assert ids(several, None, Filter(where=(("agent", None),))) == names(2)
    assert ids(several, None, Filter(where=(("agent", "x"),))) == names(1)
    with pytest.raises(UnknownKeyError, match="session"):
        several.totals(["session"])


def test_a_file_and_a_database_together(two: tuple[Ledger, Ledger], postgres_url: str) -> None:
    two[0].insert([make_row(1), make_row(3)])
    with open_ledger(postgres_url) as database:
        database.insert([make_row(2), make_row(4)])
        several = SeveralLedgers([two[0], database])
        assert ids(several) == names(1, 2, 3, 4)
        assert [line.streams for line in several.totals(["day"])] == [4]
