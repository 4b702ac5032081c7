"""Invoices in Parquet: as clouds write them, with text alone or with values of their types."""

import io
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.invoices import InvoiceError
from streamgauge.errors import MissingExtra
from tests.audit.invoices.reading import read, refusal
from tests.audit.invoices.samples import BY_NAME, SAMPLES, Rows, Sample
from tests.each import each

TABLES = [sample for sample in SAMPLES if not sample.is_json]
GOOGLE = BY_NAME["Google Cloud billing export (JSON)"]


def parquet(rows: Rows | Sequence[Any], schema: Any = None) -> bytes:
    content = io.BytesIO()
    table = pyarrow.Table.from_pylist([dict(row) for row in rows], schema=schema)
    pyarrow.parquet.write_table(table, content, row_group_size=2)
    return content.getvalue()


def texts(rows: Rows) -> list[dict[str, Any]]:
    return [{name: str(value) for name, value in row.items()} for row in rows]


@each(TABLES, lambda sample: sample.name)
def test_a_table_gives_the_lines_of_its_csv(sample: Sample) -> None:
    lines, wanted = read(parquet(texts(sample.rows))), read(sample.text())
    assert [line._replace(digest=b"") for line in lines] == [line._replace(digest=b"") for line in wanted]


def test_nested_rows_give_the_lines_of_their_json() -> None:
    lines, wanted = read(parquet(GOOGLE.rows)), read(GOOGLE.text())
    assert [line._replace(digest=b"") for line in lines] == [line._replace(digest=b"") for line in wanted]


def test_values_keep_what_their_types_say() -> None:
    row = {
        **BY_NAME["FOCUS"].rows[0],
        "BilledCost": 0.1,
        "EffectiveCost": Decimal("2.10"),
        "ConsumedQuantity": 8_000_000.0,
        "ChargePeriodStart": datetime(2026, 3, 1),  # as clouds write them
        "ChargePeriodEnd": datetime(2026, 3, 2, tzinfo=UTC),
        "ChargeClass": None,
    }
    (line,) = read(parquet([row]))
    assert (line.usd, line.tokens) == (Decimal("0.1"), Tokens(0, 8_000_000))
    (wanted,) = read(BY_NAME["FOCUS"].text())
    assert line.when == wanted.when


def test_dates_and_maps_are_read() -> None:
    azure = {**BY_NAME["Azure cost details"].rows[0], "Date": date(2026, 3, 1), "Quantity": 1.5}
    (line,) = read(parquet([azure]))
    assert line.when == "2026-03-01"
    sample = BY_NAME["AWS Cost and Usage Report"]
    row = {**sample.rows[1], "product": [("product_name", "Claude Sonnet 4.5 (Amazon Bedrock Edition)")]}
    kinds = [(name, pyarrow.string()) for name in row if name != "product"]
    schema = pyarrow.schema([*kinds, ("product", pyarrow.map_(pyarrow.string(), pyarrow.string()))])
    (line,) = read(parquet([row], schema))
    assert (line.model, line.tokens) == ("Claude Sonnet 4.5", Tokens(output=1_500))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_refused(value: float) -> None:
    row = {**BY_NAME["FOCUS"].rows[0], "BilledCost": value}
    assert "line 1, field BilledCost: " in refusal(parquet([row]))


def test_the_row_of_an_error_is_named() -> None:
    rows = texts(BY_NAME["FOCUS"].rows) * 5
    rows[3] = {**rows[3], "BilledCost": "many"}
    assert refusal(parquet(rows)).startswith("line 4, field BilledCost: 'many'")


def test_an_unknown_table_is_refused() -> None:
    assert refusal(parquet([{"a": 1, "b": 2}])).startswith(
        "line 1: no known export has these columns or keys: 'a', 'b'"
    )
    assert "there is nothing to compare" in refusal(
        parquet([], pyarrow.schema([(name, pyarrow.string()) for name in BY_NAME["FOCUS"].rows[0]]))
    )


def test_without_pyarrow_it_says_what_to_install() -> None:
    missing = mock.patch.dict("sys.modules", {"pyarrow": None, "pyarrow.parquet": None})
    with missing, pytest.raises(MissingExtra, match=r"an invoice in Parquet requires the extra `parquet`: run pip"):
        read(parquet_of_focus)


parquet_of_focus = parquet(texts(BY_NAME["FOCUS"].rows))


@given(place=st.integers(0, 20_000), cut=st.integers(0, 30), put=st.binary(max_size=8))
def test_any_damage_is_read_or_refused(place: int, cut: int, put: bytes) -> None:
    start = place % len(parquet_of_focus)
    try:
        read(parquet_of_focus[:start] + put + parquet_of_focus[start + cut :])
    except InvoiceError as error:
        assert str(error)
