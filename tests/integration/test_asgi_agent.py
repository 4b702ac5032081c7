"""A server without its agent, with an agent that starts later, and with several workers that share an agent."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import decode_bundle
from streamgauge.kafka.topics import Topics
from streamgauge.spool.read_counters import read_balance
from tests.cli.test_agent import agent
from tests.integration.test_asgi import ASK, Server, server
from tests.kafka_broker.reading import read_all
from tests.processes import children
from tests.running import wait_for

TEXT = "Hello world"


def ask(running: Server, times: int = 1) -> None:
    """Each on a separate connection, so that several workers get some."""
    import openai

    for _ in range(times):
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="key", max_retries=3) as client:
            chunks = list(client.chat.completions.create(model="plain", messages=ASK, stream=True))
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == TEXT


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"


@pytest.fixture
def environment(data_dir: Path) -> dict[str, str]:
    return {"STREAMGAUGE_DATA_DIR": str(data_dir)}


def test_an_agent_that_starts_later_gets_what_was_captured(
    tmp_path: Path, data_dir: Path, environment: dict[str, str]
) -> None:
    """Also where STREAMGAUGE_KAFKA is set, a server starts no process by itself."""
    with server(tmp_path, {**environment, "STREAMGAUGE_KAFKA": "127.0.0.1:1"}) as running:
        ask(running, 3)
        wait_for(lambda: "no agent runs at" in running.log, "the warning")
        assert f"`streamgauge up --agent --data-dir {data_dir}`" in running.log
        assert children(running.process.pid) == {}
        with agent(data_dir) as up:
            assert [record["outcome"] for record in up.wait_for_records(3)] == ["completed"] * 3
            ask(running)
            up.wait_for_records(4)
        assert running.log.count("no agent runs at") == 1
        assert "Traceback" not in running.log
    balance = read_balance(data_dir / "counters")
    assert balance.dropped == dict.fromkeys(balance.dropped, 0)


def test_what_a_server_held_that_ended_without_an_agent_is_counted_by_the_next_agent(
    tmp_path: Path, data_dir: Path, environment: dict[str, str]
) -> None:
    """uvicorn raises the signal again that ended it, so that no exit handler runs."""
    with server(tmp_path, environment) as running:
        ask(running, 2)
        running.stop()
        assert "Traceback" not in running.log
    seen = read_balance(data_dir / "counters").seen
    assert seen > 0
    with agent(data_dir) as up:
        wait_for(lambda: up.metrics()["streamgauge_tap_reads_waiting"] == 0, "a closed balance")
    balance = read_balance(data_dir / "counters")
    assert (balance.seen, balance.waiting, balance.dropped["crash"]) == (seen, 0, seen)


@pytest.mark.kafka
def test_the_streams_of_a_server_that_has_ended_reach_the_broker(
    tmp_path: Path, data_dir: Path, environment: dict[str, str], kafka: str, prefix: str
) -> None:
    options = ("--kafka", kafka, "--topic-prefix", prefix)
    with agent(data_dir, *options, name="tap") as tap:
        with server(tmp_path, environment) as running:
            ask(running)
            wait_for(lambda: tap.metrics()["streamgauge_tap_reads_delivered_total"] >= 1, "a delivered read")
            ask(running)
            running.stop()
        assert tap.stop() == 0
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


def test_several_workers_share_an_agent_and_use_the_next_one(
    tmp_path: Path, data_dir: Path, environment: dict[str, str]
) -> None:
    with server(tmp_path, environment, "--workers", "2") as running:
        with agent(data_dir) as up:
            ask(running, 8)
            up.wait_for_records(8)
            assert up.stop() == 0
        ask(running, 8)
        with agent(data_dir) as up:
            assert [record["outcome"] for record in up.wait_for_records(16)] == ["completed"] * 16
        running.stop()
    balance = read_balance(data_dir / "counters")
    assert balance.dropped == dict.fromkeys(balance.dropped, 0)
