"""`streamgauge recount` as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recount.test_recount import MODEL, stream
from tests.recount.test_tokenizer import document
from tests.recount.tokenizers import published
from tests.running import command

pytestmark = pytest.mark.slow


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    published("o200k_base")
    file = tmp_path / "one.sse"
    file.write_text(stream(MODEL, '{"content":"Hello, "}', '{"content":"world"}', tokens=4))
    return file


def test_one_line_for_each_stream(recording: Path) -> None:
    done = command("recount", str(recording), "--output", "jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    line = json.loads(done.stdout)
    assert (line["model"], line["tokenizer"], line["output_tokens_recounted"]) == (MODEL, "o200k_base", 3)
    assert (line["difference"], line["exact"], line["reasons"]) == (1, True, [])


def test_a_table(recording: Path) -> None:
    done = command("recount", str(recording))
    head, row = done.stdout.splitlines()
    assert head.split() == ["stream_id", "model", "tokenizer", "reported", "recounted", "difference", "low", "high"]
    assert row.split()[1:6] == [MODEL, "o200k_base", "4", "3", "1"]


def test_a_file_in_the_directory_of_vocabularies_comes_first(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "o200k_base.tiktoken").write_text("IQ== 0\n")
    done = command("recount", str(recording), "--output", "jsonl", "--vocabularies", str(tmp_path))
    assert done.returncode == 1
    assert "SHA-256 differs" in done.stderr
    line = json.loads(done.stdout)
    assert (line["output_tokens_recounted"], line["reasons"]) == (None, ["vocabulary_missing", "wide_band"])


def test_a_tokenizer_json_counts_for_the_model_that_it_is_named_for(recording: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_bytes(document())
    recording.write_text(stream("vendor/Own-7b-instruct", '{"content":"hello"}', tokens=5))
    named = ("--tokenizer", f"own-7b={tmp_path}/tokenizer.json")
    done = command("recount", str(recording), "--output", "jsonl", *named)
    assert (done.returncode, done.stderr) == (0, "")
    line = json.loads(done.stdout)
    assert (line["tokenizer"], line["output_tokens_recounted"], line["exact"]) == ("own-7b", 4, True)


def test_a_tokenizer_without_a_model_is_refused(recording: Path) -> None:
    done = command("recount", str(recording), "--tokenizer", "tokenizer.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "write MODEL=FILE, as in llama-3.1=tokenizer.json" in done.stderr


def test_text_above_the_limit_is_dropped_and_said(recording: Path) -> None:
    text = "Every sentence ends. " * 1_000
    recording.write_text(stream(MODEL, *[f'{{"content":"{text}"}}'] * 50, tokens=250_000))
    done = command("recount", str(recording), "--output", "jsonl")
    line = json.loads(done.stdout)
    assert (done.returncode, line["tokenizer"], line["output_tokens_recounted"]) == (0, None, None)
    assert (line["exact"], line["reasons"]) == (False, ["too_long", "wide_band"])
    assert line["low"] < 250_000 < line["high"]


def test_stdin_is_a_recording(recording: Path) -> None:
    with recording.open("rb") as opened:
        done = subprocess.run(
            [sys.executable, "-m", "streamgauge", "recount", "-", "--output", "jsonl"],
            stdin=opened, capture_output=True, timeout=120, check=True,
        )  # fmt: skip
    assert json.loads(done.stdout)["output_tokens_recounted"] == 3


def test_a_directory_that_does_not_exist_is_refused(recording: Path) -> None:
    done = command("recount", str(recording), "--vocabularies", "/nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "streamgauge recount: --vocabularies: there is no directory /nowhere\n"


def test_without_arguments_it_says_what_to_name() -> None:
    done = command("recount")
    assert done.returncode == 2
    assert "nothing to recount: name files or directories" in done.stderr
