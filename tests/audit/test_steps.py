"""Steps that are read ahead: all of them, in order, each in its own context."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamgauge.audit.steps import READERS, Span, read_ahead
from streamgauge.ledger import LedgerUnavailableError, SqliteLedger, usage
from streamgauge.ledger.contract import Step
from tests.ledger.rows import make_row

BEGIN = 1_772_323_200 * 10**6  # 2026-03-01
HOUR = 3_600 * 10**6
SPANS = [Span("a", 0, BEGIN, BEGIN + HOUR), Span("b", 0, BEGIN + HOUR, BEGIN + 2 * HOUR)]


class Counted:
    """A ledger that counts which of its steps are open."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self._ledger = ledger
        self.open = 0
        self.most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    @contextmanager
    def usage_step(self, since_us: int, until_us: int) -> Iterator[Step | None]:
        with self._ledger.usage_step(since_us, until_us) as step:
            self.open += 1
            self.most = max(self.most, self.open)
            try:
                yield step
            finally:
                self.open -= 1


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    monkeypatch.setattr(usage, "STEP_ROWS", 3)
    with SqliteLedger(tmp_path / "ledger") as stored:
        stored.insert([make_row(400 * number, response_id=f"r{number // 2}") for number in range(18)])
        yield Counted(stored)


def test_steps_come_in_order_with_their_sums_and_equal_ids(ledger: Counted) -> None:
    found = []
    with closing(read_ahead([ledger], SPANS)) as steps:
        for ahead in steps:
            with ahead.read() as (step, sums, equal_ids):
                assert sums == step.sums()
                found.append((ahead.span.day, sum(one.streams for one in sums), sorted(equal_ids)))
    assert found == [
        ("a", 3, ["r0"]), ("a", 3, ["r1", "r2"]), ("a", 3, ["r3"]),
        ("b", 3, ["r4", "r5"]), ("b", 3, ["r6"]), ("b", 3, ["r7", "r8"]),
    ]  # fmt: skip
    assert (ledger.open, ledger.most) == (0, READERS + 1)


def test_spans_without_records_have_no_steps(ledger: Counted) -> None:
    with closing(read_ahead([ledger], [Span("c", 0, BEGIN - HOUR, BEGIN)])) as steps:
        assert list(steps) == []
    assert ledger.open == 0


def test_steps_that_were_not_read_are_closed(ledger: Counted) -> None:
    before = threading.active_count()
    steps = read_ahead([ledger], SPANS)
    with next(steps).read():
        assert ledger.open == READERS + 1
    steps.close()
    assert (ledger.open, threading.active_count()) == (0, before)


def test_a_query_of_the_reader_that_fails_says_so_in_a_sentence(ledger: Counted) -> None:
    with (
        closing(read_ahead([ledger], SPANS)) as steps,
        pytest.raises(LedgerUnavailableError, match="be read"),
        next(steps).read() as (step, _, _),
    ):
        step._connection.exec_driver_sql("SELECT nothing FROM nowhere")  # type: ignore[attr-defined]
    assert ledger.open == 0


def test_a_sum_that_fails_says_so_in_a_sentence(ledger: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(step: Any) -> None:
        step._connection.exec_driver_sql("SELECT nothing FROM nowhere")

    monkeypatch.setattr(usage.SqlStep, "counts_of_equal_ids", fails)
    with (
        closing(read_ahead([ledger], SPANS)) as steps,
        pytest.raises(LedgerUnavailableError, match="be read"),
        next(steps).read(),
    ):
        pass
    assert ledger.open == 0
