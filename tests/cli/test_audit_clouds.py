"""`streamgauge audit` with the bill of a cloud, beside what a gateway has logged: from the files to the result."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.audit.invoices.samples import BY_NAME, table
from tests.audit.test_gateway_logs import LITELLM
from tests.running import here

AZURE = BY_NAME["Azure cost details"].rows[0]
FOCUS = BY_NAME["FOCUS"].rows[0]
# What the gateway has logged: 500 uncached and 1,000 cached tokens of input, 180 of output.
CALL = {
    **LITELLM, "custom_llm_provider": "azure", "api_base": "https://river.openai.azure.com",
    "startTime": "2026-03-01T09:00:00Z", "completionStartTime": None, "endTime": "2026-03-01T09:00:01Z",
}  # fmt: skip


def azure(meter: str, quantity: str, cost: str, **changes: str) -> dict[str, Any]:
    return {**AZURE, "MeterName": meter, "Quantity": quantity, "CostInBillingCurrency": cost, **changes}


BILL = [
    azure("gpt 4o mini 0718 Inp glbl Tokens", "0.5", "0.0001"),
    azure("gpt 4o mini 0718 cached Inp glbl Tokens", "1", "0.0001"),
    azure("gpt 4o mini 0718 Outp glbl Tokens", "0.18", "0.000133"),
    azure("D4s v5", "24", "4.608", MeterCategory="Virtual Machines", MeterSubCategory="Dsv5", UnitOfMeasure="1 Hour"),
]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    (tmp_path / "log.json").write_text(json.dumps([CALL]))
    done = here("ledger", "import", str(tmp_path / "log.json"), "--format", "litellm", "--data-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    return tmp_path


def audit(folder: Path, content: str | bytes, *options: str) -> tuple[int, dict[str, Any]]:
    (folder / "bill").write_bytes(content.encode() if isinstance(content, str) else content)
    done = here(
        "audit", "--invoice", str(folder / "bill"), "--from", "2026-03-01", "--to", "2026-03-02", "--output", "json",
        "--data-dir", str(folder), *options,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


def test_the_bill_of_a_cloud_agrees_with_what_the_gateway_logged(ledger: Path) -> None:
    code, result = audit(ledger, gzip.compress(table(BILL).encode()))
    assert (code, result["verdicts"]["tokens"]["verdict"], result["verdicts"]["money"]["verdict"]) == (
        0,
        "agrees",
        "agrees",
    )
    (line,) = result["lines"]
    assert (line["provider"], line["theirs"]["tokens"]["total"], line["theirs"]["usd"]) == (
        "microsoft",
        1_680,
        "0.000333",
    )
    left_out, logged = result["notes"]
    assert "bill: 1 row of Virtual Machines (4.608 USD) left out: it serves no models" in left_out
    assert "what a gateway has logged" in logged


def test_a_unit_that_is_not_known_stops_the_audit(ledger: Path) -> None:
    bill = [*BILL[:2], {**BILL[2], "UnitOfMeasure": "Blocks"}]
    (ledger / "bill").write_text(table(bill))
    done = here(
        "audit",
        "--invoice",
        str(ledger / "bill"),
        "--from",
        "2026-03-01",
        "--to",
        "2026-03-02",
        "--data-dir",
        str(ledger),
    )
    assert done.returncode == 2
    assert "line 4, field UnitOfMeasure: 'Blocks' may count tokens, and is no unit that is known" in done.stderr
    (ledger / "map.toml").write_text(
        '[meters]\n"gpt 4o mini 0718 Outp glbl Tokens" = {model = "gpt-4o-mini", kind = "output", multiple = 1000}\n'
    )
    code, _ = audit(ledger, table(bill), "--map", str(ledger / "map.toml"))
    assert code == 0


@pytest.mark.parametrize(("options", "usd"), [((), "2.4"), (("--cost", "effective"), "2.1")])
def test_the_cost_of_focus_is_chosen(ledger: Path, options: tuple[str, ...], usd: str) -> None:
    _, result = audit(
        ledger, table([{**FOCUS, "ServiceProviderName": "Microsoft", "ServiceName": "Azure OpenAI"}]), *options
    )
    assert [line["theirs"]["usd"] for line in result["lines"] if line["model"] == "solora-pro"] == [usd]
    assert result["provenance"]["options"]["--cost"] == (options[-1] if options else "billed")


def test_the_ids_of_bedrock_are_the_names_of_its_bill(tmp_path: Path) -> None:
    """Without a map: the streams have the id of an inference profile, the rows the name of a product."""
    call = {**CALL, "custom_llm_provider": "bedrock", "model": "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0"}
    (tmp_path / "log.json").write_text(json.dumps([{**call, "model_group": call["model"]}]))
    done = here("ledger", "import", str(tmp_path / "log.json"), "--format", "litellm", "--data-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    sample = BY_NAME["AWS Cost and Usage Report"].rows[1]
    rows = [
        {
            **sample,
            "line_item_usage_type": f"USE1-MP:USE1_{kind}TokenCount-Units",
            "line_item_usage_amount": str(count / 10**6),
        }
        for kind, count in (("Input", 500), ("CacheReadInput", 1_000), ("Output", 180))
    ]
    _, result = audit(tmp_path, table(rows))
    (line,) = result["lines"]
    assert (line["provider"], line["model"], line["difference"]["tokens"]["total"]) == ("aws", "Claude Sonnet 4.5", 0)
