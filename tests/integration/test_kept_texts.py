"""`up --capture full --text-age`: what streams generated can be counted again after their records were stored."""

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamgauge.spool.text_store import TEXTS
from tests.integration.provider import BEGIN, REST, Provider, provider
from tests.integration.test_up import ask, open_stream
from tests.processes import children
from tests.recount.test_tokenizer import document
from tests.running import Running, here, start_up, wait_for

pytestmark = pytest.mark.slow
KEEP = ("--capture", "full", "--text-age", "3600")


@pytest.fixture
def small() -> Iterator[Provider]:
    with provider() as started:
        yield started


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def recounts(data_dir: Path) -> list[dict[str, object]]:
    done = here("recount", "--data-dir", str(data_dir), "--output", "jsonl")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def stored(data_dir: Path) -> set[str]:
    done = here("ledger", "query", "--data-dir", str(data_dir), "--output", "jsonl")
    return {json.loads(line)["stream_id"] for line in done.stdout.splitlines()}


def test_text_that_is_kept_is_counted_under_the_ids_of_the_ledger(small: Provider, data_dir: Path) -> None:
    with start_up({"small": small.url}, data_dir, *KEEP) as up:
        for _ in range(3):
            ask(up)
        wait_for(lambda: len(recounts(data_dir)) == 3, "texts of three streams, while the tap runs")
    found = recounts(data_dir)
    assert {one["stream_id"] for one in found} == stored(data_dir)
    # The model has no public tokenizer: its range is that of 11 characters.
    assert {one["output_tokens_reported"] for one in found} == {2}
    assert all("masked" not in one["reasons"] for one in found)  # type: ignore[operator]
    assert b"A SECRET" not in (data_dir / TEXTS).read_bytes()


def test_the_count_is_that_of_a_recording(small: Provider, data_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_bytes(document())
    (tmp_path / "one.sse").write_bytes(BEGIN + REST)
    with start_up({"small": small.url}, data_dir, *KEEP) as up:
        ask(up)
    named = ("--tokenizer", f"small-1={tmp_path}/tokenizer.json", "--output", "jsonl")
    counts = []
    for words in ((str(tmp_path / "one.sse"),), ("--data-dir", str(data_dir))):
        done = here("recount", *words, *named)
        assert done.returncode == 0, done.stderr
        counts.append(json.loads(done.stdout))
    assert counts[0]["output_tokens_recounted"] == counts[1]["output_tokens_recounted"] > 2
    assert counts[1]["exact"] is True


def collectors(up: Running) -> list[int]:
    return [pid for pid, line in children(up.process.pid).items() if "streamgauge.cli.collector" in line]


def test_a_collector_that_is_killed_loses_no_text(small: Provider, data_dir: Path) -> None:
    with start_up({"small": small.url}, data_dir, *KEEP) as up:
        ask(up)
        stream = open_stream(up, small)
        [before] = collectors(up)
        os.kill(before, signal.SIGKILL)
        wait_for(lambda: collectors(up) not in ([], [before]), "another collector")
        wait_for(lambda: up.get("/health/ready")[0] == 200, "readiness")
        small.go_on.set()
        stream.rest()
        ask(up)
        wait_for(lambda: len(stored(data_dir)) == 3, "three records")
    texts = {one["stream_id"] for one in recounts(data_dir)}
    assert texts <= stored(data_dir)
    assert len(texts) >= 2, "the streams that were not open have their text"


def test_nothing_is_kept_without_being_asked_for(small: Provider, data_dir: Path) -> None:
    with start_up({"small": small.url}, data_dir, "--capture", "full") as up:
        ask(up)
        wait_for(lambda: len(stored(data_dir)) == 1, "a record")
    assert not (data_dir / TEXTS).exists()


def test_texts_of_an_earlier_run_are_deleted_when_none_are_kept(small: Provider, data_dir: Path) -> None:
    with start_up({"small": small.url}, data_dir, *KEEP) as up:
        ask(up)
    assert (data_dir / TEXTS).exists()
    with start_up({"small": small.url}, data_dir, "--capture", "full"):
        assert not list(data_dir.glob(f"{TEXTS}*"))


def test_text_is_deleted_by_age_while_nothing_is_captured(small: Provider, data_dir: Path) -> None:
    with start_up({"small": small.url}, data_dir, "--capture", "full", "--text-age", "5") as up:
        ask(up)

        def is_empty() -> bool:
            with closing(sqlite3.connect(data_dir / TEXTS)) as database:
                return database.execute("SELECT count(*) FROM segments").fetchone() == (0,)

        wait_for(lambda: not is_empty(), "a text")
        wait_for(is_empty, "an empty file")
    assert recounts(data_dir) == []


def test_a_masked_capture_cannot_keep_texts(small: Provider, data_dir: Path) -> None:
    done = here("up", "--upstream", small.url, "--data-dir", str(data_dir), "--text-age", "3600")
    assert done.returncode == 2
    assert "--text-age requires --capture full: a masked capture has no text" in done.stderr
    assert not data_dir.exists()
