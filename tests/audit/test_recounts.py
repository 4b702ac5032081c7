"""Streams whose reported output a recount contradicts."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamgauge.audit.recounts import MAX_OUTSIDE, PART, TOKENS, reported_outside
from streamgauge.errors import UsageFault
from streamgauge.recount.recount import INCOMPLETE, MEDIA, NOT_COMPLETED, RESUMED, Recount


def line(stream: str, reported: int | None, low: int | None, high: int | None, *reasons: str) -> str:
    """As `streamgauge recount` prints it."""
    one = Recount(
        stream, "m", "o200k_base", reported, 100, None, exact=True, low=low, high=high, band="m", band_streams=9,
        reasons=list(reasons),
    )  # fmt: skip
    return msgspec.json.encode(one).decode()


def outside(folder: Path, *lines: str) -> set[str]:
    path = folder / "recounts.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return set(reported_outside(path).outside)


def test_a_number_is_outside_if_it_is_beyond_the_range_and_its_tolerance(tmp_path: Path) -> None:
    low, high = 800, 1_000
    least, most = low - low // PART - TOKENS, high + high // PART + TOKENS
    given = {"least": least, "below": least - 1, "most": most, "above": most + 1, "none": None}
    found = outside(tmp_path, *(line(name, reported, low, high) for name, reported in given.items()))
    assert found == {"below", "above"}


def test_a_range_that_is_wider_than_half_of_the_number_is_no_finding(tmp_path: Path) -> None:
    lines = [line("wide", 400, 500, 701), line("narrow", 400, 500, 700), line("far", 2_000, 500, 1_000)]
    path = tmp_path / "recounts.jsonl"
    path.write_text("\n".join(lines))
    found = reported_outside(path)
    assert found.outside == {"narrow", "far"}
    assert found.too_wide == 1
    assert [note.partition(":")[0] for note in found.notes] == [
        "the reported output of 1 stream is outside of the range of its recount, and no finding"
    ]
    assert outside(tmp_path, line("within", 600, 100, 900)) == set()
    assert reported_outside(path).notes == []


def test_without_an_end_only_the_other_one_counts(tmp_path: Path) -> None:
    found = outside(tmp_path, line("a", 10**9, 5, None), line("b", 0, None, 5), line("c", 0, 500, None))
    assert found == {"c"}


@pytest.mark.parametrize("reason", [INCOMPLETE, RESUMED, MEDIA])
def test_a_count_of_a_part_of_the_output_contradicts_nothing(tmp_path: Path, reason: str) -> None:
    assert outside(tmp_path, line("a", 10_000, 1, 2, reason), line("b", 10_000, 1, 2, NOT_COMPLETED)) == {"b"}


@pytest.mark.parametrize(
    "broken", ["{", '{"stream_id":"a"}', json.dumps({"stream_id": 1}), "\udcff".encode("utf-8", "surrogateescape")]
)
def test_a_broken_line_is_named(tmp_path: Path, broken: Any) -> None:
    path = tmp_path / "recounts.jsonl"
    path.write_bytes(line("a", 1, 0, 2).encode() + b"\n\n" + (broken if isinstance(broken, bytes) else broken.encode()))
    with pytest.raises(UsageFault, match=r"recounts\.jsonl: line 3: not a line of `streamgauge recount"):
        reported_outside(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"--recounts .*recounts\.jsonl cannot be read: No such file"):
        reported_outside(tmp_path / "recounts.jsonl")


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.audit.recounts.MAX_OUTSIDE", 3)
    with pytest.raises(UsageFault, match="more than 3 streams differ"):
        outside(tmp_path, *(line(str(number), 10_000, 1, 2) for number in range(4)))
    assert MAX_OUTSIDE > 100_000
