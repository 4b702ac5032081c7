"""Usage of a stream that was resumed counts once."""

from decimal import Decimal
from pathlib import Path

from streamgauge.audit.amounts import ZERO, ZERO_USD, Tokens
from streamgauge.audit.invoices import open_invoices
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.ours import Ours
from streamgauge.audit.period import Period
from streamgauge.audit.reconcile import reconcile
from streamgauge.audit.resumed import corrections_of
from streamgauge.audit.theirs import Theirs
from streamgauge.core.record import Usage
from streamgauge.ledger import Cost, LedgerRow, SqliteLedger
from tests.audit.invoices.samples import BY_NAME
from tests.ledger.rows import make_row, stream_id
from tests.metrics.records import make_usage

# The tier that the sample has.
PRIORITY = {"service_tier": "priority"}
PERIOD = Period.of("2026-03-01", "2026-03-02", "UTC")


def ours_of(folder: Path, rows: list[LedgerRow]) -> tuple[Tokens, int]:
    invoice = folder / "usage.json"
    invoice.write_text(BY_NAME["OpenAI usage (API)"].text())
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        ledger.insert(rows)
        ours = Ours(ledger, PERIOD, Mapping({"nimbus": "openai"}))
        theirs = Theirs(open_invoices([invoice], {}), PERIOD, Mapping())
        (cell,) = reconcile(ours, theirs, PERIOD, ZERO_USD).cells
        return cell.ours.tokens, cell.ours.streams


def test_the_last_final_usage_counts(tmp_path: Path) -> None:
    rows = [
        make_row(
            1,
            service_tier="priority",
            response_id="r1",
            outcome="upstream_reset",
            usage=make_usage(100, 5, source="partial"),
        ),
        make_row(2, **PRIORITY, response_id="r1", resumed_from="17", usage=make_usage(100, 50)),
        make_row(3, **PRIORITY, response_id="r3", usage=make_usage(7, 2)),
    ]
    assert ours_of(tmp_path, rows) == (Tokens(107, 0, 0, 52), 3)


def test_numbers_of_several_records_are_joined(tmp_path: Path) -> None:
    rows = [
        make_row(
            1, **PRIORITY, response_id="r1", outcome="client_abort", usage=make_usage(100, None, source="partial")
        ),
        make_row(2, **PRIORITY, response_id="r1", resumed_from="17", usage=make_usage(None, 50)),
    ]
    assert ours_of(tmp_path, rows) == (Tokens(100, 0, 0, 50), 2)


def test_a_resumed_stream_without_its_origin_counts_by_itself(tmp_path: Path) -> None:
    assert ours_of(tmp_path, [make_row(2, **PRIORITY, response_id="r1", resumed_from="17", usage=make_usage(100, 50))]) == (
        Tokens(100, 0, 0, 50), 1
    )  # fmt: skip


def cost_of(folder: Path, usages: list[Usage], costs: list[str]) -> str | None:
    """What an origin and the stream that resumes it cost together."""
    names = [{"outcome": "client_abort"}, {"resumed_from": "17"}]
    rows = [make_row(n, response_id="r1", usage=usage, **names[n]) for n, usage in enumerate(usages)]
    with SqliteLedger(folder / "ledger.sqlite", prices=_Costs(costs)) as ledger:
        ledger.insert(rows)
        ours = Ours(ledger, PERIOD, Mapping())
        linked = ledger.linked_records(PERIOD.read_since_us, PERIOD.read_until_us)
        first, second = corrections_of(found for text in linked if (found := ours.decoded(text)) is not None).values()
        (total,) = ledger.totals(["upstream"])
        assert (first.tokens.input, first.tokens.output) == (total.input_tokens, total.output_tokens)
        assert (second.tokens, second.usd, second.has_usage) == (ZERO, ZERO_USD, False)
        assert first.usd is None or str(first.usd) == total.cost_usd
        return None if first.usd is None else str(first.usd)


class _Costs:
    """Each record costs what is given for it, input and output half each if it reports both."""

    def __init__(self, costs: list[str]) -> None:
        self._costs = {stream_id(number): int(Decimal(cost).scaleb(12)) for number, cost in enumerate(costs)}

    def cost_of(self, row: LedgerRow) -> Cost:
        cost = self._costs[row.stream_id]
        if row.output_tokens is None:
            return Cost(cost, None, "test", None)
        return Cost(None, cost, "test", None) if row.input_tokens is None else Cost(cost // 2, cost // 2, "test", None)


def test_the_cost_is_the_one_that_the_ledger_counts_where_the_records_tell_it(tmp_path: Path) -> None:
    partial, both = make_usage(100, None, source="partial"), make_usage(100, 50)
    (tmp_path / "sides").mkdir()
    assert cost_of(tmp_path / "sides", [partial, make_usage(None, 50)], ["0.25", "0.5"]) == "0.75"
    (tmp_path / "one").mkdir()
    assert cost_of(tmp_path / "one", [partial, both], ["0.25", "0.5"]) == "0.5"
    (tmp_path / "part").mkdir()
    assert cost_of(tmp_path / "part", [both, make_usage(None, 60)], ["0.5", "0.25"]) is None
