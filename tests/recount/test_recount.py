"""What a recount says of one stream: the count, the difference, the bounds, and why it is not exact."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamgauge.cli.replay import Replaying
from streamgauge.core.record import Record, Request
from streamgauge.recount import bands
from streamgauge.recount import output as output_module
from streamgauge.recount.bands import ALL
from streamgauge.recount.output import Outputs
from streamgauge.recount.recount import REASONS, Recount, recount
from streamgauge.recount.tokenizer import MAX_UNCUT, RankTokenizer
from streamgauge.recount.vocabularies import O200K, VOCABULARIES
from streamgauge.settings.declarations import Settings
from tests.recount.tokenizers import BYTES

MODEL = "gpt-4o-2024-08-06"


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "OFFSETS", {ALL: (9, 0, 4, 0, 12), MODEL: (5, 0, 1, 3, 8)})
    monkeypatch.setattr(bands, "RATIOS", {ALL: (90, 100, 600, 4, 9, 60), "claude-x-1": (7, 200, 301, 0, 5, 40)})


def chunk(model: str, delta: str, finish: str = "null") -> str:
    return (
        f'data: {{"id":"c","object":"chat.completion.chunk","model":"{model}",'
        f'"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}\n\n'
    )


def usage(tokens: int, details: str = "{}") -> str:
    return (
        'data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":5,'
        f'"completion_tokens":{tokens},"total_tokens":{5 + tokens},"completion_tokens_details":{details}}}}}\n\n'
    )


TEXT = '{"content":"hello \\ud83d"}', '{"content":"\\ude00"}'  # 6 bytes and 4: 10 tokens
CALL = (
    '{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"add","arguments":"{\\"a\\":1}"}}]}'
)
DONE = "data: [DONE]\n\n"


def recounted(
    tmp_path: Path, body: str, *, capture: str = "full", tokenizer: str | None = "o200k_base", **changes: Any
) -> Recount:
    made = None if tokenizer is None else RankTokenizer(tokenizer, O200K, BYTES)
    outputs, file = Outputs(lambda _: made), tmp_path / "one.sse"
    file.write_text(body)
    settings = Settings(capture=capture, data_dir=tmp_path)  # type: ignore[arg-type]
    [record] = Replaying(settings, None, assembler=outputs.assembler).records([file], of_topic=False)
    output = outputs.take(record)
    return recount(msgspec.structs.replace(record, **changes), output)


def stream(model: str = MODEL, *deltas: str, tokens: int = 10, details: str = "{}") -> str:
    parts = [chunk(model, delta) for delta in deltas or TEXT]
    return "".join([*parts, chunk(model, "{}", '"stop"'), usage(tokens, details), DONE])


def test_a_text_of_a_public_tokenizer_is_counted_exactly(tmp_path: Path) -> None:
    one = recounted(tmp_path, stream(tokens=11))
    assert (one.model, one.tokenizer) == (MODEL, "o200k_base")
    assert (one.output_tokens_reported, one.output_tokens_recounted, one.difference) == (11, 10, 1)
    assert (one.exact, one.low, one.high, one.band, one.band_streams) == (True, 10, 11, MODEL, 5)
    assert one.reasons == []


def test_the_line_has_the_fields_that_others_build_on(tmp_path: Path) -> None:
    line = msgspec.to_builtins(recounted(tmp_path, stream()))
    assert list(line)[:9] == [
        "stream_id", "model", "tokenizer", "output_tokens_reported", "output_tokens_recounted", "difference", "exact",
        "low", "high",
    ]  # fmt: skip


def test_names_and_arguments_of_tools_are_counted(tmp_path: Path) -> None:
    one = recounted(tmp_path, stream(MODEL, CALL, tokens=15))
    assert one.output_tokens_recounted == len('add{"a":1}')
    assert (one.low, one.high) == (10 + 3, 10 + 1 + 8)


def test_a_name_in_fragments_is_counted_whole(tmp_path: Path) -> None:
    merged = RankTokenizer("o200k_base", O200K, BYTES | {b"dd": 256})
    pieces = (
        '{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"ad"}}]}',
        '{"tool_calls":[{"index":0,"function":{"name":"d"}}]}',
        '{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}',
    )
    outputs, file = Outputs(lambda _: merged), tmp_path / "one.sse"
    file.write_text(stream(MODEL, *pieces))
    settings = Settings(capture="full", data_dir=tmp_path)
    [record] = Replaying(settings, None, assembler=outputs.assembler).records([file], of_topic=False)
    assert [call.name for choice in record.choices for call in choice.tool_calls] == ["add"]
    assert recount(record, outputs.take(record)).output_tokens_recounted == len(["a", "dd", "{", "}"])


def test_the_provider_s_number_of_hidden_reasoning_is_taken(tmp_path: Path) -> None:
    one = recounted(tmp_path, stream("gpt-5-mini", tokens=74, details='{"reasoning_tokens":64}'))
    assert (one.output_tokens_recounted, one.difference, one.exact) == (74, 0, False)
    assert (one.low, one.high, one.band) == (74, 78, ALL)
    assert one.reasons == ["hidden_reasoning"]


def test_hidden_reasoning_without_a_number_has_no_upper_bound(tmp_path: Path) -> None:
    body = "".join([chunk("o3", delta) for delta in TEXT]) + chunk("o3", "{}", '"stop"') + DONE
    one = recounted(tmp_path, body)
    assert (one.output_tokens_recounted, one.exact, one.low, one.high) == (10, False, 10, None)
    assert recounted(tmp_path, body, request=Request(max_tokens=500)).high == 500


def test_a_cut_stream_has_what_was_delivered_and_what_may_be_billed(tmp_path: Path) -> None:
    body = "".join(chunk(MODEL, delta) for delta in TEXT)
    one = recounted(tmp_path, body)
    assert one.reasons == ["not_completed"]
    assert (one.output_tokens_recounted, one.exact, one.difference) == (10, True, None)
    assert (one.low, one.high) == (10, None)
    limited = recounted(tmp_path, body, request=Request(max_tokens=400, n=2), outcome="client_abort")
    assert (limited.low, limited.high) == (10, 800)


def test_a_masked_capture_gives_a_range_by_characters(tmp_path: Path) -> None:
    one = recounted(tmp_path, stream(), capture="masked")
    assert (one.tokenizer, one.output_tokens_recounted, one.difference, one.exact) == (None, None, None, False)
    assert (one.low, one.high, one.band, one.reasons) == (0, 5 + 9, ALL, ["masked", "wide_band"])


def test_another_model_gives_a_range_by_characters_of_its_version(tmp_path: Path) -> None:
    one = recounted(
        tmp_path, stream("vendor/claude-x-1", '{"content":"' + "a" * 1000 + '"}', tokens=250), tokenizer=None
    )
    assert (one.output_tokens_reported, one.output_tokens_recounted) == (250, None)
    assert (one.low, one.high, one.band, one.band_streams) == (200, 306, "claude-x-1", 7)
    assert one.reasons == ["no_public_tokenizer"]


def test_a_missing_vocabulary_is_said(tmp_path: Path) -> None:
    one = recounted(tmp_path, stream(), tokenizer=None)
    assert (one.output_tokens_recounted, one.reasons) == (None, ["vocabulary_missing", "wide_band"])
    assert one.high is not None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"resumed_from": "5"}, "resumed"), ({"response_model": "gpt-4-0613"}, "no_public_tokenizer wide_band")],
)
def test_what_cannot_be_compared_has_no_difference(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    one = recounted(tmp_path, stream(), **changes)
    assert (one.difference, one.exact, one.reasons) == (None, False, reason.split())


def test_a_text_above_the_bound_gives_a_range_by_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_module, "MAX_TEXT", 9)
    line = recounted(tmp_path, stream())
    assert (line.tokenizer, line.output_tokens_recounted, line.difference, line.exact) == (None, None, None, False)
    assert (line.low, line.high, line.band, line.reasons) == (0, 5 + 9, ALL, ["too_long", "wide_band"])


def test_a_piece_above_the_bound_gives_a_range_by_characters(tmp_path: Path) -> None:
    text = "a" * (MAX_UNCUT + 1)
    line = recounted(tmp_path, stream(MODEL, f'{{"content":"{text}"}}', tokens=2_000))
    assert (line.output_tokens_recounted, line.exact, line.reasons) == (None, False, ["too_long", "wide_band"])
    assert (line.low, line.high) == (1_634, 9_831 + 9)


def test_a_tokenizer_of_the_user_counts(tmp_path: Path) -> None:
    tokenizer, file = RankTokenizer("own-1", O200K, BYTES), tmp_path / "own.sse"
    file.write_text(stream("vendor/own-1-large", tokens=10))
    outputs = Outputs(lambda _: tokenizer)
    settings = Settings(capture="full", data_dir=tmp_path)
    [record] = Replaying(settings, None, assembler=outputs.assembler).records([file], of_topic=False)
    line = recount(record, outputs.take(record), lambda _: "own-1")
    assert (line.tokenizer, line.output_tokens_recounted, line.exact, line.reasons) == ("own-1", 10, True, [])


@pytest.mark.parametrize(("reported", "is_wide"), [(211, True), (212, False), (250, False), (1_000, False)])
def test_a_range_wider_than_half_of_the_reported_number_says_so(
    tmp_path: Path, *, reported: int, is_wide: bool
) -> None:
    body = stream("vendor/claude-x-1", '{"content":"' + "a" * 1000 + '"}', tokens=reported)
    one = recounted(tmp_path, body, tokenizer=None)
    assert (one.low, one.high) == (200, 306)
    assert ("wide_band" in one.reasons) == is_wide


def test_an_incomplete_capture_has_no_difference(tmp_path: Path) -> None:
    def lossy(record: Record) -> dict[str, Any]:
        return {"integrity": msgspec.structs.replace(record.integrity, complete=False)}

    outputs, file = Outputs(lambda _: None), tmp_path / "one.sse"
    file.write_text(stream())
    settings = Settings(capture="full", data_dir=tmp_path)
    [record] = Replaying(settings, None, assembler=outputs.assembler).records([file], of_topic=False)
    one = recount(msgspec.structs.replace(record, **lossy(record)), outputs.take(record))
    assert "incomplete_capture" in one.reasons
    assert one.difference is one.high is None


def test_an_error_before_the_stream_bills_nothing(tmp_path: Path) -> None:
    one = recounted(tmp_path, "", outcome="http_error", status_code=429)
    assert (one.output_tokens_recounted, one.low, one.high, one.exact) == (0, 0, 0, True)


def test_the_guide_has_every_field_and_reason() -> None:
    guide = (Path(__file__).parent.parent.parent / "docs" / "guides" / "recount.md").read_text()
    assert [name for name in (*Recount.__struct_fields__, *REASONS) if f"`{name}`" not in guide] == []


def test_the_guide_has_every_tokenizer() -> None:
    guide = (Path(__file__).parent.parent.parent / "docs" / "guides" / "recount.md").read_text()
    assert [name for name in VOCABULARIES if f"| `{name}` |" not in guide] == []
