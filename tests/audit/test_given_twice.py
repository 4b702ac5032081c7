"""What is given twice counts once, and what was not exported is not compared."""

import json
import random
from collections import Counter
from collections.abc import Mapping as Map
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import ZERO_USD, Tokens, total_of
from streamgauge.audit.invoices import FORMATS, InvoiceError, InvoiceFile, InvoiceLine, open_invoices
from streamgauge.audit.invoices.sources import Source
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.ours import GroupKey, Ours
from streamgauge.audit.period import Period
from streamgauge.audit.reconcile import Reconciled, reconcile
from streamgauge.audit.theirs import Theirs
from streamgauge.ledger import Cost, SqliteLedger
from tests.audit.invoices.samples import BY_NAME, DAY_S, page, table
from tests.ledger.rows import make_row
from tests.metrics.records import make_usage

PERIOD = Period.of("2026-03-01", "2026-03-11", "UTC")
USAGE = BY_NAME["OpenAI usage (API)"].rows[0]
COST = {"object": "organization.costs.result", "project_id": None, "line_item": "m, input"}


def row(tokens: int, model: str = "m", **changes: Any) -> dict[str, Any]:
    """A row of usage: so many tokens of uncached input, and one of output."""
    counts = {"input_tokens": tokens, "input_uncached_tokens": tokens, "input_cached_tokens": 0}
    parts = {name: 0 for name in USAGE if name.startswith("input_") and name not in counts and USAGE[name]}
    return {
        **USAGE,
        **parts,
        **counts,
        "output_tokens": 1,
        "num_model_requests": 1,
        "model": model,
        "service_tier": None,
        **changes,
    }


def export(days: Map[int, Sequence[dict[str, Any]]]) -> str:
    """Buckets of days of March, with these rows."""
    data = [
        {
            "object": "bucket",
            "start_time": DAY_S + (day - 1) * 86_400,
            "end_time": DAY_S + day * 86_400,
            "results": list(rows),
        }
        for day, rows in days.items()
    ]
    return json.dumps({"object": "page", "data": data, "has_more": False, "next_page": None})


def costs(days: Sequence[int]) -> str:
    return export({day: [COST | {"amount": {"value": "0.000001", "currency": "usd"}}] for day in days})


def read(folder: Path, *texts: str) -> Theirs:
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.json")
        paths[-1].write_text(text)
    theirs = Theirs(open_invoices(paths, {}), PERIOD, Mapping())
    theirs.read()
    return theirs


def billed(theirs: Theirs) -> dict[GroupKey, tuple[Tokens, int | None, int]]:
    """What is billed by group: tokens, requests, and how many rows repeat another one."""
    return {
        group: (cell.tokens, cell.requests, cell.repeated.rows)
        for group, cell in theirs.cells.items()
        if cell.token_rows
    }


def reconciled(folder: Path, *texts: str, streams: Sequence[int] = range(1, 11)) -> Reconciled:
    """Compares these exports with a ledger that has a stream on each of these days of March: a token each way."""
    usage = make_usage(1, 1)
    rows = [
        make_row(
            day, upstream="openai", response_model="m", usage=usage, started_at=f"2026-03-{day:02}T12:00:00.000000Z"
        )
        for day in streams
    ]
    theirs = read(folder, *texts)
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        ledger.insert([replace(one, cost=Cost(10**6, 0, "list", None)) for one in rows])
        return reconcile(Ours(ledger, PERIOD, Mapping()), Theirs(theirs.files, PERIOD, Mapping()), PERIOD, ZERO_USD)


def test_a_file_with_the_same_bytes_counts_once(tmp_path: Path) -> None:
    text = export({1: [row(5)], 2: [row(6)]})
    once, twice = read(tmp_path, text), read(tmp_path, text, text)
    assert billed(twice) == billed(once)
    assert twice.notes[0] == "1.json has the same bytes as 0.json: they count once."
    assert [used.name for used in twice.used] == ["0.json"]
    assert twice.rows == 2


def test_one_file_that_is_given_twice_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "usage.json").write_text(export({1: [row(5)]}))
    theirs = Theirs(open_invoices([tmp_path / "usage.json"] * 2, {}), PERIOD, Mapping())
    theirs.read()
    assert theirs.notes[0] == "usage.json was given twice: it counts once."


def test_days_without_an_export_are_listed_and_counted(tmp_path: Path) -> None:
    theirs = read(tmp_path, export({2: [row(5)]}), export({4: [row(6)], 5: []}), costs([2, 4]))
    assert [note for note in theirs.notes if note.startswith("No export of openai covers")] == [
        "No export of openai covers 2026-03-01 and 2026-03-06 to 2026-03-10: these days are not compared."
    ]
    assert theirs.uncovered_days == {"openai": 8}, "also the days with costs or tokens alone"
    whole = read(tmp_path, export({day: [row(day)] for day in range(1, 11)}))
    assert (whole.uncovered_days, whole.notes) == ({}, [])
    scattered = read(tmp_path, *(export({day: [row(day)]}) for day in range(2, 12, 2)))
    assert (
        "No export of openai covers 5 days of 2026-03-01 to 2026-03-09: these days are not compared." in scattered.notes
    )


def test_an_export_that_ends_on_the_excluded_day_is_said(tmp_path: Path) -> None:
    note = "0.json ends on 2026-03-11, the day that --to excludes: it is not compared."
    assert read(tmp_path, export({day: [row(day)] for day in range(1, 12)})).notes == [note]
    assert read(tmp_path, export({day: [row(day)] for day in range(1, 11)})).notes == []
    assert read(tmp_path, export({day: [row(day)] for day in range(1, 13)})).notes == []


def test_two_exports_that_overlap_are_one(tmp_path: Path) -> None:
    days = {day: [row(day), row(day, "n")] for day in range(1, 11)}
    whole = read(tmp_path, export(days))
    first = export({day: rows for day, rows in days.items() if day <= 6})
    second = export({day: rows for day, rows in days.items() if day >= 5})
    both = read(tmp_path, first, second)
    assert billed(both) == billed(whole)
    assert "1.json and 0.json overlap (2026-03-05 to 2026-03-06): 4 rows that both have count once." in both.notes
    assert [(used.first_day, used.last_day, used.rows) for used in both.used] == [
        ("2026-03-01", "2026-03-06", 12),
        ("2026-03-05", "2026-03-10", 12),
    ]


def test_different_rows_for_one_line_in_two_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvoiceError, match=r"1\.json: it and .*0\.json have different rows .* 2026-03-02 to 2026-03-03"
    ):
        read(tmp_path, export({1: [row(1)], 2: [row(2)], 3: [row(3)]}), export({2: [row(9)], 3: [row(3), row(4)]}))


def test_two_files_with_rows_for_different_lines_are_added_up(tmp_path: Path) -> None:
    theirs = read(
        tmp_path,
        export({1: [row(1, project_id="a"), row(5)]}),
        export({1: [row(2, project_id="b"), row(7, "n"), row(8, service_tier="priority")]}),
    )
    assert total_of(tokens for tokens, _, _ in billed(theirs).values()) == Tokens(23, 0, 0, 5)
    assert not any("overlap" in note for note in theirs.notes)


def test_rows_that_repeat_in_both_files_repeat_once(tmp_path: Path) -> None:
    theirs = read(tmp_path, export({1: [row(5), row(5)], 2: []}), export({1: [row(5), row(5), row(5)]}))
    ((tokens, requests, repeated),) = billed(theirs).values()
    assert (tokens, requests, repeated) == (Tokens(15, 0, 0, 3), 3, 3)


def test_days_without_a_bucket_are_not_compared(tmp_path: Path) -> None:
    found = reconciled(tmp_path, export({day: [row(1)] for day in range(1, 6)}))
    assert [cell.group.day for cell in found.cells] == [f"2026-03-{day:02}" for day in range(1, 6)]
    assert not any(cell.explanations or cell.undecided for cell in found.cells)
    assert "No export of openai covers 2026-03-06 to 2026-03-10: these days are not compared." in found.notes
    assert (found.streams, found.rows) == (10, 5)


def test_a_hole_between_the_buckets_is_compared_and_said(tmp_path: Path) -> None:
    found = reconciled(tmp_path, export({day: [row(1)] for day in range(1, 11) if day != 5}))
    assert [cell.group.day for cell in found.cells if cell.explanations] == ["2026-03-05"]
    assert found.notes == [
        "0.json has no bucket of 2026-03-05, between its first and its last day: this day is compared as if nothing was "
        "billed."
    ]


def test_an_empty_bucket_is_a_day_on_which_nothing_is_billed(tmp_path: Path) -> None:
    found = reconciled(tmp_path, export({day: [row(1)] if day != 5 else [] for day in range(1, 11)}))
    ((day, causes),) = [
        (cell.group.day, [one.cause for one in cell.explanations]) for cell in found.cells if cell.explanations
    ]
    assert (day, causes, found.notes) == ("2026-03-05", ["missing_from_invoice"], [])


def test_days_with_usage_and_without_costs_are_compared_in_tokens(tmp_path: Path) -> None:
    found = reconciled(tmp_path, export({day: [row(1)] for day in range(1, 11)}), costs(range(1, 8)))
    assert [cell.usd is None for cell in found.cells] == [False] * 7 + [True] * 3
    assert all(cell.shape.has_tokens for cell in found.cells)
    assert found.notes == [
        "No export of openai with money covers 2026-03-08 to 2026-03-10: money of these days is not compared."
    ]


def test_a_csv_covers_the_days_between_its_rows(tmp_path: Path) -> None:
    sample = {**BY_NAME["FOCUS"].rows[0], "ServiceProviderName": "x"}
    rows = [
        {
            **sample,
            "ChargePeriodStart": f"2026-03-{day:02}T00:00:00Z",
            "ChargePeriodEnd": f"2026-03-{day + 1:02}T00:00:00Z",
        }
        for day in (2, 6)
    ]
    (tmp_path / "bill.csv").write_text(table(rows))
    theirs = Theirs(open_invoices([tmp_path / "bill.csv"], {}), PERIOD, Mapping())
    theirs.read()
    ((tokens, money),) = theirs.covered.values()
    assert tokens == money == {f"2026-03-{day:02}" for day in range(2, 7)}


def test_a_file_without_a_row_of_the_period_is_named_with_its_days(tmp_path: Path) -> None:
    late = page([row(1)], start_time=DAY_S + 40 * 86_400, end_time=DAY_S + 41 * 86_400)
    found = reconciled(tmp_path, late)
    assert (found.rows, found.cells) == (0, [])
    assert found.notes == [
        "0.json has no row of the period: it is for 2026-04-10.",
        "No export of openai covers 2026-03-01 to 2026-03-10: these days are not compared.",
    ]


lines = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["m", "n"]), st.integers(1, 2), st.sampled_from(["a", "b"])),
    max_size=12,
)


class File(InvoiceFile):
    """A file with these rows; equal rows have equal digests, as rows of a real file have."""

    def __init__(self, name: str, rows: list[tuple[int, str, int, str]]) -> None:
        super().__init__(Source(Path(name)), (), {})
        self.format = next(known for known in FORMATS if known.name == "OpenAI usage (API)")
        self._given = rows

    @property
    def sha256(self) -> str:
        return str(self.path)

    def lines(self) -> Any:
        for day, model, tokens, key in self._given:
            yield InvoiceLine(
                "openai", f"2026-03-0{day}", model, (key,), tokens=Tokens(tokens, 0, 0, 1), requests=1,
                digest=repr((day, model, tokens, key)).encode(),
            )  # fmt: skip


def theirs_of(files: list[File]) -> Theirs:
    theirs = Theirs(files, PERIOD, Mapping(tenants={"a": "a"}))
    theirs.read()
    return theirs


@given(drawn=lines)
def test_equal_rows_are_those_that_a_counter_finds(drawn: list[tuple[int, str, int, str]]) -> None:
    theirs = theirs_of([File("a", drawn)])
    expected: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    for (day, model, tokens, key), count in Counter(drawn).items():
        rows, extra_tokens, extra = expected.get((f"2026-03-0{day}", model, key), (0, 0, 0))
        if count > 1:
            rows, extra_tokens, extra = rows + count, extra_tokens + tokens * (count - 1), extra + count - 1
        expected[f"2026-03-0{day}", model, key] = rows, extra_tokens, extra
    assert {
        (group.day, group.model, group.key): (
            cell.repeated.rows,
            cell.repeated.tokens.input,
            cell.repeated.requests,
        )
        for group, cell in theirs.cells.items()
    } == expected


@given(drawn=lines, cuts=st.tuples(st.integers(0, 12), st.integers(0, 12)), seed=st.integers(0, 5))
def test_the_order_of_files_and_rows_does_not_matter(
    drawn: list[tuple[int, str, int, str]], cuts: tuple[int, int], seed: int
) -> None:
    """Also where two files share rows: both have all rows of the days that both have."""
    first = [one for one in drawn if one[0] <= max(cuts) % 3 + 1]
    second = [one for one in drawn if one[0] >= min(cuts) % 3 + 1]
    rng = random.Random(seed)
    forms = []
    for _ in range(2):
        files = [File("a", rng.sample(first, len(first))), File("b", rng.sample(second, len(second)))]
        rng.shuffle(files)
        forms.append(theirs_of(files))
    assert billed(forms[0]) == billed(forms[1])
    assert (forms[0].notes, forms[0].used) == (forms[1].notes, forms[1].used)
    days = {day for day, *_ in first} | {day for day, *_ in second}
    whole = theirs_of([File("whole", [one for one in drawn if one[0] in days])])
    assert billed(forms[0]) == billed(whole)
