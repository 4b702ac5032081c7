"""What invoices bill, by day: rows of several days, and money in other currencies."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.invoices import FORMATS, InvoiceFile, InvoiceLine, open_invoices
from streamgauge.audit.invoices.sources import Source
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.ours import GroupKey
from streamgauge.audit.period import Period
from streamgauge.audit.rates_file import NO_RATES, DatedRate, Rates
from streamgauge.audit.theirs import Theirs
from tests.audit.invoices.samples import BY_NAME, page, table
from tests.audit.test_gateway_logs import LITELLM
from tests.running import here

PERIOD = Period.of("2026-11-01", "2026-12-01", "UTC")
SAMPLE = BY_NAME["FOCUS"].rows[0]


def row(first: str, end: str, **changes: Any) -> dict[str, Any]:
    span = {"ChargePeriodStart": f"{first}T00:00:00Z", "ChargePeriodEnd": f"{end}T00:00:00Z"}
    return {**SAMPLE, **span, **changes}


def theirs_of(folder: Path, rows: list[dict[str, Any]]) -> Theirs:
    (folder / "bill.csv").write_text(table(rows))
    theirs = Theirs(open_invoices([folder / "bill.csv"], {}), PERIOD, Mapping())
    theirs.read()
    return theirs


def has_days(folder: Path, rows: list[dict[str, Any]]) -> bool:
    (shape,) = theirs_of(folder, rows).shapes.values()
    return shape.has_days


def test_only_usage_of_several_days_in_the_period_takes_the_days_away(tmp_path: Path) -> None:
    day = row("2026-11-03", "2026-11-04")
    assert has_days(tmp_path, [day])
    assert not has_days(tmp_path, [day, row("2026-11-01", "2026-12-01")])
    assert has_days(tmp_path, [day, row("2026-09-01", "2026-10-01")])
    assert has_days(tmp_path, [day, row("2026-10-30", "2026-11-01")])
    assert has_days(tmp_path, [day, row("2026-11-01", "2026-12-01", ChargeCategory="Tax")])


def test_keys_of_which_none_is_a_tenants_are_not_compared(tmp_path: Path) -> None:
    """A cloud's account numbers beside tenants of another provider: each stream would lack, and each row be too much."""
    rows = [row("2026-11-03", "2026-11-04", SubAccountId="1234"), row("2026-11-04", "2026-11-05", SubAccountId="5678")]
    for tenants, has_keys in (({}, False), ({"proj_r": "river"}, False), ({"proj_r": "river", "5678": "delta"}, True)):
        (tmp_path / "bill.csv").write_text(table(rows))
        theirs = Theirs(open_invoices([tmp_path / "bill.csv"], {}), PERIOD, Mapping(tenants=tenants))
        theirs.read()
        assert [shape.has_keys for shape in theirs.shapes.values()] == [has_keys]


def test_usage_of_several_days_outside_of_the_period_is_not_read(tmp_path: Path) -> None:
    theirs = theirs_of(tmp_path, [row("2026-11-03", "2026-11-04"), row("2026-10-30", "2026-11-01")])
    assert [group.day for group in theirs.cells] == ["2026-11-03"]


def usage_of(endpoint: str, model: str) -> str:
    """An export of OpenAI's usage of an endpoint: 1,500 tokens of input of a model on 2026-11-03."""
    output = {"output_tokens": 180} if endpoint == "completions" else {}
    usage = {"object": f"organization.usage.{endpoint}.result", "model": model, "input_tokens": 1_500, **output}
    return page([usage | {"num_model_requests": 1}], start_time=1793664000, end_time=1793750400)


@pytest.mark.parametrize(
    ("files", "model", "is_compared"),
    [
        ((("embeddings", "text-embedding-3-small"),), "gpt-4o-mini", False),
        ((("embeddings", "text-embedding-3-small"),), "text-embedding-3-large", True),
        ((("embeddings", "ours"),), "ours", True),  # billed by this export, whatever its name is
        ((("completions", "o3"),), "text-embedding-3-small", False),
        ((("completions", "o3"),), "gpt-4o-mini", True),
        ((("completions", "o3"), ("embeddings", "text-embedding-3-small")), "gpt-4o-mini", True),
        ((("completions", "o3"), ("embeddings", "text-embedding-3-small")), "omni-moderation-latest", False),
    ],
)
def test_an_export_of_one_endpoint_does_not_say_what_others_used(
    tmp_path: Path, files: tuple[tuple[str, str], ...], model: str, is_compared: bool
) -> None:
    for number, names in enumerate(files):
        (tmp_path / f"{number}.json").write_text(usage_of(*names))
    theirs = Theirs(open_invoices(sorted(tmp_path.glob("*.json")), {}), PERIOD, Mapping())
    theirs.read()
    group = GroupKey("2026-11-03", "openai", model, None, None)
    assert theirs.shape_of(group).has_tokens is is_compared


def test_streams_are_not_missing_from_an_export_of_embeddings(tmp_path: Path) -> None:
    """The ledger has a stream of gpt-4o-mini and an embedding, the invoice is the export of embeddings alone."""
    embedding = {**LITELLM, "request_id": "emb-1", "model": "text-embedding-3-small", "completion_tokens": 0}
    embedding |= {
        "model_group": "text-embedding-3-small",
        "prompt_tokens": 1_500,
        "total_tokens": 1_500,
        "metadata": {},
    }
    (tmp_path / "log.json").write_text(json.dumps([LITELLM, embedding]))
    (tmp_path / "usage.json").write_text(usage_of("embeddings", "text-embedding-3-small"))
    folder = ("--data-dir", str(tmp_path))
    assert here("ledger", "import", str(tmp_path / "log.json"), "--format", "litellm", *folder).returncode == 0
    days = ("--from", "2026-11-03", "--to", "2026-11-04")
    done = here("audit", "--invoice", str(tmp_path / "usage.json"), *days, "--output", "json", *folder)
    result = json.loads(done.stdout)
    assert (done.returncode, result["causes"], result["verdicts"]["tokens"]["verdict"]) == (0, [], "agrees")
    assert (
        "No export of openai has the usage of completions: tokens of gpt-4o-mini-2024-07-18 are not compared."
        in (result["notes"])
    )


class File(InvoiceFile):
    """A file with these rows."""

    def __init__(self, rows: list[InvoiceLine]) -> None:
        super().__init__(Source(Path("bill.json")), (), {})
        self.format = next(known for known in FORMATS if known.name == "FOCUS")
        self._given = rows

    def lines(self) -> Iterator[InvoiceLine]:
        yield from self._given


def billed(day: str, usd: str, currency: str, provider: str = "azure") -> InvoiceLine:
    digest = f"{day}{usd}{currency}{provider}".encode()
    return InvoiceLine(
        provider, day, "gpt-5", tokens=Tokens(5), usd=Decimal(usd), currency=currency, digest=digest,
        half_digit=Decimal("0.005"),
    )  # fmt: skip


EUROS = Rates({"EUR": [DatedRate("2026-11-02", "2026-11-02", Decimal("1.2"))]}, valid_days=1)


def read(rates: Rates, *rows: InvoiceLine) -> Theirs:
    theirs = Theirs([File(list(rows))], PERIOD, Mapping(), rates)
    theirs.read()
    return theirs


def test_money_is_compared_in_dollars_by_the_rate_of_its_day() -> None:
    theirs = read(EUROS, billed("2026-11-02", "10", "EUR"), billed("2026-11-03", "10", "USD"))
    assert [cell.usd for cell in theirs.cells.values()] == [12, 10]
    assert [cell.slack for cell in theirs.cells.values()] == [Decimal("0.006"), Decimal("0.005")]
    assert theirs.shapes["azure"].has_money and not theirs.without_rate


def test_without_a_rate_the_money_of_the_provider_is_unknown_and_its_tokens_are_not() -> None:
    rows = [billed("2026-11-03", "10", "EUR"), billed("2026-11-04", "10", "EUR"), billed("2026-11-04", "10", "CNY")]
    theirs = read(EUROS, *rows, billed("2026-11-04", "10", "USD", "openai"))
    assert theirs.without_rate == {"EUR": 1, "CNY": 1}
    assert [note.partition(":")[0] for note in theirs.unconverted] == [
        "1 row with money in CNY, for whose day there is no rate",
        "1 row with money in EUR, for whose day there is no rate",
    ]
    assert {provider: shape.has_money for provider, shape in theirs.shapes.items()} == {"azure": False, "openai": True}
    assert sum(cell.tokens.total for cell in theirs.cells.values()) == 20


def test_a_rate_is_not_asked_for_outside_of_the_period() -> None:
    theirs = read(NO_RATES, billed("2026-10-31", "10", "EUR"), billed("2026-11-04", "10", "USD"))
    assert theirs.shapes["azure"].has_money and not theirs.without_rate
