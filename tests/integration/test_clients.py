"""The official clients, sync and async, directly against the simulator and through the real tap: they see the same.

First the simulator itself is checked: what the clients make of its bytes is what each scenario defines.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from streamgauge_demo.driver import Clients, drive
from streamgauge_demo.scenario import Scenario
from streamgauge_demo.scenarios import SCENARIOS, UPSTREAMS
from streamgauge_demo.tally import Seen
from streamgauge_demo.verdict import client_differences
from tests.demo.raw import exchange
from tests.demo.running import simulator
from tests.each import check_each
from tests.running import start_up

BOTH_WAYS = [scenario for scenario in SCENARIOS if not scenario.tap_only]
TAP_ONLY = [scenario for scenario in SCENARIOS if scenario.tap_only]

# Concurrent streams of the async clients.
CONCURRENCY = 4

# The tap's time-out for a silent upstream: far longer than any quick scenario pauses.
OPTIONS = ("--upstream-idle-timeout", "5")

Kind = Literal["sync", "async"]
KINDS: tuple[Kind, ...] = ("sync", "async")


@dataclass
class Played:
    """What one client saw of a scenario: its own summary, and each object as it came."""

    seen: Seen
    items: list[Any] = field(default_factory=list)


Plays = dict[str, Played]


@pytest.fixture(scope="module")
def direct() -> Iterator[str]:
    with simulator() as started:
        yield started.url


@pytest.fixture(scope="module")
def tap(direct: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_up(dict.fromkeys(UPSTREAMS, direct), tmp_path_factory.mktemp("up") / "data", *OPTIONS) as running:
        yield running.url


async def played(clients: Clients, scenario: Scenario, root: str) -> Played:
    items: list[Any] = []
    seen = await drive(clients, scenario, root, lambda _, item: items.append(item.model_dump()))  # type: ignore[attr-defined]
    return Played(seen, items)


def play_all(kind: Kind, scenarios: list[Scenario], root: str) -> Plays:
    """Each scenario once, by model: one after another with the sync clients, several at a time with the async ones."""

    async def run() -> Plays:
        clients, places = Clients(sync=kind == "sync"), asyncio.Semaphore(CONCURRENCY)

        async def one(scenario: Scenario) -> Played:
            async with places:
                return await played(clients, scenario, root)

        plays = await asyncio.gather(*map(one, scenarios))
        await clients.close()
        return {play.seen.model: play for play in plays}

    return asyncio.run(run())


@pytest.fixture(scope="module")
def directly(direct: str) -> dict[Kind, Plays]:
    return {kind: play_all(kind, BOTH_WAYS, direct) for kind in KINDS}


@pytest.fixture(scope="module")
def through_the_tap(tap: str) -> dict[Kind, Plays]:
    return {kind: play_all(kind, list(SCENARIOS), tap) for kind in KINDS}


def check_scenarios(scenarios: list[Scenario], check: Callable[[Scenario], None]) -> None:
    check_each(scenarios, check, lambda scenario: scenario.model)


@pytest.mark.parametrize("kind", KINDS)
def test_clients_see_in_the_simulator_what_the_scenario_defines(directly: dict[Kind, Plays], kind: Kind) -> None:
    def check(scenario: Scenario) -> None:
        assert client_differences(scenario, directly[kind][scenario.model].seen) == []

    check_scenarios(BOTH_WAYS, check)


@pytest.mark.parametrize("kind", KINDS)
def test_clients_see_through_the_tap_what_the_scenario_defines(through_the_tap: dict[Kind, Plays], kind: Kind) -> None:
    def check(scenario: Scenario) -> None:
        assert client_differences(scenario, through_the_tap[kind][scenario.model].seen) == []

    check_scenarios(list(SCENARIOS), check)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tap_changes_no_object_and_no_exception(
    directly: dict[Kind, Plays], through_the_tap: dict[Kind, Plays], kind: Kind
) -> None:
    def check(scenario: Scenario) -> None:
        alone, tapped = directly[kind][scenario.model], through_the_tap[kind][scenario.model]
        assert tapped.items == alone.items
        assert tapped.seen.error == alone.seen.error
        assert tapped.seen.error_body == alone.seen.error_body
        assert (tapped.seen.request_id is None) == (alone.seen.request_id is None)

    check_scenarios(BOTH_WAYS, check)


def test_the_tap_changes_no_byte(direct: str, tap: str) -> None:
    def check(scenario: Scenario) -> None:
        assert exchange(scenario, tap).comparable == exchange(scenario, direct).comparable

    check_scenarios(BOTH_WAYS, check)


def test_the_comparison_is_not_empty(directly: dict[Kind, Plays]) -> None:
    """There are objects, exceptions and bodies to compare."""
    plays = [play for kind in KINDS for play in directly[kind].values()]
    assert sum(len(play.items) for play in plays) > 1000
    assert len({play.seen.error[0] for play in plays if play.seen.error}) >= 6
    assert any(play.seen.error_body for play in plays)
    assert TAP_ONLY
