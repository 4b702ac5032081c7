"""Every format: what it gives, and that it refuses what is not whole, or not sure."""

import json
import os
import re
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.invoices import FORMATS, InvoiceError, InvoiceFile, Meter, open_invoices
from streamgauge.audit.invoices.contract import BadFieldError
from streamgauge.audit.invoices.values import moment_us
from tests.audit.invoices.reading import read, refusal
from tests.audit.invoices.samples import BY_NAME, DAY_S, SAMPLES, Sample, page, table
from tests.each import each

JSON_SAMPLES = [sample for sample in SAMPLES if sample.is_json]
CSV_SAMPLES = [sample for sample in SAMPLES if not sample.is_json]


def name_of(sample: Sample) -> str:
    return sample.name


of_each, of_json, of_csv = (each(samples, name_of) for samples in (SAMPLES, JSON_SAMPLES, CSV_SAMPLES))


def opened(path: Path) -> InvoiceFile:
    (file,) = open_invoices([path], {})
    return file


def first_with(sample: Sample, **changes: Any) -> str:
    """The sample with other values in its first row."""
    return sample.text([{**sample.rows[0], **changes}, *sample.rows[1:]])


def test_every_format_has_a_sample() -> None:
    assert {one.name for one in FORMATS if one.refusal is None} == set(BY_NAME)


@of_each
def test_it_gives_the_lines_of_the_export(sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / "a name that tells nothing"
    path.write_text(sample.text())
    file = opened(path)
    lines = list(file.lines())
    assert tuple((one.model, one.tokens, one.usd, one.tier) for one in lines) == sample.gives
    assert file.format is not None
    assert file.format.name == sample.name
    assert 0 < file.rows <= len(lines)
    assert list(file.lines()) == lines  # it can be read again


@of_each
def test_a_byte_order_mark_is_read(sample: Sample) -> None:
    assert read("\ufeff" + sample.text()) == read(sample.text())


@of_csv
def test_columns_are_read_by_name_in_any_order(sample: Sample) -> None:
    turned = [dict(reversed(list(row.items()))) for row in sample.rows]
    assert read(table(turned)) == read(sample.text())
    assert read(table(turned, "\t")) == read(sample.text())


@of_json
def test_keys_are_read_by_name_in_any_order(sample: Sample) -> None:
    text = json.dumps(json.loads(sample.text()), sort_keys=True, indent=1)
    assert read(text) == read(sample.text())


# --- what is refused ------------------------------------------------------------------------------------------------


@each(product(SAMPLES, ["utf-16", "utf-16-le", "utf-32"]))
def test_another_encoding_is_refused(case: tuple[Sample, str]) -> None:
    sample, coding = case
    assert "the text is not UTF-8" in refusal(sample.text().encode(coding))


@of_each
def test_bytes_that_are_not_utf8_are_refused_with_their_line(sample: Sample) -> None:
    assert (
        refusal(b"\n\n" + sample.text().encode()[:9] + b"\xff") == "line 3: the text is not UTF-8: export it as UTF-8"
    )


@pytest.mark.parametrize("text", ["", "\ufeff", "\n \n"])
def test_an_empty_file_is_refused(text: str) -> None:
    assert refusal(text) == "the file is empty"


@of_each
def test_a_file_without_rows_is_refused(sample: Sample) -> None:
    text = sample.text([]) if sample.is_json else sample.text().splitlines()[0] + "\n"
    assert "no row with content" in refusal(text)


@each(product(JSON_SAMPLES, [{"has_more": True}, {"next_page": "page_2"}]))
def test_a_page_that_is_not_the_last_is_refused(case: tuple[Sample, dict[str, Any]]) -> None:
    sample, more = case
    text = page(sample.rows, is_flat=sample.is_flat, more=more, **sample.times)
    assert refusal(text).startswith("line 1, field has_more: the page is not the last one")


@pytest.mark.slow
@of_json
def test_broken_json_is_refused_wherever_it_ends(sample: Sample) -> None:
    text = sample.text()
    for end in range(1, len(text)):
        refusal(text[:end])
    assert refusal(text + "x") == "line 1: text follows the end of the document"


@each(product(JSON_SAMPLES, ["NaN", "Infinity", "-Infinity"]))
def test_a_number_that_is_none_is_refused_with_its_field(case: tuple[Sample, str]) -> None:
    sample, word = case
    field = _MONEY.get(sample.name) or _COUNTS.get(sample.name) or "amount"
    value = -17 if field != "amount" or "Anthropic" in sample.name else {"value": -17, "currency": "usd"}
    said = refusal(first_with(sample, **{field: value}).replace("-17", word, 1))
    assert f"].{field}" in said.partition(": ")[0]
    assert f"'{word}' is not " in said


@of_json
def test_a_key_that_occurs_twice_is_refused(sample: Sample) -> None:
    name = next(iter(sample.rows[0]))
    text = sample.text().replace(f'"{name}"', f'"{name}": 1, "{name}"', 1)
    assert "twice" in refusal(text)


@of_csv
def test_a_row_with_too_few_or_many_cells_is_refused(sample: Sample) -> None:
    columns = len(sample.rows[0])
    assert refusal(sample.text() + "1,2\n").startswith(
        f"line {len(sample.rows) + 2}: the row has 2 cells, the header {columns}"
    )


@of_csv
def test_a_quote_that_does_not_end_is_refused(sample: Sample) -> None:
    assert "not well-formed CSV" in refusal(sample.text() + '"')


@of_csv
def test_a_column_that_occurs_twice_is_refused(sample: Sample) -> None:
    head, *lines = sample.text().split("\r\n")
    name = head.split(",")[0]
    text = "\n".join([f"{head},{name}", *(f"{line},1" for line in lines if line)])
    assert refusal(text) == f"line 1: the header has the column {name!r} twice"


@of_csv
def test_the_line_of_an_error_counts_empty_lines(sample: Sample) -> None:
    assert refusal("\n \n" + sample.text() + "\n1,2\n").startswith(f"line {len(sample.rows) + 5}: the row has 2 cells")


# What makes each format's rows wrong: changed values, the field that is named, and words of what is said of it.
_COUNTS = {
    "OpenAI usage (API)": "output_tokens",
    "OpenAI usage (dashboard)": "output_tokens",
    "Anthropic usage report (API)": "output_tokens",
    "Anthropic tokens (Console)": "usage_output_tokens",
    "OpenRouter activity (a row a request)": "tokens_completion",
    "OpenRouter activity (grouped)": "Completion Tokens",
    "OpenRouter activity (API)": "completion_tokens",
    "FOCUS": "ConsumedQuantity",
    "OpenAI activity (dashboard)": "n_generated_tokens_total",
    "OpenRouter generations (API)": "native_tokens_completion",
    "DeepSeek amounts": "amount",
    "Fireworks billing metrics": "completion_tokens",
    "Groq activity": "n_generated_tokens_total",
}
_MONEY = {
    "OpenAI costs (dashboard)": "amount_value",
    "Anthropic cost report (API)": "amount",
    "Anthropic costs (Console)": "cost_usd",
    "OpenRouter activity (a row a request)": "cost_total",
    "OpenRouter activity (grouped)": "Usage",
    "OpenRouter activity (API)": "usage",
    "FOCUS": "BilledCost",
    "FOCUS (JSON)": "BilledCost",
    "OpenRouter generations (API)": "total_cost",
    "DeepSeek costs": "cost",
    "Groq activity": "cost",
    "Azure cost details": "CostInBillingCurrency",
    "AWS Cost and Usage Report": "line_item_unblended_cost",
    "Google Cloud billing export (JSON)": "cost",
    "Google Cloud billing export (CSV)": "cost",
}
_CURRENCY = {
    "OpenAI costs (dashboard)": "amount_currency",
    "Anthropic cost report (API)": "currency",
    "FOCUS": "BillingCurrency",
    "FOCUS (JSON)": "BillingCurrency",
    "DeepSeek costs": "currency",
    "Azure cost details": "BillingCurrencyCode",
    "AWS Cost and Usage Report": "line_item_currency_code",
    "Google Cloud billing export (JSON)": "currency",
    "Google Cloud billing export (CSV)": "currency",
}
_MODEL = {
    "OpenAI usage (API)": "model",
    "OpenAI usage (dashboard)": "model",
    "OpenAI costs (API)": "line_item",
    "OpenAI costs (dashboard)": "line_item",
    "Anthropic usage report (API)": "model",
    "Anthropic cost report (API)": "model",
    "Anthropic tokens (Console)": "model_version",
    "Anthropic costs (Console)": "model",
    "OpenRouter activity (a row a request)": "model_permaslug",
    "OpenRouter activity (grouped)": "Slug",
    "OpenAI activity (dashboard)": "model",
    "OpenRouter generations (API)": "model",
    "DeepSeek amounts": "model",
    "DeepSeek costs": "model",
    "Fireworks billing metrics": "base_model_name",
    "Groq activity": "model",
}


def says_of(sample: Sample, field: str, value: object) -> str:
    """What is said of a row with this value, without the place: which has to name line and field."""
    said = refusal(first_with(sample, **{field: value}))
    place = f"line 1, field data[0].results[0].{field}: " if sample.is_json else f"line 2, field {field}: "
    if sample.is_flat:
        place = f"line 1, field data[0].{field}: "
    assert said.startswith(place), said
    return said.removeprefix(place)


@each(product(_COUNTS, ["-1", "1.5", "1e3", "0x10", "NaN", "many", "\u0661", "1" * 30, "none", "1,23"]))
def test_a_wrong_count_is_refused(case: tuple[str, str]) -> None:
    name, value = case
    if (name, value) != ("FOCUS", "1e3"):  # its quantities are decimals
        assert says_of(BY_NAME[name], _COUNTS[name], value)


@each(product([name for name in _COUNTS if BY_NAME[name].is_json], [-1, 1.5, True, None, [1], {}, 10**40]))
def test_a_wrong_count_of_json_is_refused(case: tuple[str, object]) -> None:
    name, value = case
    assert says_of(BY_NAME[name], _COUNTS[name], value)


@each(product(_MONEY, ["", "NaN", "Infinity", "$1", "1,5", "1.5 USD", "0x1", "1" * 30, "0." + "1" * 30, "1e999"]))
def test_a_wrong_amount_is_refused(case: tuple[str, str]) -> None:
    name, value = case
    assert says_of(BY_NAME[name], _MONEY[name], value)


@each(product(_CURRENCY, ["", "cents", "E", "US$", "\u20ac"]))
def test_no_currency_or_none_that_is_known_is_refused(case: tuple[str, str]) -> None:
    name, value = case
    assert "currency" in says_of(BY_NAME[name], _CURRENCY[name], value)


@each(_CURRENCY)
def test_a1_a_row_keeps_its_currency(name: str) -> None:
    sample, export = BY_NAME[name], next(one for one in FORMATS if one.name == name)
    in_euros = {**sample.rows[0], _CURRENCY[name]: "eur"}
    lines = read(sample.text([in_euros]))
    assert [line.currency for line in lines] == ["EUR"] * len(lines)
    assert [line.usd for line in lines] == [line.usd for line in read(sample.text([sample.rows[0]]))]
    mixed = sample.text([sample.rows[0], in_euros])
    if export.one_currency:  # the rows of one organization
        assert "currency: the currency is EUR, and that of earlier rows USD" in refusal(mixed)
    else:
        assert [line.currency for line in read(mixed)] == ["USD"] * len(lines) + ["EUR"] * len(lines)


@pytest.mark.parametrize(
    "amount", [{"value": 1}, {"value": 1, "currency": None}, {"value": 1, "currency": 1}, {"currency": "usd"}, "1"]
)
def test_a_wrong_amount_of_openai_is_refused(amount: object) -> None:
    said = refusal(first_with(BY_NAME["OpenAI costs (API)"], amount=amount))
    assert said.startswith("line 1, field data[0].results[0].amount")


@each(_MODEL)
def test_an_export_that_is_not_grouped_by_model_is_refused(name: str) -> None:
    assert says_of(BY_NAME[name], _MODEL[name], None if BY_NAME[name].is_json else "")


@of_each
def test_a_missing_column_is_refused_or_not_needed(sample: Sample) -> None:
    """Each column in turn: what is read without it is what is read with it, but for what the column tells."""
    found = next(one for one in FORMATS if one.name == sample.name)
    for column in (found.signs | found.required) - {"object"}:
        rows = [{name: value for name, value in row.items() if found.spelled(name) != column} for row in sample.rows]
        said = refusal(sample.text(rows))
        assert column in said or "no known export" in said


@of_json
def test_rows_of_two_exports_in_one_page_are_refused(sample: Sample) -> None:
    other = next(one for one in SAMPLES if one.is_json and one is not sample)
    said = refusal(sample.text([*sample.rows, *other.rows]))
    assert "a row of" in said or "no known export" in said


def test_an_unknown_export_is_refused_and_the_known_ones_are_named() -> None:
    said = refusal("date,tokens\n2026-03-01,1\n")
    assert said.startswith(
        "line 1: no known export has these columns or keys: 'date', 'tokens'; known are exports of AWS, "
    )
    for name in ("Anthropic", "Google", "OpenAI", "OpenRouter"):
        assert len(re.findall(rf"\b{name}\b", said)) == 1, "each provider is named once"


def test_the_ledgers_own_records_are_refused_with_what_to_bring() -> None:
    record = {"schema_version": "1", "stream_id": "s", "outcome": "completed", "error": None}
    for text in (json.dumps(record) + "\n", json.dumps([record])):
        said = refusal(text)
        assert "records of a ledger" in said
        assert "streamgauge ledger import" in said
    assert "no known export" in refusal(json.dumps({"error": None, "x": 1})), "no error, so none is named"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvoiceError, match="cannot be read: No such file"):
        list(opened(tmp_path / "nothing").lines())


# --- units, and what is not guessed ---------------------------------------------------------------------------------


def test_the_api_of_anthropic_has_cents_and_its_console_dollars() -> None:
    (api,), (console,) = (
        read(BY_NAME["Anthropic cost report (API)"].text()),
        read(BY_NAME["Anthropic costs (Console)"].text()),
    )
    assert (api.usd, api.half_digit) == (Decimal("1.2378912"), Decimal(0))
    assert (console.usd, console.half_digit) == (Decimal("1234.56"), Decimal("0.005"))


@pytest.mark.parametrize(
    ("value", "usd"), [("0.10", "0.1"), (0.1, "0.1"), (1, "1"), ("-3.5", "-3.5"), (1e-7, "0.0000001")]
)
def test_amounts_of_openai_are_exact_as_number_and_as_string(value: object, usd: str) -> None:
    (line, _) = read(first_with(BY_NAME["OpenAI costs (API)"], amount={"value": value, "currency": "usd"}))
    assert line.usd == Decimal(usd)


def test_a_credit_belongs_to_no_model() -> None:
    (line, _) = read(
        first_with(BY_NAME["OpenAI costs (API)"], amount={"value": "-5", "currency": "usd"}, line_item=None)
    )
    assert (line.usd, line.model, line.charge) == (Decimal(-5), None, "credit")


@pytest.mark.parametrize(
    "change", [{"input_tokens": 999}, {"input_cached_tokens": 300}, {"input_cache_write_tokens": 0}]
)
def test_parts_of_input_that_do_not_add_up_are_refused(change: dict[str, int]) -> None:
    assert "is not the sum of its parts" in refusal(first_with(BY_NAME["OpenAI usage (API)"], **change))


def test_an_export_without_cache_writes_has_them_in_the_whole() -> None:
    sample = BY_NAME["OpenAI usage (API)"]
    row = {name: value for name, value in sample.rows[0].items() if name != "input_cache_write_tokens"}
    (line,) = read(sample.text([row]))
    assert line.tokens == Tokens(700, 200, 100, 50)
    del row["input_uncached_tokens"]
    (line,) = read(sample.text([row]))
    assert line.tokens == Tokens(800, 200, 0, 50)


def test_a_batch_is_a_tier() -> None:
    (line,) = read(first_with(BY_NAME["OpenAI usage (API)"], batch=True, service_tier=None))
    assert line.tier == "batch"


def test_rows_of_groups_that_overlap_are_refused() -> None:
    for name in ("Anthropic usage report (API)", "Anthropic cost report (API)"):
        assert "overlap" in refusal(first_with(BY_NAME[name], rbac_group_id="g1"))


def test_the_analytics_reports_have_requests_and_keys() -> None:
    (line,) = read(first_with(BY_NAME["Anthropic usage report (API)"], requests=7, total_tokens=1050))
    assert (line.requests, line.keys) == (7, ("apikey_1",))
    (cost,) = read(
        first_with(BY_NAME["Anthropic cost report (API)"], requests=None, list_amount="130", api_key_id="apikey_1")
    )
    assert (cost.requests, cost.keys) == (None, ("apikey_1",))


@pytest.mark.parametrize(
    ("details", "kind"),
    [
        ({"TokenDirection": "Output"}, "output"),
        ({"TokenDirection": "Input", "TokenCacheAction": "Read"}, "input_cached"),
        ({"TokenDirection": "Input", "TokenCacheAction": "Write"}, "input_cache_write"),
        ({"TokenDirection": "Input", "TokenCacheAction": "Uncached"}, "input_uncached"),
        ({"TokenDirection": "Input"}, "input_uncached"),
    ],
)
def test_focus_names_model_and_kind(details: dict[str, str], kind: str) -> None:
    (line,) = read(first_with(BY_NAME["FOCUS"], SkuPriceDetails=json.dumps({"ModelId": "solora-pro", **details})))
    assert line.tokens is not None
    assert (line.tokens._asdict()[kind], line.tokens.total) == (8_000_000, 8_000_000)
    assert line.splits == ("TokenCacheAction" in details or kind == "output")


@pytest.mark.parametrize("details", ["", "{}", "null", '{"ModelId": "x"}'])
def test_focus_without_model_or_kind_needs_the_map(details: str) -> None:
    said = refusal(first_with(BY_NAME["FOCUS"], SkuPriceDetails=details))
    assert said.startswith(
        "line 2, field SkuMeter: 'Cache Read Input Tokens' counts tokens: name its model and kind in"
    )


@pytest.mark.parametrize(
    "details", ['{"ModelId": "x", "TokenDirection": "Both"}', "[1]", "{",
                '{"ModelId": "x", "TokenDirection": "Input", "TokenCacheAction": "Some"}'],
)  # fmt: skip
def test_focus_with_details_that_say_nothing_known_is_refused(details: str) -> None:
    assert "field SkuPriceDetails" in refusal(first_with(BY_NAME["FOCUS"], SkuPriceDetails=details))


def test_the_map_names_the_meters_of_older_focus() -> None:
    meters = {"Cache Read Input Tokens": Meter("gpt-4.1", "input_cached")}
    text = first_with(BY_NAME["FOCUS"], SkuPriceDetails="", ConsumedUnit="1K Tokens", ConsumedQuantity="1.5")
    (line,) = read(text, meters)
    assert (line.model, line.tokens) == ("gpt-4.1", Tokens(input_cached=1_500))


@pytest.mark.parametrize(("unit", "quantity"), [("1K Tokens", "0.0005"), ("Tokens", "-3"), ("1000000 Tokens", "1e-7")])
def test_focus_with_a_part_of_a_token_is_refused(unit: str, quantity: str) -> None:
    assert "field ConsumedQuantity" in refusal(
        first_with(BY_NAME["FOCUS"], ConsumedUnit=unit, ConsumedQuantity=quantity)
    )


def test_a_correction_of_focus_may_be_negative() -> None:
    (line,) = read(first_with(BY_NAME["FOCUS"], ChargeClass="Correction", ConsumedQuantity="-1000", BilledCost="-0.3"))
    assert (line.tokens, line.usd) == (Tokens(input_cached=-1_000), Decimal("-0.3"))


# --- any values, any split ------------------------------------------------------------------------------------------


@given(parts=st.tuples(*[st.integers(0, 10**9)] * 4), cents=st.decimals(0, 10**9, allow_nan=False, places=7))
def test_any_counts_and_amounts_are_read_exactly(parts: tuple[int, int, int, int], cents: Decimal) -> None:
    uncached, cached, written, output = parts
    usage, cost = BY_NAME["Anthropic usage report (API)"], BY_NAME["Anthropic cost report (API)"]
    row = {
        "uncached_input_tokens": uncached,
        "cache_read_input_tokens": cached,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": output,
    }
    (line,) = read(first_with(usage, **row))
    assert line.tokens == Tokens(*parts)
    (money,) = read(first_with(cost, amount=f"{cents:f}"))
    assert money.usd is not None
    assert money.usd * 100 == cents


@given(data=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read(data)
    except InvoiceError as error:
        assert str(error)


@given(sample=st.sampled_from(SAMPLES), place=st.integers(0, 10_000), cut=st.integers(0, 30), put=st.binary(max_size=8))
def test_any_damage_is_read_or_refused(sample: Sample, place: int, cut: int, put: bytes) -> None:
    data = sample.text().encode()
    start = place % len(data)
    try:
        read(data[:start] + put + data[start + cut :])
    except InvoiceError as error:
        assert str(error)


def test_times_are_those_of_the_bucket() -> None:
    (line,) = read(BY_NAME["OpenAI usage (API)"].text())
    assert line.when == (DAY_S * 10**6, (DAY_S + 86_400) * 10**6)


@pytest.mark.parametrize(
    "times", [{"start_time": DAY_S}, {"start_time": DAY_S, "end_time": DAY_S}, {"start_time": "x", "end_time": 1}]
)
def test_a_bucket_without_its_times_is_refused(times: dict[str, Any]) -> None:
    assert "_time" in refusal(page(BY_NAME["OpenAI usage (API)"].rows, **times))


@pytest.mark.parametrize("given", ["59.000", "1.234.567", "59,000", "-59.000"])
def test_a_separator_of_thousands_or_of_a_fraction_is_refused_where_semicolons_are(given: str) -> None:
    sample, name = next(one for one in SAMPLES if not one.is_json and "output_tokens" in one.rows[0]), "output_tokens"
    said = refusal(table([{**sample.rows[0], name: given}], ";"))
    assert f"field {name}: " in said
    assert "may be thousands or a fraction in a file with semicolons" in said
    (line,) = read(table([{**sample.rows[0], name: "59200.0"}], ";"))
    assert line.tokens is not None
    assert line.tokens.output == 59_200
    assert read(table([{**sample.rows[0], name: "59.000"}], ","))


@pytest.mark.parametrize(("given", "is_clear"), [("1.234", False), ("0.125", True), ("1234.567", True), ("2.4", True)])
def test_money_with_an_unclear_dot_is_refused_where_semicolons_are(given: str, is_clear: bool) -> None:
    text = table([{**BY_NAME["FOCUS"].rows[0], "BilledCost": given}], ";")
    if is_clear:
        assert read(text)[0].usd == Decimal(given)
    else:
        assert "field BilledCost: '1.234' may be thousands or a fraction" in refusal(text)


def test_a_time_at_the_end_of_the_calendar_is_refused() -> None:
    for year in ("9999", "0001"):
        assert "is no possible time" in _time_refusal(f"{year}-12-31T23:59:59Z")


def _time_refusal(given: str) -> str:
    with pytest.raises(BadFieldError) as refused:
        moment_us({"at": given}, "at")
    return str(refused.value)


def test_a_pipe_is_refused_since_it_cannot_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(InvoiceError, match="no regular file: an audit reads an invoice more than once"):
        list(opened(path).lines())


def test_a_file_that_changes_between_two_readings_is_refused(tmp_path: Path) -> None:
    path, sample = tmp_path / "bill", SAMPLES[0]
    path.write_text(sample.text())
    file = opened(path)
    list(file.lines())
    path.write_text(sample.text() + "\n")
    with pytest.raises(InvoiceError, match="the file changed while the audit read it"):
        list(file.lines())
