"""The whole chain as deployed: simulated providers, the tap, a real Kafka, Faust workers, the ledger.

A thousand streams run at once through `tap` and two workers, one of which is killed in the middle; and the same thousand
through `up`. Every stream has exactly one record, and both ways give the same.
"""

import asyncio
import contextlib
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamgauge_demo.child import simulator_process
from streamgauge_demo.scenario import Scenario
from streamgauge_demo.truth import Told
from tests.integration.load import ask_all, mixed
from tests.integration.synthetic import distinct
from tests.kafka_broker.reading import read_all
from tests.running import Running, command, start_tap, start_up, start_worker, wait_for, wait_until_ready

STREAMS = 1_000
UPSTREAMS = ("nanogpt", "nimbus", "sansa", "gateway", "local")

# The rate of the simulator for a thousand streams at once, and for measuring times: then reads are single events.
CROWDED = 1.0
PACED = 0.25

# What a record's times lose by rounding (seconds): each is given in microseconds, and a mean of up to a hundred gaps adds up.
ROUNDED_S = 0.001

# What is specific to one request, connection or time; the bytes determine everything else.
OWN = (
    "stream_id",
    "tap_instance",
    "started_at",
    "provider_request_id",
    "timing",
    "credential_id",
    "request_digest",
    "cost",
)


def comparable(record: dict[str, Any]) -> str:
    rest = {name: value for name, value in record.items() if name not in OWN}
    rest["choices"] = [{**choice, "first_token_s": None} for choice in record["choices"]]
    rest["counts"] = {**record["counts"], "reads": None, "segments": None}
    return msgspec.json.encode(rest, order="sorted").decode()


def wait_for_streams(ledger: Path, count: int) -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]] | None:
        result = command("ledger", "query", "--ledger", f"sqlite:///{ledger}", "--output", "jsonl")
        records = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
        return records if len(records) >= count else None

    return list(wait_for(found, f"{count} records in the ledger", 180))


@pytest.fixture
def scenarios() -> list[Scenario]:
    return mixed(STREAMS)


def through_up(simulator: str, scenarios: Sequence[Scenario], data_dir: Path) -> list[dict[str, Any]]:
    with start_up(dict.fromkeys(UPSTREAMS, simulator), data_dir) as up:
        asyncio.run(ask_all(up.url, scenarios))
        records = wait_for_streams(data_dir / "ledger.sqlite", len(scenarios))
        assert up.settled().keys() == {"seen", "delivered", "waiting"}
        assert up.stop() == 0, up.log
    return records


def through_kafka(
    simulator: str, scenarios: Sequence[Scenario], bootstrap: str, prefix: str, root: Path
) -> list[dict[str, Any]]:
    """Through `tap` and two workers; the first of them is killed while the streams run, and restarted."""
    ledger = root / "ledger.sqlite"
    kafka = ["--kafka", bootstrap, "--topic-prefix", prefix]
    with ExitStack() as running:

        def begin(name: str) -> Running:
            return running.enter_context(
                start_worker(bootstrap, prefix, root / name, "--ledger", f"sqlite:///{ledger}")
            )

        workers = [begin("first"), begin("second")]
        for one in workers:
            wait_until_ready(one)
        tap = running.enter_context(tap_of(simulator, root / "tap", kafka))
        asyncio.run(play_and_kill(tap, scenarios, workers[0], ledger))
        begin("first")
        records = wait_for_streams(ledger, len(scenarios))
        assert tap.settled().keys() == {"seen", "delivered", "waiting"}
        assert tap.stop() == 0, tap.log
    return records


def tap_of(simulator: str, data_dir: Path, kafka: list[str]) -> Any:
    return start_tap("tap", dict.fromkeys(UPSTREAMS, simulator), data_dir, *kafka)


async def play_and_kill(tap: Running, scenarios: Sequence[Scenario], victim: Running, ledger: Path) -> None:
    playing = asyncio.create_task(ask_all(tap.url, scenarios))
    await asyncio.to_thread(wait_for, lambda: count_of(ledger), "record")  # the workers are processing them
    assert not playing.done(), "the streams ended before the kill: slow them down"
    victim.process.send_signal(signal.SIGKILL)
    victim.process.wait()
    await playing


def count_of(ledger: Path) -> int:
    with contextlib.closing(sqlite3.connect(ledger)) as database:
        return int(database.execute("SELECT count(*) FROM records").fetchone()[0])


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_a_thousand_streams_through_kafka_and_without_it(
    kafka: str, prefix: str, scenarios: list[Scenario], tmp_path: Path
) -> None:
    asyncio.run(compare(kafka, prefix, scenarios, tmp_path))


async def compare(bootstrap: str, prefix: str, scenarios: list[Scenario], tmp_path: Path) -> None:
    async with simulator_process(CROWDED) as simulator:
        shipped = await asyncio.to_thread(
            through_kafka, simulator.url, scenarios, bootstrap, prefix, tmp_path / "kafka"
        )
        local = await asyncio.to_thread(through_up, simulator.url, scenarios, tmp_path / "up")
        requests = await simulator.told()
    for records in (shipped, local):
        assert len({record["stream_id"] for record in records}) == len(records) == len(scenarios)
        assert Counter(record["request_model"] for record in records) == Counter(
            scenario.model for scenario in scenarios
        )
        assert_as_expected(records, scenarios)
    assert Counter(map(comparable, shipped)) == Counter(map(comparable, local))
    assert len(requests) >= 2 * len(scenarios)
    await assert_topic_holds(bootstrap, prefix, shipped)


def assert_as_expected(records: list[dict[str, Any]], scenarios: Sequence[Scenario]) -> None:
    expected = {scenario.model: (scenario.expected.outcome, scenario.expected.finish) for scenario in scenarios}
    assert {
        record["stream_id"]: (record["request_model"], record["outcome"], record["finish_reason"])
        for record in records
        if (record["outcome"], record["finish_reason"]) != expected[record["request_model"]]
    } == {}


async def assert_topic_holds(bootstrap: str, prefix: str, records: list[dict[str, Any]]) -> None:
    """The records topic has each stream, in one version only, and the ledger has that version."""
    found = distinct(await read_all(bootstrap, f"{prefix}.records"))
    assert set(found) == {record["stream_id"] for record in records}
    for record in records:
        [version] = found[record["stream_id"]]
        assert msgspec.json.decode(version) == {name: value for name, value in record.items() if name != "cost"}


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "up"


def test_times_lie_between_those_of_the_simulator_and_of_the_client(quiet: Path) -> None:
    """Streams one after another, all stamps by one clock, so that pauses of the machine make no difference.

    A record's time zero is before the simulator read the request, and after the previous stream ended; its last token is
    after the simulator wrote it, and before the next request. How close they are is measured by `make
    bench-first-token`.
    """
    records, requests = asyncio.run(measure(quiet))
    in_order = sorted(requests.values(), key=lambda one: one.asked_ns)
    looked_at = 0
    for before, this, after in zip(in_order, in_order[1:], in_order[2:], strict=False):
        [record] = [one for one in records if one["provider_request_id"] == this.request_id] or [None]  # type: ignore[list-item]
        stamps = this.tokens_ns()
        if record is None or record["outcome"] != "completed" or len(stamps) < 2 or not before.wrote:
            continue
        if record["counts"]["token_events"] != len(stamps):
            continue
        looked_at += 1
        most_s = (after.asked_ns - before.wrote[-1].at_ns) / 1e9
        first_s = record["timing"]["first_token_s"]
        last_s = first_s + record["timing"]["gaps"]["mean_s"] * (len(stamps) - 1)
        assert (stamps[0] - this.asked_ns) / 1e9 - ROUNDED_S <= first_s <= last_s <= most_s + ROUNDED_S, this
        assert (stamps[-1] - this.asked_ns) / 1e9 - ROUNDED_S <= last_s, this
    assert looked_at >= 15


async def measure(data_dir: Path) -> tuple[list[dict[str, Any]], dict[str, Told]]:
    scenarios = mixed(60)
    async with simulator_process(PACED) as simulator:

        def run() -> list[dict[str, Any]]:
            with start_up(dict.fromkeys(UPSTREAMS, simulator.url), data_dir) as up:
                for scenario in scenarios:  # one after another: the machine has few cores
                    asyncio.run(ask_all(up.url, [scenario]))
                return up.wait_for_records(len(scenarios))

        records = await asyncio.to_thread(run)
        return records, await simulator.told()
