"""A run that is made again: whether its bytes are the same, and a sentence for each thing that differs."""

import msgspec
import pytest

from streamgauge.audit.result import Result, encode
from streamgauge.audit.runs import FileUsed, Inputs, Run
from streamgauge.audit.verification import differences, with_kept_names
from tests.audit.sample_lines import company_result

INPUTS = Inputs(
    "0.1.0",
    [FileUsed("bills/usage.json", "aa"), FileUsed("bills/costs.json", "bb")],
    {"map": FileUsed("map.toml", "cc")},
    {},
)


def run_of(result: Result) -> Run:
    return Run("2026-12-01T00:00:00Z", "2026-11-01", "2026-12-01", "UTC", False, False, "dd", ["aa", "bb"],
               msgspec.Raw(encode(result)), inputs=INPUTS)  # fmt: skip


def said(again: Result, inputs: Inputs = INPUTS, ledger: str = "dd") -> list[str]:
    kept = company_result()
    return differences(run_of(kept), kept, again, inputs, ledger)


def test_the_same_bytes_are_the_same_whatever_the_files_are_called() -> None:
    again = company_result()
    assert again.provenance is not None
    one, other = again.provenance.invoices
    one.name, other.name = other.name, f"moved-{one.name}"
    again.notes = [note.replace("costs.json", other.name) for note in again.notes]
    again.provenance.invoices.reverse()
    assert said(again) != []
    assert said(with_kept_names(again, company_result())) == []


@pytest.mark.parametrize(
    ("inputs", "ledger", "sentence"),
    [
        (INPUTS, "ee", "The ledger's records of the period are not the same"),
        (msgspec.structs.replace(INPUTS, version="0.2.0"), "dd", "The version of Streamgauge is 0.2.0, and was 0.1.0."),
        (
            msgspec.structs.replace(INPUTS, invoices=[FileUsed("usage.json", "aa"), FileUsed("new.json", "ff")]),
            "dd",
            "No invoice has the bytes of bills/costs.json (SHA-256 bb).",
        ),
        (
            msgspec.structs.replace(INPUTS, files={"map": FileUsed("map.toml", "ff")}),
            "dd",
            "The file of --map is not the same: its SHA-256 is ff, and was cc.",
        ),
        (msgspec.structs.replace(INPUTS, files={}), "dd", "--map was given, and is not given now."),
        (
            msgspec.structs.replace(INPUTS, files={**INPUTS.files, "scope": FileUsed("s", "1")}),
            "dd",
            "--scope was not given, and is given now.",
        ),
    ],
)
def test_what_differs_is_named(inputs: Inputs, ledger: str, sentence: str) -> None:
    again = company_result()
    again.lines[0].ours.usd = "1"
    again.notes = []
    found = said(again, inputs, ledger)
    assert found[0].startswith(sentence)
    assert "The result differs in: lines, notes." in found
    assert found[-1].endswith("93 kept, 93 now, 1 of them not as they were.")


def test_another_list_of_prices_is_named() -> None:
    again = company_result()
    assert again.provenance is not None
    again.provenance.price_list = "genai-prices 0.0.48"
    assert said(again) == ["The list of prices is genai-prices 0.0.48, and was genai-prices 0.0.47."]


def test_an_invoice_that_was_not_there_is_named() -> None:
    again = company_result()
    again.notes = []
    inputs = msgspec.structs.replace(INPUTS, invoices=[*INPUTS.invoices, FileUsed("more.json", "99")])
    assert said(again, inputs)[0] == "The invoice more.json has other bytes than each invoice of the run (SHA-256 99)."
