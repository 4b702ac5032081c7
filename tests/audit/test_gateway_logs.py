"""Records of what gateways have logged: LiteLLM, Langfuse and Helicone."""

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.gateway_logs import LOGS, Unreadable, records_of
from streamgauge.audit.invoices import InvoiceError
from streamgauge.core.record import Record, encode_record
from streamgauge.ledger.row import row_of
from streamgauge.recorder.stream_id import derived_stream_id
from streamgauge.records import Record as PublicRecord
from tests.audit.invoices.samples import BY_NAME, page
from tests.running import here

LITELLM: dict[str, Any] = {
    "request_id": "chatcmpl-1",
    "call_type": "acompletion",
    "api_key": "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b",
    "spend": 0.000333,
    "total_tokens": 1680,
    "prompt_tokens": 1500,
    "completion_tokens": 180,
    "startTime": "2026-11-03T09:00:00.250Z",
    "endTime": "2026-11-03T09:00:01.500Z",
    "completionStartTime": "2026-11-03T09:00:00.500Z",
    "model": "gpt-4o-mini-2024-07-18",
    "model_group": "gpt-4o-mini",
    "custom_llm_provider": "openai",
    "api_base": "https://api.openai.com/v1",
    "cache_hit": "False",
    "status": "success",
    "metadata": {
        "additional_usage_values": {
            "prompt_tokens_details": {"cached_tokens": 1000},
            "completion_tokens_details": {"reasoning_tokens": 40},
        }
    },
    "team_id": "river",
}
LANGFUSE: dict[str, Any] = {
    "id": "obs-1",
    "traceId": "trace-1",
    "type": "GENERATION",
    "startTime": "2026-11-03T09:00:00.250Z",
    "endTime": "2026-11-03T09:00:01.500Z",
    "completionStartTime": "2026-11-03T09:00:00.500Z",
    "model": "gpt-4o-mini",
    "level": "DEFAULT",
    "unit": "TOKENS",
    "usageDetails": {
        "input": 500, "input_cached_tokens": 1000, "output": 140, "output_reasoning_tokens": 40, "total": 1680,
    },
}  # fmt: skip
HELICONE: dict[str, Any] = {
    "request_id": "r1",
    "request_created_at": "2026-11-03 09:00:00.250",
    "response_status": 200,
    "model": "gpt-4o-mini",
    "provider": "OPENAI",
    "prompt_tokens": 500,
    "prompt_cache_read_tokens": 1000,
    "completion_tokens": 180,
    "reasoning_tokens": 40,
    "total_tokens": 1680,
    "latency": 1250,
    "time_to_first_token": 250,
    "user_id": "u",
}
ROWS: Mapping[str, dict[str, Any]] = {"litellm": LITELLM, "langfuse": LANGFUSE, "helicone": HELICONE}
EACH = pytest.mark.parametrize("name", ROWS)


def found(
    folder: Path, name: str, content: str | bytes, provider: str | None = "openai"
) -> list[Record | Unreadable | None]:
    path = folder / "log"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(records_of(path, name, provider, derived_stream_id))


def record_of(folder: Path, name: str, **changes: Any) -> Record:
    (record,) = found(folder, name, json.dumps([{**ROWS[name], **changes}]))
    assert isinstance(record, Record), record
    return record


def fault_of(folder: Path, name: str, **changes: Any) -> str:
    (refused,) = found(folder, name, json.dumps([{**ROWS[name], **changes}]))
    assert isinstance(refused, Unreadable), refused
    return refused.fault


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(
        {name: json.dumps(value) if isinstance(value, dict) else value for name, value in row.items()} for row in rows
    )
    return text.getvalue()


@EACH
def test_a_row_is_the_record_of_its_call(name: str, tmp_path: Path) -> None:
    record = record_of(tmp_path, name)
    usage, timing = record.usage, record.timing
    assert (record.tap, record.capture, record.upstream, record.outcome, record.status_code) == (
        "import", None, "openai", "completed", 200,
    )  # fmt: skip
    assert record.started_at == "2026-11-03T09:00:00.250000Z"
    assert (timing.first_token_s, timing.end_s) == (0.25, 1.25)
    assert record.request is not None
    assert record.request.host == "api.openai.com"
    assert (usage.input_tokens, usage.input_cached_tokens, usage.output_tokens, usage.reasoning_tokens) == (
        1_500, 1_000, 180, 40,
    )  # fmt: skip
    assert (usage.total_tokens, usage.source) == (1_680, "final")
    PublicRecord.model_validate_json(encode_record(record))  # it is one by the public schema, too
    assert row_of(record).input_uncached == 500


def test_what_each_log_knows_besides(tmp_path: Path) -> None:
    litellm, langfuse, helicone = (record_of(tmp_path, name) for name in ROWS)
    assert (litellm.response_model, litellm.request_model) == ("gpt-4o-mini-2024-07-18", "gpt-4o-mini")
    assert (litellm.response_id, litellm.tenant, litellm.credential_id) == ("chatcmpl-1", "river", LITELLM["api_key"])
    assert litellm.usage.reported_cost is not None
    assert (litellm.usage.reported_cost.usd, litellm.usage.reported_cost.source) == ("0.000333", "litellm")
    assert (langfuse.trace_id, langfuse.usage.reported_cost) == ("trace-1", None)
    assert (helicone.tenant, helicone.response_model) == ("u", "gpt-4o-mini")


@EACH
def test_every_form_of_the_file_gives_the_same_records(name: str, tmp_path: Path) -> None:
    rows = [ROWS[name], {**ROWS[name], "id" if name == "langfuse" else "request_id": "second"}]
    wanted = found(tmp_path, name, json.dumps(rows))
    assert len(wanted) == 2
    lines = "\n".join(map(json.dumps, rows))
    for content in (lines, as_csv(rows), json.dumps({"data": rows}), gzip.compress(lines.encode())):
        assert found(tmp_path, name, content) == wanted
    first, second = (record.stream_id for record in wanted if isinstance(record, Record))
    assert first != second


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("litellm", {"cache_hit": "True"}),
        ("litellm", {"cache_hit": "true"}),
        ("langfuse", {"type": "SPAN"}),
        ("langfuse", {"type": "EVENT"}),
        ("helicone", {"cache_reference_id": "1b4e28ba-2fa1-11d2-883f-0016d3cca427"}),
    ],
)
def test_what_no_provider_bills_is_left_out(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path, name, json.dumps([{**ROWS[name], **changes}])) == [None]


@pytest.mark.parametrize(
    ("name", "changes", "outcome", "status"),
    [
        ("litellm", {"status": "failure", "metadata": {"error_information": {"error_code": "429"}}}, "http_error", 429),
        ("litellm", {"status": "failure", "metadata": {}}, "stream_error", None),
        ("langfuse", {"level": "ERROR"}, "stream_error", None),
        ("helicone", {"response_status": 429}, "http_error", 429),
        ("helicone", {"response_status": -3}, "stream_error", None),
    ],
)
def test_a_call_that_failed_is_no_completed_stream(
    name: str, changes: dict[str, Any], outcome: str, status: int | None, tmp_path: Path
) -> None:
    nothing = {
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "prompt_cache_read_tokens": 0,
        "usageDetails": None,
        "total_tokens": 0,
    }
    record = record_of(tmp_path, name, **nothing | {"metadata": {}} | changes)
    assert (record.outcome, record.status_code, record.usage.source) == (outcome, status, "absent")
    assert record.error is not None
    assert record.usage.input_tokens is None


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"prompt_tokens": 500, "total_tokens": 1_680}, 1_500),  # beside the cache
        ({"prompt_tokens": 1_500, "total_tokens": 1_680}, 1_500),  # with it
        ({"prompt_tokens": 500, "prompt_cache_read_tokens": 0, "total_tokens": None}, 500),
    ],
)
def test_the_total_tells_whether_the_prompt_includes_the_cache(
    changes: dict[str, Any], wanted: int, tmp_path: Path
) -> None:
    assert record_of(tmp_path, "helicone", **changes).usage.input_tokens == wanted


@pytest.mark.parametrize("total", [None, 1, 1_679])
def test_a_total_that_does_not_tell_it_is_refused(total: int | None, tmp_path: Path) -> None:
    assert "does not show whether the prompt includes the cache" in fault_of(tmp_path, "helicone", total_tokens=total)


@pytest.mark.parametrize(
    ("details", "counts"),
    [
        ({"input": 10, "output": 5, "total": 15}, (10, None, None, 5)),
        ({"input": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3, "output": 5, "total": 22},
         (17, 4, 3, 5)),
        ({"input": 10, "input_audio_tokens": 2, "output": 5, "output_audio_tokens": 1, "total": 18}, (12, None, None, 6)),
        ({"input": 10, "output": 5, "output_reasoning_tokens": 3, "total": 15}, (10, None, None, 5)),
        ({"input": 10, "output": 5, "output_reasoning_tokens": 3, "total": 18}, (10, None, None, 8)),
        ({"promptTokens": 10, "completionTokens": 5}, (10, None, None, 5)),
    ],
)  # fmt: skip
def test_details_of_langfuse_are_added_up_by_kind(
    details: dict[str, int], counts: tuple[int | None, ...], tmp_path: Path
) -> None:
    usage = record_of(tmp_path, "langfuse", usageDetails=details).usage
    found_counts = (usage.input_tokens, usage.input_cached_tokens, usage.input_cache_write_tokens, usage.output_tokens)
    assert found_counts == counts


@pytest.mark.parametrize(
    ("name", "changes", "fault"),
    [
        ("litellm", {"prompt_tokens": 10}, "is less than its parts"),
        ("litellm", {"prompt_tokens": -1}, "field prompt_tokens: '-1' is negative"),
        ("litellm", {"startTime": "yesterday"}, "field startTime: "),
        ("litellm", {"metadata": "{"}, "field metadata: '{' is not JSON"),
        ("litellm", {"request_id": ""}, "field request_id: it is missing"),
        ("langfuse", {"unit": "CHARACTERS"}, "field unit: 'CHARACTERS' is not TOKENS"),
        ("langfuse", {"usageDetails": {"input": 1, "images": 2}}, "'images' is no known kind of token"),
        ("langfuse", {"usageDetails": {"input": 1.5}}, "field usageDetails: input: "),
        ("helicone", {"request_created_at": ""}, "field request_created_at: "),
    ],
)
def test_a_row_that_is_not_sure_is_refused_with_its_field(
    name: str, changes: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    assert fault in fault_of(tmp_path, name, **changes)


@EACH
def test_a_file_of_something_else_is_refused(name: str, tmp_path: Path) -> None:
    for content in (BY_NAME["OpenAI usage (API)"].text(), "a,b\n1,2\n", "{", b"\xff\xfe", ""):
        with pytest.raises(InvoiceError):
            assert found(tmp_path, name, content)


def test_unknown_names_are_masked_and_unknown_costs_left_out(tmp_path: Path) -> None:
    record = record_of(tmp_path, "litellm", model="gpt\u00e9", spend=0, api_base="", custom_llm_provider="anthropic")
    assert (record.response_model, record.usage.reported_cost) == ("masked", None)
    assert record.request is not None
    assert record.request.host == "api.anthropic.com"


@given(
    name=st.sampled_from(sorted(ROWS)),
    changes=st.dictionaries(
        st.sampled_from(sorted({key for row in ROWS.values() for key in row})),
        st.none()
        | st.integers()
        | st.text(max_size=12)
        | st.floats()
        | st.dictionaries(st.text(max_size=8), st.integers()),
        max_size=4,
    ),
)
def test_any_row_is_a_record_or_refused(name: str, changes: dict[str, Any], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("log")
    try:
        rows = found(folder, name, msgspec.json.encode([{**ROWS[name], **changes}]))
    except InvoiceError:
        return
    for record in rows:
        if isinstance(record, Record):
            PublicRecord.model_validate_json(encode_record(record))
            row_of(record)


@given(
    name=st.sampled_from(sorted(ROWS)), place=st.integers(0, 2_000), cut=st.integers(0, 20), put=st.binary(max_size=8)
)
def test_any_damage_is_read_or_refused(name: str, place: int, cut: int, put: bytes, tmp_path_factory: Any) -> None:
    data = json.dumps([ROWS[name]]).encode()
    start = place % len(data)
    try:
        found(tmp_path_factory.mktemp("log"), name, data[:start] + put + data[start + cut :])
    except InvoiceError as error:
        assert str(error)


# --- the command -----------------------------------------------------------------------------------------------------


def imported(folder: Path, name: str, *more: str) -> Any:
    (folder / "log.json").write_text(json.dumps([ROWS[name], {**ROWS[name], "cache_hit": "True", "type": "SPAN"}]))
    data = ("--data-dir", str(folder / "ledger"))
    return here("ledger", "import", str(folder / "log.json"), "--format", name, *more, *data)


def test_a_log_is_stored_once_and_seen_in_the_audit(tmp_path: Path) -> None:
    done = imported(tmp_path, "litellm")
    assert done.returncode == 0, done.stderr
    assert "1 new record (0 without a price), 0 known" in done.stderr
    assert "1 left out: answered by the gateway, or no call of a model" in done.stderr
    assert "0 new records (0 without a price), 1 known" in imported(tmp_path, "litellm").stderr
    queried = here("ledger", "query", "--where", "tap=import", "--by", "upstream", "--output", "json", "--data-dir",
                   str(tmp_path / "ledger"))  # fmt: skip
    (line,) = json.loads(queried.stdout)
    assert (line["upstream"], line["total_tokens"], Decimal(str(line["cost_usd"]))) == (
        "openai",
        1_680,
        Decimal("0.000333"),
    )
    row = {**BY_NAME["OpenAI usage (API)"].rows[0], "model": "gpt-4o-mini-2024-07-18"}
    (tmp_path / "usage.json").write_text(page([row], start_time=1_793_664_000, end_time=1_793_750_400))
    audit = here(
        "audit", "--invoice", str(tmp_path / "usage.json"), "--from", "2026-11-01", "--to", "2026-12-01",
        "--output", "json", "--data-dir", str(tmp_path / "ledger"),
    )  # fmt: skip
    *_, note = json.loads(audit.stdout)["notes"]
    assert note.startswith("Our side is what a gateway has logged, and not what a tap has seen, on 1 of the 1 days")


def test_a_log_without_providers_needs_one(tmp_path: Path) -> None:
    done = imported(tmp_path, "langfuse")
    assert done.returncode == 2
    assert "--format langfuse names no provider: give it, as in --provider openai" in done.stderr
    assert imported(tmp_path, "langfuse", "--provider", "openai").returncode == 0


def test_rows_that_are_refused_are_reported(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(json.dumps([{**LITELLM, "prompt_tokens": -1}, LITELLM]))
    done = here("ledger", "import", str(tmp_path / "log.json"), "--format", "litellm", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "line 1: field prompt_tokens: '-1' is negative" in done.stderr
    assert "1 new record" in done.stderr


def test_a_log_is_no_stream_of_stdin(tmp_path: Path) -> None:
    done = here("ledger", "import", "-", "--format", "litellm", "--data-dir", str(tmp_path))
    assert (done.returncode, "give a file instead of -" in done.stderr) == (2, True)


def test_the_command_knows_every_log() -> None:
    done = here("ledger", "import", "--help")
    assert all(name in done.stdout for name in LOGS)
