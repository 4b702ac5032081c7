"""`streamgauge replay` on real files: one record for each, in order, and nothing else on stdout."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.running import command

VECTORS = Path(__file__).parent.parent / "vectors"
CHAT = (VECTORS / "openai-chat" / "happy.sse").read_bytes()
MESSAGES = (VECTORS / "anthropic-messages" / "happy.sse").read_bytes()

# What is drawn anew for each record of a recording.
OWN = ("stream_id", "tap_instance")


def replayed(*arguments: str) -> list[dict[str, Any]]:
    done = command("replay", *arguments, "--output", "jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "b.sse").write_bytes(MESSAGES)
    (tmp_path / "in" / "c.sse").write_bytes(b"")
    (tmp_path / "in" / "deep" / "a.sse").write_bytes(CHAT)
    (tmp_path / "in" / "notes.txt").write_text("no recording")
    (tmp_path / "named.txt").write_bytes(CHAT)
    return tmp_path


def test_one_record_for_each_file_in_the_order_of_the_arguments(folder: Path) -> None:
    named, inside = str(folder / "named.txt"), str(folder / "in")
    records = replayed(named, inside, named)
    assert [record["dialect"] for record in records] == [
        "openai-chat", "anthropic-messages", None, "openai-chat", "openai-chat",
    ]  # fmt: skip
    assert [record["outcome"] for record in records] == [
        "completed", "completed", "truncated", "completed", "completed",
    ]  # fmt: skip
    assert len({record["stream_id"] for record in records}) == len(records)


def test_the_same_recording_gives_the_same_record(folder: Path) -> None:
    first, second = replayed(*[str(folder / "named.txt")] * 2)
    assert {**first, **dict.fromkeys(OWN)} == {**second, **dict.fromkeys(OWN)}


def test_without_stamps_every_time_is_null(folder: Path) -> None:
    [record] = replayed(str(folder / "named.txt"))
    assert record["timing"]["first_token_s"] is record["timing"]["end_s"] is record["started_at"] is None
    assert record["counts"]["token_events"] > 0


def test_full_capture_says_so_and_counts_the_same(folder: Path) -> None:
    [masked] = replayed(str(folder / "named.txt"))
    [full] = replayed(str(folder / "named.txt"), "--capture", "full")
    assert (masked.pop("capture"), full.pop("capture")) == ("masked", "full")
    assert {**full, **dict.fromkeys(OWN)} == {**masked, **dict.fromkeys(OWN)}


def test_a_dialect_may_be_said(folder: Path) -> None:
    [record] = replayed(str(folder / "named.txt"), "--dialect", "openai-chat")
    assert record["dialect"] == "openai-chat"


def test_a_table_for_the_eye(folder: Path) -> None:
    done = command("replay", str(folder / "in"))
    assert done.returncode == 0
    head, *lines = done.stdout.splitlines()
    assert head.split()[:3] == ["started_at", "upstream", "dialect"]
    assert len(lines) == 3


def test_nothing_is_printed_if_one_of_the_files_is_not_there(folder: Path) -> None:
    done = command("replay", str(folder / "named.txt"), str(folder / "gone.sse"), "--output", "jsonl")
    assert (done.returncode, done.stdout) == (2, "")
