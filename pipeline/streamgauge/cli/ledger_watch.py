"""What the metrics and the page of a process show of its ledger: budgets and the last kept audit, which are read every
READ_EVERY_S in a thread; the upstreams and the last hour's streams, which are read when the process starts.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from streamgauge.audit.result import Result, not_compared
from streamgauge.audit.runs import Run, Runs
from streamgauge.cli.settings_files import SettingsFiles
from streamgauge.core.record import Record
from streamgauge.core.token_kinds import reported_tokens
from streamgauge.ledger import Filter, Ledger, LedgerUnavailableError, Reader
from streamgauge.ledger.budgets import Budgets, BudgetState, budget_states
from streamgauge.ledger.cost import COST_DIGITS
from streamgauge.ledger.zones import month_of, zone_of
from streamgauge.live.answers import BudgetRow, LastAudit, Money
from streamgauge.live.view import LiveView
from streamgauge.metrics import table
from streamgauge.metrics.observe import CostOf, StreamCost
from streamgauge.metrics.prometheus import Metrics, Sample
from streamgauge.metrics.resumed_usage import ResumedUsage
from streamgauge.runtime.faults import report_fault

# --- budgets and audits ----------------------------------------------------------------------------------------------


_LOG = logging.getLogger("streamgauge.ledger")

# How often they are read (seconds). The records of a month are added up for budgets, which takes about a second for a
# million of them.
READ_EVERY_S = 300.0
_USD = 10.0**-COST_DIGITS


@contextlib.contextmanager
def watched_ledger(
    files: SettingsFiles, ledger: Ledger, metrics: Metrics, every_s: float = READ_EVERY_S
) -> Iterator[Callable[[], Money]]:
    """Exports them while the block runs. Yields a function that returns them for the page.

    `files` has the budgets and tenants. Raises UsageFault for a file that cannot be read.
    """
    budgets = files.budgets()
    tenants = tuple(sorted(files.tenants().items()))
    watch = _Watch(ledger, metrics, budgets, tenants)
    metrics.register(watch.samples)
    stopping = threading.Event()

    def work() -> None:
        while True:
            watch.read()
            if stopping.wait(every_s):
                return

    thread = threading.Thread(target=work, name="ledger-watch")
    thread.start()
    try:
        yield watch.money
    finally:
        stopping.set()
        thread.join()


class _Watch:
    """What was read last. `read` and `samples` are called from different threads: a reading replaces the one before it."""

    def __init__(
        self, ledger: Ledger, metrics: Metrics, budgets: Budgets | None, tenants: tuple[tuple[str, str], ...]
    ) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._budgets = budgets
        self._tenants = tenants
        self._failing = False
        self._states: Sequence[BudgetState] = ()
        self._audit: tuple[Run, Result] | None = None

    def read(self) -> None:
        try:
            self._states = self._read_budgets()
            self._audit = self._read_audit()
        except Exception as error:  # noqa: BLE001 - without these gauges the process does all of its work
            self._states, self._audit = (), None
            self._metrics.add(table.LEDGER_READ_FAILURES.name)
            if not isinstance(error, LedgerUnavailableError):
                report_fault("the gauges of budgets and audits", error)
            elif not self._failing:
                _LOG.warning("budgets and audits cannot be read now, trying again every %d s: %s", READ_EVERY_S, error)
            self._failing = True
        else:
            self._failing = False

    def _read_budgets(self) -> Sequence[BudgetState]:
        if self._budgets is None:
            return ()
        zone = zone_of(self._budgets.timezone)
        now = datetime.now(UTC)
        month = month_of(f"{now.astimezone(zone):%Y-%m}", zone)
        chosen = Filter(timezone=self._budgets.timezone, tenants=self._tenants)
        return budget_states(self._ledger, self._budgets.budgets, month, time.time_ns() // 1_000, chosen)

    def _read_audit(self) -> tuple[Run, Result] | None:
        return Runs(self._ledger).last_compared()

    def money(self) -> Money:
        """For the page."""
        audit = None if self._audit is None else _shown_audit(*self._audit)
        return Money([_shown_budget(state) for state in self._states], audit)

    def samples(self) -> Iterable[Sample]:
        for state in self._states:
            yield from _budget(state)
        if self._audit is not None:
            yield from _audit(*self._audit, time.time())


def _shown_budget(state: BudgetState) -> BudgetRow:
    budget = state.budget
    return BudgetRow(
        budget.key,
        budget.value,
        limit_usd=budget.limit * _USD,
        spent_usd=state.spent * _USD,
        forecast_usd=None if state.forecast is None else state.forecast * _USD,
        unknown_streams=state.without_price + state.without_usage,
    )


def _shown_audit(run: Run, result: Result) -> LastAudit:
    tokens = result.unexplained.tokens
    return LastAudit(
        run.saved_at,
        first=run.first,
        end=run.end,
        agrees=_agrees(run, result),
        preliminary=run.is_preliminary,
        unexplained_tokens=None if tokens is None else tokens.total,
        unexplained_usd=_unexplained_usd(result),
        coverage=result.coverage,
    )


def _agrees(run: Run, result: Result) -> bool:
    """A run that an earlier version kept may say that it agrees although billed money was not compared."""
    return run.agrees and not not_compared(result)


def _unexplained_usd(result: Result) -> str | None:
    """None if billed money was not compared: the sum is of the other lines alone."""
    return None if not_compared(result) else result.unexplained.usd


def _budget(state: BudgetState) -> Iterator[Sample]:
    labels = {"budget_key": state.budget.key, "budget_value": state.budget.value}
    yield Sample(table.BUDGET_LIMIT.name, state.budget.limit * _USD, labels)
    yield Sample(table.BUDGET_SPENT.name, state.spent * _USD, labels)
    yield Sample(table.BUDGET_UNKNOWN.name, state.without_price + state.without_usage, labels)
    if state.forecast is not None:
        yield Sample(table.BUDGET_FORECAST.name, state.forecast * _USD, labels)


def _audit(run: Run, result: Result, now_s: float) -> Iterator[Sample]:
    yield Sample(table.AUDIT_AGE.name, max(now_s - datetime.fromisoformat(run.saved_at).timestamp(), 0), {})
    yield Sample(table.AUDIT_AGREES.name, int(_agrees(run, result)), {})
    unexplained = result.unexplained
    if unexplained.tokens is not None:
        yield Sample(table.AUDIT_TOKENS.name, unexplained.tokens.total, {})
    if (usd := _unexplained_usd(result)) is not None:
        yield Sample(table.AUDIT_USD.name, float(usd), {})
    for provider, ratio in result.coverage.items():
        if ratio is not None:
            yield Sample(table.AUDIT_COVERAGE.name, float(ratio), {"provider": provider})


# --- upstreams -------------------------------------------------------------------------------------------------------


# The records that are looked at: they are read in some 10 ms.
NEWEST = 1_000


class _Upstream(msgspec.Struct):
    upstream: str | None


def start_known_upstreams(metrics: Metrics, ledger: Ledger) -> None:
    """Lets counters of the upstreams in the newest records begin at 0, so that a burst right after a restart shows as growth.

    Does nothing if the ledger cannot be read now: that is no reason not to start.
    """
    names: set[str | None] = set()
    with contextlib.suppress(LedgerUnavailableError):
        for record in ledger.query(NEWEST, newest_first=True):
            names.add(msgspec.json.decode(record, type=_Upstream).upstream)
    for name in sorted(name for name in names if name is not None):
        metrics.start_upstream(name)


# --- the last hour ---------------------------------------------------------------------------------------------------


HOUR_S = 3_600.0
# A stream that ended in the last hour may have begun before it: in two hours more nearly all of them (seconds).
BEGAN_S = 2 * HOUR_S
# The newest streams that are read: it takes about a second. Of more, the page says since when it has them.
MAX_STREAMS = 5_000

_DECODER = msgspec.json.Decoder(Record)


def load_last_hour(view: LiveView, ledger: Reader, cost_of: CostOf) -> None:
    """Gives the view the streams that ended in the last hour. Call it before the view is used. Raises nothing: if the ledger
    cannot be read, the page begins now, and says so.
    """
    try:
        now_s = time.time()
        chosen = Filter(since_us=int((now_s - HOUR_S - BEGAN_S) * 1e6))
        records = [_DECODER.decode(raw) for raw in ledger.query(MAX_STREAMS, chosen, newest_first=True)]
        ended = sorted(((_ended_s(record), record) for record in records), key=lambda pair: pair[0])
        since_s = now_s - HOUR_S
        if len(records) == MAX_STREAMS:  # older ones are missing, which may have ended as late as the oldest one began
            since_s = max(since_s, min(_began_s(record) for record in records))
        resumed_usage = ResumedUsage()
        view.load(
            [(record, _added(record, resumed_usage, cost_of), at_s) for at_s, record in ended if at_s >= since_s],
            since_s,
        )
    except Exception as error:  # noqa: BLE001 - the page is no reason to stop
        report_fault("the page's last hour", error)


def _added(record: Record, resumed_usage: ResumedUsage, cost_of: CostOf) -> StreamCost | None:
    """What a record adds to the cost of the records before it: a stream that is resumed, or read again, costs once."""
    addition = resumed_usage.share_of(record, "", reported_tokens(record.usage))
    return cost_of(record, addition.before, addition.after)


def _began_s(record: Record) -> float:
    assert record.started_at is not None  # the ledger was asked for a time
    return datetime.fromisoformat(record.started_at).timestamp()


def _ended_s(record: Record) -> float:
    return _began_s(record) + (record.timing.end_s or 0.0)
