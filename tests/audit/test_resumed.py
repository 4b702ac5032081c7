"""Usage of a stream that was resumed counts once."""

from pathlib import Path

from streamgauge.audit.amounts import ZERO_USD, Tokens
from streamgauge.audit.invoices import open_invoice
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.ours import Ours
from streamgauge.audit.period import Period
from streamgauge.audit.reconcile import reconcile
from streamgauge.audit.theirs import Theirs
from streamgauge.ledger import LedgerRow, SqliteLedger
from tests.audit.invoices.samples import BY_NAME
from tests.ledger.rows import make_row
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
        theirs = Theirs([open_invoice(invoice, {})], PERIOD, Mapping())
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
