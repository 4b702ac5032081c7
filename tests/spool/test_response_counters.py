"""The balance of responses: by upstream and reason, over processes and restarts, after SIGKILL, and bounded."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamgauge.spool.read_counters import Counters, DropReason, close_balance
from streamgauge.spool.response_counters import MAX_NAME, MAX_UPSTREAMS, NotCaptured, read_responses


def counts(path: Path) -> dict[str, tuple[int, int, dict[str, int]]]:
    return {
        name: (one.seen, one.captured, {reason.value: count for reason, count in one.not_captured.items()})
        for name, one in read_responses(path).items()
    }


def test_nothing_counted_is_empty(tmp_path: Path) -> None:
    assert read_responses(tmp_path / "counters") == {}
    assert list(tmp_path.iterdir()) == []


def test_processes_and_restarts_add_up(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    for _ in range(2):
        with Counters(path, "relay-0") as one, Counters(path, "relay-1") as two, Counters(path, "recorder") as recorder:
            one.responses.seen("up")
            one.responses.passed(None, NotCaptured.REFUSED)
            two.responses.seen("up")
            two.responses.passed("up", NotCaptured.NOT_LLM, 3)
            recorder.responses.not_captured("up", NotCaptured.LIMIT)
    assert counts(path) == {"unknown": (2, 0, {"refused": 2}), "up": (10, 2, {"not_llm": 6, "limit": 2})}


def test_each_reason_has_its_own_place(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    with Counters(path, "relay-0") as counters:
        for times, reason in enumerate(NotCaptured, 1):
            counters.responses.passed("up", reason, times)
    expected = {reason.value: times for times, reason in enumerate(NotCaptured, 1)}
    assert counts(path) == {"up": (sum(expected.values()), 0, expected)}


def test_names_are_cut_and_beyond_a_number_they_are_other(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    with Counters(path, "app-0") as counters:
        for name in ("x" * 200, "x" * MAX_NAME, "é" * 200):
            counters.responses.seen(name)
        for number in range(200):
            counters.responses.seen(f"host-{number}")
    with Counters(path, "app-0") as counters:  # a later process finds them again
        counters.responses.seen("host-0")
        counters.responses.seen("host-199")
    found = counts(path)
    assert len(found) == MAX_UPSTREAMS
    assert (found["x" * MAX_NAME][0], found["é" * (MAX_NAME // 2)][0], found["host-0"][0]) == (2, 1, 2)
    assert sum(seen for seen, _, _ in found.values()) == 205
    assert found["other"][0] == 200 - (MAX_UPSTREAMS - 3) + 1


CHILD = """
import os, signal, sys
from pathlib import Path
from streamgauge.spool.read_counters import Counters
from streamgauge.spool.response_counters import NotCaptured
counters = Counters(Path(sys.argv[1]), sys.argv[2])
for _ in range(5):
    counters.responses.seen("up")
for _ in range(3):
    counters.responses.handed_over("up")
counters.responses.passed("up", NotCaptured.NOT_LLM)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("by", ["the next relay", "the next tap"])
def test_what_a_killed_relay_saw_and_did_not_send_is_crash(tmp_path: Path, by: str) -> None:
    path = tmp_path / "counters"
    ended = subprocess.run([sys.executable, "-c", CHILD, str(path), "relay-3"], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert counts(path) == {"up": (6, 5, {"not_llm": 1})}
    for _ in range(2):
        if by == "the next tap":
            close_balance(path, 0, 0, reason=DropReason.CRASH)
        else:
            with Counters(path, "relay-3") as counters:
                counters.drop_unsent_reads()
        assert counts(path) == {"up": (6, 3, {"not_llm": 1, "crash": 2})}


def test_a_file_of_another_layout_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    (tmp_path / "responses").mkdir()
    (tmp_path / "responses" / "relay-0").write_bytes(content := os.urandom(100))
    assert read_responses(path) == {}
    with Counters(path, "relay-0") as counters:
        counters.responses.seen("up")
    assert counts(path) == {"up": (1, 1, {})}
    assert (tmp_path / "responses" / "relay-0.other-1").read_bytes() == content
