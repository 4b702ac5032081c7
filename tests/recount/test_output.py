"""The text that streams generate reaches the counters: all that counts in the record, once, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.cli.replay import Replaying
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.capture.segments import Opening
from streamgauge.core.record import Record
from streamgauge.core.safe_values import MASKED, safe_id
from streamgauge.recount import output as module
from streamgauge.recount.output import Memory, Output, Outputs
from streamgauge.recount.recount import characters
from streamgauge.settings.declarations import Settings
from tests.each import check_each
from tests.recount.tokenizers import small

VECTORS = Path(__file__).parent.parent / "vectors"
STREAMS = sorted(VECTORS.glob("*/*.sse"))


class Heard(Output):
    """Keeps the text instead of counting it."""

    kept: dict[object, str]

    def add(self, text_id: object, text: str, *, reasoning: bool = False) -> None:
        super().add(text_id, text, reasoning=reasoning)
        self.kept = getattr(self, "kept", {})
        self.kept[text_id] = self.kept.get(text_id, "") + text

    def replace(self, text_id: object, text: str, *, reasoning: bool = False) -> None:
        self.kept.pop(text_id, None)
        super().replace(text_id, text, reasoning=reasoning)


def replayed(path: Path, tmp_path: Path, capture: str = "full") -> Iterator[tuple[Record, Output | None]]:
    outputs = Outputs(lambda _: small("o200k"))
    settings = Settings(capture=capture, data_dir=tmp_path)  # type: ignore[arg-type]
    for record in Replaying(settings, None, assembler=outputs.assembler).records([path], of_topic=False):
        yield record, outputs.take(record)


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def test_the_text_has_the_characters_of_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Output", Heard)

    def check(path: Path) -> None:
        for record, output in replayed(path, tmp_path):
            # The record has no name that is no code, and no characters of arguments without a call.
            kept = {key: text for key, text in getattr(output, "kept", {}).items() if key[-1] != -1}
            names = {key[:-1]: kept.pop(key) for key in list(kept) if key[-1] == module.NAME}
            calls = [(choice.index, call) for choice in record.choices for call in choice.tool_calls]
            if not record.integrity.reasons:  # a limit of calls, choices or items leaves characters out of the record
                of_names = sum(len(call.name or "") for _, call in calls)
                assert sum(map(len, kept.values())) == characters(record, reasoning=True) - of_names
                if not record.resumed_from:  # its names may have been counted in the earlier leg
                    recorded = sorted((index, call.name) for index, call in calls if call.name not in (None, MASKED))
                    assert sorted((key[0], name) for key, name in names.items() if safe_id(name) == name) == recorded

    check_each(STREAMS, check, named)


def test_the_record_is_the_same(tmp_path: Path) -> None:
    def check(path: Path) -> None:
        [with_output] = [record for record, _ in replayed(path, tmp_path)]
        settings = Settings(capture="full", data_dir=tmp_path)
        [without] = Replaying(settings, None).records([path], of_topic=False)
        with_output.stream_id, with_output.tap_instance = without.stream_id, without.tap_instance
        assert with_output == without

    check_each(STREAMS[::7], check, named)


def test_masked_text_has_no_tokenizer(tmp_path: Path) -> None:
    [(_, output)] = replayed(VECTORS / "openai-chat" / "happy.sse", tmp_path, "masked")
    assert output is not None
    assert output.tokenizer is None
    assert output.tokens(reasoning=False) == 0


def test_text_above_the_limit_of_a_stream_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [(_, whole)] = replayed(VECTORS / "openai-chat" / "happy.sse", tmp_path)
    assert whole is not None
    assert whole.tokens(reasoning=False)
    monkeypatch.setattr(module, "MAX_TEXT", 3)
    [(_, output)] = replayed(VECTORS / "openai-chat" / "happy.sse", tmp_path)
    assert output is not None
    assert output.is_too_long
    assert output.tokens(reasoning=False) is output.tokens(reasoning=True) is None


def open_output(memory: Memory) -> Output:
    """The output of an open stream that is captured in full."""
    opening = Opening(tap="proxy", tap_version="1", capture="full")
    state = StreamState(stream=bytes(16), instance=b"", slot=0, opening=opening)
    return Output(state, lambda _: small("o200k"), memory)


def test_text_above_the_limit_of_all_streams_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_GATHERED", 10)
    memory = Memory()
    first, second, third = (open_output(memory) for _ in range(3))
    first.add("text", "12345678")
    second.add("text", "123")
    assert (first.is_too_long, second.is_too_long) == (False, True)
    first.release()  # its record is made
    assert first.tokens(reasoning=False) == 8
    third.add("text", "1234567890")
    assert third.tokens(reasoning=False) == 10
    assert memory.left == 10


def test_a_text_over_the_limit_ends_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TEXTS", 1)
    [(_, output)] = replayed(VECTORS / "openai-chat" / "choices.sse", tmp_path)
    assert output is not None
    assert output.is_split
    assert (output.tokens(reasoning=False) or 0) > 0
