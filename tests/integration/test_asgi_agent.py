"""A server that starts its own agent because STREAMGAUGE_KAFKA is set: with a broker, without, and with several workers."""

import asyncio
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import decode_bundle
from streamgauge.kafka.topics import Topics
from streamgauge.spool.read_counters import read_balance
from streamgauge.taps.replay.contract import Tally
from streamgauge.taps.replay.spool_rows import logged
from tests.cli.test_agent import agent
from tests.cli.test_tap import UNREACHABLE
from tests.integration.test_asgi import ASK, Server, server
from tests.kafka_broker.reading import read_all
from tests.processes import children, runs
from tests.running import wait_for

TEXT = "Hello world"


def environment(data_dir: Path, kafka: str, **more: str) -> dict[str, str]:
    return {
        "STREAMGAUGE_DATA_DIR": str(data_dir),
        "STREAMGAUGE_KAFKA": kafka,
        "STREAMGAUGE_ADMIN": "127.0.0.1:0",
        "STREAMGAUGE_DRAIN_TIMEOUT": "5",
        **more,
    }


def ask(running: Server, times: int = 1) -> None:
    """Each on a separate connection, so that several workers get some."""
    import openai

    for _ in range(times):
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="key", max_retries=3) as client:
            chunks = list(client.chat.completions.create(model="plain", messages=ASK, stream=True))
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == TEXT


def agents(pid: int) -> list[int]:
    """Agents that this process or one of its children has started."""
    found = children(pid)
    own = [child for child, line in found.items() if "streamgauge tap --child" in line]
    return own + [one for child in found if child not in own for one in agents(child)]


def page(running: Server) -> dict[str, float]:
    """The metrics of the agent that was started last; empty if there is none."""
    found = re.findall(r"metrics at (http://\S+/metrics)", running.log)
    if not found:
        return {}
    try:
        with urllib.request.urlopen(found[-1], timeout=10) as answer:
            lines = [line for line in answer.read().decode().splitlines() if line and not line.startswith("#")]
    except OSError:
        return {}
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def wait_for_reads(running: Server, name: str, at_least: float) -> dict[str, float]:
    key = f"streamgauge_tap_reads_{name}"
    return dict(wait_for(lambda: (now := page(running)).get(key, -1) >= at_least and now, f"{at_least} {name}"))


def outcomes(data_dir: Path, count: int) -> list[str]:
    with agent(data_dir) as up:
        return [record["outcome"] for record in up.wait_for_records(count)]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"


def test_without_a_broker_streams_are_served_and_the_spool_keeps_the_capture(tmp_path: Path, data_dir: Path) -> None:
    with server(tmp_path, environment(data_dir, UNREACHABLE)) as running:
        ask(running, 3)
        waiting = wait_for_reads(running, "waiting", 1)
        assert waiting["streamgauge_broker_connected"] == 0
        [child] = agents(running.process.pid)
        running.stop()
        wait_for(lambda: not runs(child), "the agent's end")
        assert "Traceback" not in running.log
    assert outcomes(data_dir, 3) == ["completed"] * 3


@pytest.mark.kafka
def test_a_server_that_ends_has_shipped_everything(tmp_path: Path, data_dir: Path, kafka: str, prefix: str) -> None:
    variables = environment(data_dir, kafka, STREAMGAUGE_TOPIC_PREFIX=prefix)
    with server(tmp_path, variables) as running:
        ask(running)
        wait_for_reads(running, "delivered_total", 1)
        [child] = agents(running.process.pid)
        ask(running)
        running.stop()
        assert not runs(child), "the server waited for it"
    assert "streamgauge" in running.log
    records = asyncio.run(records_in(kafka, prefix))
    assert [record.outcome for record in records] == ["completed"] * 2


async def records_in(kafka: str, prefix: str) -> list[Any]:
    """What an assembler makes of the segments topic."""
    messages = await read_all(kafka, Topics(prefix).segments)
    assembler = Assembler()
    return [
        record
        for number, message in enumerate(messages)
        for record in assembler.apply(number, number, decode_bundle(message.value))
    ]


def test_one_of_several_workers_has_the_agent_and_another_takes_over(tmp_path: Path, data_dir: Path) -> None:
    with server(tmp_path, environment(data_dir, UNREACHABLE), "--workers", "2") as running:
        ask(running, 8)
        wait_for_ended(data_dir, 8)
        [first] = agents(running.process.pid)
        owner = next(pid for pid in children(running.process.pid) if first in children(pid))
        os.kill(owner, signal.SIGKILL)
        wait_for(lambda: not runs(first), "the end of its agent")
        ask(running, 8)
        wait_for_ended(data_dir, 16)
        assert agents(running.process.pid) not in ([], [first])
        running.stop()
    balance = read_balance(data_dir / "counters")
    assert balance.dropped == dict.fromkeys(balance.dropped, 0)
    assert outcomes(data_dir, 16) == ["completed"] * 16


def wait_for_ended(data_dir: Path, count: int) -> None:
    """Waits until this many streams are in the spool with their ends."""

    def ended() -> int:
        if not (data_dir / "spool.sqlite").exists():
            return 0
        log = logged(data_dir / "spool.sqlite", Tally())
        return sum(segment.end is not None for _, _, bundle in log for segment in bundle.segments)

    wait_for(lambda: ended() == count, f"{count} streams in the spool")
