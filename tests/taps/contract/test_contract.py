"""The contract of all taps: the same stream in, the same record out, and the client gets the upstream's bytes.

Each scenario goes through each driver. Its record equals that of the reference, whose facts are written by hand in
scenarios.py, except where apart.py allows a difference. The official clients are tested elsewhere: through the proxy in
tests/integration/test_clients.py, httpx in tests/taps/test_httpx_clients.py, the ASGI tap in
tests/integration/test_asgi.py, packets next to the proxy in tests/integration/test_packets.py.
"""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

import pytest

from streamgauge.taps.replay import exchange
from tests.each import check_each
from tests.taps.contract.apart import APART, unexplained
from tests.taps.contract.asking import Received, expected
from tests.taps.contract.comparing import differing
from tests.taps.contract.drivers import DRIVERS
from tests.taps.contract.scenario import CANARY, SECRET, Scenario, reference
from tests.taps.contract.scenarios import BY_NAME, SCENARIOS
from tests.taps.contract.written import Written, written
from tests.vectors.load import differences

# In this order, where present.
TIMES = (
    "request_sent_s", "headers_s", "first_byte_s", "first_event_s", "first_token_s", "last_token_s", "finish_s", "end_s",
)  # fmt: skip

# The tap's name in records where it is not the driver's tap: `replay` sets its own name last (cli/replay.py).
NAMES = {"replay": {"replay", exchange.TAP}}

Referred = Callable[[str], list[dict[str, Any]]]


class Passed(NamedTuple):
    """The result of one scenario."""

    scenario: Scenario
    received: Received | None
    masked: Written
    full: Written


class Ran(NamedTuple):
    driver: str
    passed: dict[str, Passed]

    def records(self) -> Iterator[tuple[Scenario, dict[str, Any]]]:
        """The record of the full capture for each scenario that has one."""
        for name, one in self.passed.items():
            for record in one.full.records:
                yield BY_NAME[name], record


of_each_driver = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=driver.marks) for name, driver in DRIVERS.items()]
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """All scenarios through one driver, once."""

    begun: set[str] = set()

    @cache
    def run(name: str) -> Ran:
        assert name not in begun, "the run failed: see the driver's first test"
        begun.add(name)
        driver = DRIVERS[name]
        scenarios = [one for one in SCENARIOS if one.name not in driver.without]
        results = driver.run(tmp_path_factory.mktemp(name), scenarios)
        return Ran(
            name,
            {
                scenario.name: Passed(scenario, result.received, result.write("masked"), result.write("full"))
                for scenario, result in zip(scenarios, results, strict=True)
            },
        )

    return run


@pytest.fixture
def ran(runs: Callable[[str], Ran], name: str) -> Ran:
    return runs(name)


@pytest.fixture(scope="module")
def referred() -> Referred:
    """The reference's records of a scenario, computed once."""
    return cache(lambda name: written(reference(BY_NAME[name]), "full").records)


def test_the_reference_has_the_facts_that_are_written_by_hand(referred: Referred) -> None:
    def check(scenario: Scenario) -> None:
        records = referred(scenario.name)
        assert len(records) == (scenario.record is not None)
        for record in records:
            assert list(differences(scenario.record, record)) == []

    check_each(SCENARIOS, check, lambda scenario: scenario.name)


@of_each_driver
def test_each_scenario(ran: Ran, referred: Referred) -> None:
    def check(passed: Passed) -> None:
        the_client_gets_what_the_upstream_sent(ran, passed)
        the_record_is_the_references(ran, passed, referred(passed.scenario.name))
        a_masked_capture_gives_the_same_record(passed)
        no_secret_is_written(passed)

    check_each(ran.passed.values(), check, lambda passed: passed.scenario.name)


def the_client_gets_what_the_upstream_sent(ran: Ran, passed: Passed) -> None:
    live = DRIVERS[ran.driver].start is not None
    assert passed.received == (expected(passed.scenario) if live else None)


def the_record_is_the_references(ran: Ran, passed: Passed, records: list[dict[str, Any]]) -> None:
    assert len(passed.full.records) == len(records)
    for wanted, record in zip(records, passed.full.records, strict=True):
        assert unexplained(ran.driver, passed.scenario, wanted, record) == []
        assert record["tap"] in NAMES.get(DRIVERS[ran.driver].tap, {DRIVERS[ran.driver].tap})


@of_each_driver
def test_each_allowed_difference_is_needed(ran: Ran, referred: Referred) -> None:
    """An entry that nothing needs would hide a later bug."""
    found = {scenario.name: differing(referred(scenario.name)[0], record) for scenario, record in ran.records()}
    for entry in APART[ran.driver]:
        of = {name: paths for name, paths in found.items() if entry.is_of(name)}
        for pattern in entry.paths:
            assert any(fnmatchcase(path, pattern) for paths in of.values() for path in paths), (entry.why, pattern)
        for name in entry.only:
            assert any(map(entry.covers, of[name])), (entry.why, name)


def a_masked_capture_gives_the_same_record(passed: Passed) -> None:
    assert len(passed.masked.records) == len(passed.full.records)
    for masked, full in zip(passed.masked.records, passed.full.records, strict=True):
        assert (masked["capture"], full["capture"]) == ("masked", "full")
        calls = [call for choice in masked["choices"] for call in choice["tool_calls"]]
        assert all(call["arguments_valid"] is None for call in calls)
        own = {"stream_id": None, "capture": None}
        assert {**masked, **own} == {**full, **own, "choices": without_validity(full)}


def without_validity(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {**choice, "tool_calls": [{**call, "arguments_valid": None} for call in choice["tool_calls"]]}
        for choice in record["choices"]
    ]


def no_secret_is_written(passed: Passed) -> None:
    assert CANARY.encode() not in passed.masked.bundles
    for capture in (passed.masked, passed.full):
        assert SECRET.encode() not in capture.bundles
        assert b"case=" not in capture.bundles


@of_each_driver
def test_the_secrets_were_part_of_the_streams(ran: Ran) -> None:
    """Otherwise `no_secret_is_written` would show nothing."""
    assert CANARY.encode() in ran.passed["chat"].full.bundles
    assert SECRET.encode() in BY_NAME["chat"].request()
    assert SECRET.encode() in BY_NAME["chat"].head()


@of_each_driver
def test_times_are_in_order(ran: Ran) -> None:
    stamped = 0
    for scenario, record in ran.records():
        times = [record["timing"][name] for name in TIMES if record["timing"][name] is not None]
        assert times == sorted(times), scenario.name
        assert all(time >= 0 for time in times)
        gone_s, end_s = record["timing"]["client_gone_s"], record["timing"]["end_s"]
        assert gone_s is None or 0 <= gone_s <= end_s
        stamped += bool(times)
    unstamped = any("timing.first_*" in apart.paths for apart in APART[ran.driver])
    assert stamped > 20 or unstamped
