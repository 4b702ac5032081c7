"""Replay of Streamgauge's own bundles: those of a spool or topic give exactly the bytes that were made of them live."""

import asyncio
import shutil
from pathlib import Path

import pytest

from streamgauge_demo.child import simulator_process
from tests.integration.load import ask_all, mixed
from tests.integration.synthetic import SyntheticTap, distinct
from tests.kafka_broker.reading import read_all, write_all
from tests.running import command, start, start_tap, start_up, wait_until_ready

STREAMS = 120
UPSTREAMS = ("nanogpt", "nimbus", "sansa", "gateway", "local")
# The simulator's rate: streams overlap, and each is in several bundles.
PACE = 0.3


def replayed(*arguments: str) -> dict[str, str]:
    """The printed records by stream id, each stream once; asserts that nothing else is printed."""
    done = command("replay", *arguments, "--output", "jsonl")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return by_stream(done.stdout)


def by_stream(lines: str) -> dict[str, str]:
    found = {line.split('"stream_id":"', 1)[1][:36]: line for line in lines.splitlines()}
    assert len(found) == len(lines.splitlines())
    return found


def recorded_while_the_broker_is_away(data_dir: Path) -> None:
    """A tap whose streams all wait in its spool."""

    async def play() -> None:
        async with simulator_process(PACE) as simulator:
            with start_tap("tap", dict.fromkeys(UPSTREAMS, simulator.url), data_dir, "--kafka", "127.0.0.1:1") as tap:
                await ask_all(tap.url, mixed(STREAMS))
                live = command("replay", str(data_dir / "spool.sqlite"), "--output", "jsonl")
                assert live.returncode == 0
                assert tap.stop() == 0, tap.log

    asyncio.run(play())


def test_a_spool_gives_the_bytes_that_up_puts_into_the_ledger(tmp_path: Path) -> None:
    data_dir, copied = tmp_path / "data", tmp_path / "copied"
    recorded_while_the_broker_is_away(data_dir)
    again = replayed(str(data_dir / "spool.sqlite"))
    assert len(again) == STREAMS
    copied.mkdir()
    shutil.copy(data_dir / "spool.sqlite", copied)
    assert replayed(str(copied)) == again
    with start_up({"none": "http://127.0.0.1:1"}, data_dir) as up:
        up.wait_for_records(STREAMS)
        result = command("ledger", "query", "--data-dir", str(data_dir), "--output", "jsonl")
        assert up.stop() == 0
    live = by_stream(result.stdout)
    # The ledger adds a cost as the last member.
    assert again == {stream: line.rpartition(',"cost":')[0] + "}" for stream, line in live.items()}


@pytest.mark.kafka
def test_the_topic_gives_the_bytes_of_the_records_topic(kafka: str, prefix: str, tmp_path: Path) -> None:
    place = ("--kafka", kafka, "--topic-prefix", prefix)
    worker_dir = tmp_path / "worker"
    flags = [*place, "--admin", "127.0.0.1:0", "--data-dir", str(worker_dir)]

    async def play() -> None:
        async with simulator_process(PACE) as simulator:
            upstreams = dict.fromkeys(UPSTREAMS, simulator.url)
            with (
                start("worker", flags, worker_dir) as worker,
                start_tap("tap", upstreams, tmp_path / "tap", *place) as tap,
            ):
                wait_until_ready(worker)
                await ask_all(tap.url, mixed(STREAMS))
                worker.wait_for_records(STREAMS)
                assert (tap.stop(), worker.stop()) == (0, 0)

    asyncio.run(play())
    live = distinct(asyncio.run(read_all(kafka, f"{prefix}.records")))
    again = replayed(*place)
    assert {stream: {line.encode()} for stream, line in again.items()} == {
        key: set(value) for key, value in live.items()
    }
    assert len(again) == STREAMS


@pytest.mark.kafka
def test_the_topic_is_read_to_its_end_and_unreadable_messages_are_reported(kafka: str, prefix: str) -> None:
    tap = SyntheticTap(7)
    whole = list(tap.bundles(40))
    opened = list(tap.begin(3))
    asyncio.run(write_all(kafka, f"{prefix}.segments", [*whole, (0, b"no bundle"), *opened]))
    done = command("replay", "--kafka", kafka, "--topic-prefix", prefix, "--output", "jsonl")
    assert done.returncode == 1
    assert by_stream(done.stdout).keys() == set(tap.ids[:40])
    assert f"{prefix}.segments/0: 1 row is damaged, or not a bundle of this version" in done.stderr
    assert sum(int(line.split(": ")[-1].split()[0]) for line in done.stderr.splitlines() if "not ended" in line) == 3


@pytest.mark.kafka
def test_missing_topics_end_with_the_code_of_a_missing_resource(kafka: str) -> None:
    done = command("replay", "--kafka", kafka, "--topic-prefix", "nobody-made-this")
    assert (done.returncode, done.stdout.count("\n")) == (3, 1) or (done.returncode, done.stdout) == (3, "")
    assert "run `streamgauge topics create` first" in done.stderr
