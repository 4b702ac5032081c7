"""A rolling update: two workers and two taps are replaced one by one while clients send requests.

The official client sees no error, and every stream has exactly one record, which is complete. In between is haproxy with the
configuration of docs/guides/operations.md.
"""

import asyncio
import contextlib
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from streamgauge.kafka.topics import Topics
from streamgauge_demo.scenario import Scenario
from tests.chaos.upstream import LONG, PROGRAM
from tests.deploy.balancer import Balancer, Places, balancer
from tests.integration.synthetic import distinct
from tests.integration.test_chain import count_of
from tests.kafka_broker.reading import read_all
from tests.ports import free_port
from tests.running import Running, program, start, wait_for, wait_until_ready

# The client takes long to import, and each test process imports this module.
if TYPE_CHECKING:
    from openai import AsyncOpenAI

# Streams of four seconds: each tap has some open when it is asked to stop.
SCENARIO: Scenario = LONG[0]
CLIENTS = 6
# Before the first process is replaced, and after each one (seconds).
PAUSE_S = 2.0
# A stream of four seconds that takes longer hangs (seconds).
PATIENCE_S = 90.0
# Until all is worked off, on a busy machine (seconds).
SETTLE_S = 120.0


@dataclass
class Seen:
    """What the clients saw: the trace ids of their streams, and each error."""

    streams: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass
class Member:
    """A process of the deployment, which can be replaced by a new one."""

    command: str
    flags: list[str]
    place: Path
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    running: Running | None = None

    def start(self) -> None:
        """Starts it, and waits until it is ready."""
        self.running = self.stack.enter_context(start(self.command, self.flags, self.place))
        wait_until_ready(self.running)

    def stop(self) -> None:
        """SIGTERM; it ends in order."""
        assert self.running is not None
        assert self.running.stop() == 0, self.running.log


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_a_rolling_update_costs_no_stream(kafka: str, prefix: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    topics = ["--kafka", kafka, "--topic-prefix", prefix]
    workers = [
        Member(
            "worker",
            [*topics, "--admin", "127.0.0.1:0", "--ledger", f"sqlite:///{ledger}", "--data-dir", str(tmp_path / name)],
            tmp_path / name,
        )
        for name in ("worker-1", "worker-2")
    ]
    places = [Places(name, free_port(), free_port()) for name in ("tap-1", "tap-2")]
    with program(*PROGRAM) as upstream:
        taps = [
            Member(
                "tap",
                [
                    *(*topics, "--upstream", f"{SCENARIO.upstream}={upstream.said}"),
                    *("--listen", f"127.0.0.1:{place.llm}"),
                    *("--admin", f"127.0.0.1:{place.admin}", "--data-dir", str(tmp_path / place.name)),
                ],
                tmp_path / place.name,
            )
            for place in places
        ]
        with all_of([*workers, *taps]), balancer(tmp_path, places) as front:
            for place in places:
                front.wait_until_up(place.name)
            seen = asyncio.run(replace_all(front, workers, dict(zip(places, taps, strict=True))))
            assert seen.errors == []
            assert len(seen.streams) > 2 * CLIENTS
            records = wait_for_records(kafka, prefix, len(seen.streams))
            wait_for(lambda: count_of(ledger) >= len(records), "records in the ledger", SETTLE_S)
            assert count_of(ledger) == len(records)
            balances = [balance(tap) for tap in taps]
    assert Counter(record["trace_id"] for record in records) == dict.fromkeys(seen.streams, 1)
    expected = SCENARIO.expected
    for record in records:
        assert (record["outcome"], record["finish_reason"]) == (expected.outcome, expected.finish)
        assert record["integrity"]["complete"] is True
        assert record["counts"]["token_events"] == expected.content.token_events
    assert [one["dropped"] for one in balances] == [0, 0]
    assert all(one["seen"] == one["delivered"] > 0 for one in balances), "each new tap had traffic"


@contextlib.contextmanager
def all_of(members: list[Member]) -> Iterator[None]:
    """All of them, ready."""
    with contextlib.ExitStack() as stack:
        for member in members:
            stack.callback(member.stack.close)
            member.start()
        yield


async def replace_all(front: Balancer, workers: list[Member], taps: dict[Places, Member]) -> Seen:
    """Replaces each process while clients send requests."""
    seen, over = Seen(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(ask_until(over, front.url, seen))
        await asyncio.sleep(PAUSE_S)
        for worker in workers:
            await asyncio.to_thread(worker.stop)
            await asyncio.to_thread(worker.start)
            await asyncio.sleep(PAUSE_S)
        for place, tap in taps.items():
            await asyncio.to_thread(front.drain, place.name)
            await asyncio.to_thread(tap.stop)
            await asyncio.to_thread(tap.start)
            await asyncio.to_thread(front.bring_back, place.name)
            await asyncio.sleep(PAUSE_S)
        over.set()
    return seen


async def ask_until(over: asyncio.Event, url: str, seen: Seen) -> None:
    """One stream after another on kept connections. The client does not retry."""
    from openai import AsyncOpenAI

    base = f"{url}/{SCENARIO.upstream}/v1"
    async with AsyncOpenAI(api_key="sk-test", base_url=base, max_retries=0, timeout=PATIENCE_S) as client:
        while not over.is_set():
            trace = uuid.uuid4().hex
            seen.streams.append(trace)
            try:
                text = await text_of(client, {"traceparent": f"00-{trace}-{trace[:16]}-01"})
                if text != SCENARIO.expected.content.text:
                    seen.errors.append(f"{trace}: another text")
            except Exception as error:  # noqa: BLE001 - whatever a client sees is a finding
                seen.errors.append(f"{trace}: {error!r}")


async def text_of(client: "AsyncOpenAI", headers: dict[str, str]) -> str:
    stream = await client.chat.completions.create(
        model=SCENARIO.model, messages=[{"role": "user", "content": "?"}], stream=True, extra_headers=headers
    )
    texts = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    return "".join(texts)


def wait_for_records(bootstrap: str, prefix: str, count: int) -> list[dict[str, Any]]:
    """The topic's records, each in one version, once there are this many."""

    def found() -> list[dict[str, Any]] | None:
        versions = distinct(asyncio.run(read_all(bootstrap, Topics(prefix).records)))
        assert all(len(ones) == 1 for ones in versions.values())
        records = [msgspec.json.decode(one) for ones in versions.values() for one in ones]
        return records if len(records) >= count else None

    return list(wait_for(found, f"{count} records", SETTLE_S))


def balance(tap: Member) -> dict[str, float]:
    """The reads that the tap has seen, delivered and dropped, once none waits."""
    assert tap.running is not None
    running = tap.running
    page = wait_for(
        lambda: (page := running.metrics())["streamgauge_tap_reads_waiting"] == 0 and page, "a settled balance"
    )
    sums: Counter[str] = Counter()
    for series, value in page.items():
        if word := re.match(r"streamgauge_tap_reads_(seen|delivered|dropped)_total", series):
            sums[word[1]] += int(value)
    return {word: sums[word] for word in ("seen", "delivered", "dropped")}
