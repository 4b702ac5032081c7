"""The official clients through the httpx tap: they see what they see without it, and its records equal the proxy's.

One `up` is used for both: its relay is in front of the simulator, and its recorder receives from the taps of this
process.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from streamgauge.taps.httpx import AsyncTapTransport, TapTransport
from streamgauge.taps.inprocess import background_senders
from streamgauge_demo.driver import API_KEY, Clients, drive
from streamgauge_demo.scenario import Scenario
from streamgauge_demo.scenarios import SCENARIOS, UPSTREAMS
from streamgauge_demo.verdict import client_differences
from tests.demo.running import simulator
from tests.each import check_each
from tests.running import start_up, wait_for

pytestmark = pytest.mark.slow

Kind = Literal["sync", "async"]
KINDS: tuple[Kind, ...] = ("sync", "async")
# Without the scenarios of the relay's own time-outs: this tap has none, its client has.
PLAYED = [one for one in SCENARIOS if not one.tap_only and one.answer.ends]
CONCURRENCY = 4

# What differs because the exchange or the point of capture is another one: ids and times, and what only the wire shows.
OWN = {"stream_id", "tap", "tap_instance", "started_at", "timing", "upstream", "provider_request_id"}
OF_COUNTS = {"reads", "segments", "client_bytes"}
OF_CHOICES = {"first_token_s"}


class Tapped(Clients):
    """The demo's clients: their usual HTTP clients with the tap's transport."""

    def __init__(self, kind: Kind, data_dir: Path) -> None:
        import anthropic
        import openai

        usual: dict[str, Any] = {"api_key": API_KEY, "max_retries": 0}
        if kind == "sync":
            pools = [
                maker(transport=TapTransport(data_dir=data_dir))
                for maker in (openai.DefaultHttpxClient, anthropic.DefaultHttpxClient)
            ]
            self._openai, self._anthropic = (
                openai.OpenAI(**usual, http_client=pools[0]),
                anthropic.Anthropic(**usual, http_client=pools[1]),
            )
        else:
            async_pools = [
                maker(transport=AsyncTapTransport(data_dir=data_dir))
                for maker in (openai.DefaultAsyncHttpxClient, anthropic.DefaultAsyncHttpxClient)
            ]
            self._openai, self._anthropic = (
                openai.AsyncOpenAI(**usual, http_client=async_pools[0]),
                anthropic.AsyncAnthropic(**usual, http_client=async_pools[1]),
            )


class Ran:
    """What the clients saw, by model, and the ledger's records, by tap and model."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self.records: dict[str, dict[str, dict[str, Any]]] = {}


async def play(clients: Clients, root: str, seen: dict[str, Any]) -> None:
    places = asyncio.Semaphore(CONCURRENCY)

    async def one(scenario: Scenario) -> None:
        async with places:
            seen[scenario.model] = await drive(clients, scenario, root)

    await asyncio.gather(*map(one, PLAYED))
    closing: Any = clients.close()
    if inspect.isawaitable(closing):
        await closing


@pytest.fixture(scope="module", params=KINDS)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    kind: Kind = request.param
    data_dir, result = tmp_path_factory.mktemp("up") / "data", Ran()
    with simulator() as upstream, start_up(dict.fromkeys(UPSTREAMS, upstream.url), data_dir) as tap:
        asyncio.run(play(Clients(sync=kind == "sync"), tap.url, {}))
        asyncio.run(play(Tapped(kind, data_dir), upstream.url, result.seen))
        background_senders.end()
        records = tap.wait_for_records(2 * len(PLAYED))
        balance = wait_for(lambda: tap.metrics().get("streamgauge_tap_reads_waiting") == 0.0, "balance")
    for record in records:
        result.records.setdefault(record["tap"], {})[record["request_model"]] = record
    assert balance
    yield result


def check_played(check: Callable[[Scenario], None]) -> None:
    check_each(PLAYED, check, lambda scenario: scenario.model)


def test_clients_see_what_the_scenario_defines(ran: Ran) -> None:
    def check(scenario: Scenario) -> None:
        assert client_differences(scenario, ran.seen[scenario.model]) == []

    check_played(check)


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in record.items() if name not in OWN}
    kept["counts"] = {name: value for name, value in record["counts"].items() if name not in OF_COUNTS}
    kept["choices"] = [
        {name: value for name, value in one.items() if name not in OF_CHOICES} for one in record["choices"]
    ]
    kept["timing"] = sorted(name for name, value in record["timing"].items() if value is not None)
    return kept


# Times that one of them has and the other has not: a connection of the relay's own, what a socket shows of a client, and the
# gap between two reads, where a busy machine may give all in one.
ELSEWHERE = {"upstream_connect_s", "client_blocked_s", "client_gone_s", "wire_max_gap_s"}


def test_the_record_equals_the_proxys(ran: Ran) -> None:
    check_played(lambda scenario: the_record_is_the_proxys(ran, scenario))


def the_record_is_the_proxys(ran: Ran, scenario: Scenario) -> None:
    """A client that stops reading, for example at an error, leaves bytes unread that the relay has read, so it may count
    fewer.
    """
    proxy, httpx = (comparable(ran.records[tap][scenario.model]) for tap in ("proxy", "httpx"))
    for one in (proxy, httpx):
        one["timing"] = [name for name in one["timing"] if name not in ELSEWHERE]
    if ran.records["httpx"][scenario.model]["timing"]["client_gone_s"] is not None:
        mine, all_of_it = httpx.pop("counts"), proxy.pop("counts")
        assert all(mine[name] <= all_of_it[name] for name in all_of_it)
        assert mine["token_events"] == all_of_it["token_events"] or scenario.leave_after is not None
    assert httpx == proxy


def test_the_comparison_is_not_empty(ran: Ran) -> None:
    assert len(PLAYED) > 20
    httpx = ran.records["httpx"].values()
    assert len({record["outcome"] for record in httpx}) >= 4
    assert {record["upstream"] for record in httpx} == {next(iter(httpx))["upstream"]}
    assert all(record["counts"]["bytes"] > 0 for record in httpx if record["status_code"] == 200)
    assert all(record["request"]["body_bytes"] > 0 for record in httpx)
    assert all(record["timing"]["request_sent_s"] is not None for record in httpx)
