"""The page's JSON of real processes: `up`, and a tap and a worker with a real Kafka. tests/live has the page itself."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.provider import BEGIN, Provider, provider
from tests.running import Running, command, start_tap, start_up, start_worker, wait_for, wait_until_ready

BODY = json.dumps({"model": "small-1", "stream": True, "messages": [{"role": "user", "content": "A SECRET"}]})


@contextmanager
def open_stream(tap: Running, small: Provider) -> Iterator[None]:
    """A stream whose beginning the client has; it ends when the context is left."""
    small.go_on.clear()
    with tap.post(BODY, {"content-type": "application/json"}) as answer:
        assert answer.read(len(BEGIN)) == BEGIN
        try:
            yield
        finally:
            small.go_on.set()
            answer.read()


def asked(running: Running, path: str = "/streams") -> Any:
    status, text = running.get(path)
    assert status == 200, text
    assert "SECRET" not in text
    return json.loads(text)


def wait_for_open(running: Running, count: int) -> Any:
    """The answer once so many streams are open, and each has its token."""

    def found() -> Any:
        answer = asked(running)
        rows = answer["open"]["streams"]
        return answer if len(rows) == count and all(row["token_events"] == 1 for row in rows) else None

    return wait_for(found, f"{count} open streams")


def wait_for_finished(running: Running, count: int) -> Any:
    return wait_for(
        lambda: (answer := asked(running))["hour"]["streams"] == count and answer, f"{count} finished streams"
    )


def check_open(running: Running, process: str) -> str:
    """Checks the one open stream of `process`, and gives its id."""
    answer = wait_for_open(running, 1)
    assert answer["process"] == process
    [row] = answer["open"]["streams"]
    assert (row["model"], row["outcome"], row["status_code"]) == ("small-1", None, 200)
    assert sum(row["ticks"]) == 1
    silent = wait_for(
        lambda: (now := asked(running)["open"]["streams"][0]["silent_s"]) > 1.0 and now, "a growing silence"
    )
    timeline = asked(running, f"/streams/{row['id']}")
    assert [step["kinds"] for step in timeline["steps"] if step["events"]] == [["text"]]
    assert silent < 100
    return str(row["id"])


def check_finished(running: Running, stream: str, process: str) -> None:
    answer = wait_for_finished(running, 1)
    assert answer["process"] == process
    [row] = answer["worst"]["recent"]
    assert (row["id"], row["outcome"]) == (stream, "completed")
    assert sum(map(sum, answer["hour"]["first_token"]["counts"])) == 1
    timeline = asked(running, f"/streams/{stream}")
    assert sum(step["tokens"] for step in timeline["steps"]) == 2
    assert "finish" in [step for step in timeline["steps"] if step["events"]][-1]["kinds"]
    assert timeline["record"]["usage"]["total_tokens"] == 5


def test_up(tmp_path: Path) -> None:
    with provider() as small, start_up({"small": small.url}, tmp_path / "data", "--capture", "full") as up:
        assert asked(up)["open"]["total"] == 0
        with open_stream(up, small):
            stream = check_open(up, "up")
        check_finished(up, stream, "up")
        assert up.get("/")[1].startswith("<!doctype html>")
        shown = command("top", urlsplit(up.admin).netloc)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert stream[-8:] in shown.stdout
        assert up.stop() == 0


@pytest.mark.kafka
def test_tap_and_worker(kafka: str, prefix: str, tmp_path: Path) -> None:
    broker = ["--kafka", kafka, "--topic-prefix", prefix]
    with provider() as small, start_worker(kafka, prefix, tmp_path / "worker") as worker:
        wait_until_ready(worker)
        answer = asked(worker)
        assert answer["unready"] is None
        assert len(answer["partitions"]) > 1
        with start_tap("tap", {"small": small.url}, tmp_path / "tap", *broker) as tap:
            assert asked(tap)["open"]["total"] == 0  # from now on it looks
            with open_stream(tap, small):
                stream = check_open(worker, "worker")
                assert check_open(tap, "tap") == stream
            for running, process in ((worker, "worker"), (tap, "tap")):
                check_finished(running, stream, process)
            assert tap.stop() == 0
        assert worker.stop() == 0
