"""Several exchanges at the same time or one after another, and a tap with a bug in it."""

from pathlib import Path
from typing import Any

import pytest

from tests.taps.contract.apart import unexplained
from tests.taps.contract.asking import expected
from tests.taps.contract.drivers import DRIVERS, Running, packets_of
from tests.taps.contract.scenario import Scenario, reference
from tests.taps.contract.scenarios import BY_NAME, WITHOUT_ANSWER
from tests.taps.contract.written import written
from tests.taps.packets import wire
from tests.vectors.load import differences

STREAMS = 20
LIVE = [pytest.param(name, marks=driver.marks) for name, driver in DRIVERS.items() if driver.start]
# Drivers with our own client; the libraries open their own connections and leave by their own time-outs.
RAW = [one for one in LIVE if DRIVERS[str(one.values[0])].tap not in ("httpx", "boto3")]
ASKED_IN_VAIN = [
    pytest.param(*one.values, scenario, marks=one.marks, id=f"{one.values[0]}-{scenario.name}")
    for scenario in WITHOUT_ANSWER
    for one in (RAW if scenario.end == "client" else LIVE)
]
# A stream, a response that is not a stream, and a stream again.
IN_A_ROW = [BY_NAME[name] for name in ("chat", "not-streamed", "content-length")]


@pytest.mark.parametrize("name", LIVE)
def test_twenty_streams_at_once(name: str, tmp_path: Path) -> None:
    """Of two kinds, so that mixed-up streams would be noticed."""
    driver = DRIVERS[name]
    assert driver.start
    kinds = [BY_NAME["tool-call"], BY_NAME["chat-with-usage"]]
    scenarios = [kinds[number % len(kinds)] for number in range(STREAMS)]
    with driver.start(tmp_path) as running:
        results = running.run(scenarios, at_once=STREAMS)
    ids = set()
    for scenario, result in zip(scenarios, results, strict=True):
        assert result.received == expected(scenario)
        [record] = result.write("masked").records
        [wanted] = written(reference(scenario), "masked").records
        assert unexplained(name, scenario, wanted, record) == []
        assert record["integrity"]["complete"]
        ids.add(record["stream_id"])
    assert len(ids) == STREAMS


@pytest.mark.parametrize("name", RAW)
def test_one_exchange_after_another_on_one_connection(name: str, tmp_path: Path) -> None:
    driver = DRIVERS[name]
    assert driver.start
    with driver.start(tmp_path) as running:
        assert running.connect
        with running.connect() as client:
            received = [client.ask(scenario) for scenario in IN_A_ROW]
        reported = running.reported(0, len(IN_A_ROW))
    assert received == [expected(scenario) for scenario in IN_A_ROW]
    for scenario in IN_A_ROW:
        [record] = written(reported[scenario.name, 0], "full").records
        [wanted] = written(reference(scenario), "full").records
        assert unexplained(name, scenario, wanted, record) == []


def test_one_connection_in_a_capture_file() -> None:
    reported = wire.by_stream(wire.read(packets_of(*IN_A_ROW)))
    for scenario, messages in zip(IN_A_ROW, reported, strict=True):
        [record] = written(messages, "full").records
        assert list(differences(scenario.record, record)) == []


def test_a_relay_reports_its_connection_time_for_the_first_of_two_requests(tmp_path: Path) -> None:
    """The time at which the upstream connection was made is reported for the first request only."""
    driver = DRIVERS["proxy"]
    assert driver.start
    chat = BY_NAME["chat"]
    with driver.start(tmp_path) as running:
        assert running.connect
        with running.connect() as client:
            for _ in range(2):
                assert client.ask(chat) == expected(chat)
        reported = running.reported(0, 2)
    first, second = (written(reported[chat.name, number], "full").records[0]["timing"] for number in range(2))
    assert first["upstream_connect_s"] is not None
    assert second["upstream_connect_s"] is None


@pytest.mark.parametrize(("name", "scenario"), ASKED_IN_VAIN)
def test_without_a_response_there_is_a_record(name: str, scenario: Scenario, tmp_path: Path) -> None:
    driver = DRIVERS[name]
    assert driver.start
    with driver.start(tmp_path) as running:
        [result] = running.run([scenario])
    [wanted] = written(reference(scenario), "full").records
    assert list(differences(scenario.record, wanted)) == []
    [record] = result.write("full").records
    assert unexplained(name, scenario, wanted, record) == []


def raising(*_: Any, **__: Any) -> None:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("name", LIVE)
def test_a_bug_in_the_capture_costs_only_the_record(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client notices nothing, and the record is marked as incomplete."""
    driver = DRIVERS[name]
    assert driver.start
    assert driver.breaks
    chat = BY_NAME["chat"]
    with driver.start(tmp_path) as running:
        with monkeypatch.context() as broken:
            broken.setattr(driver.breaks, raising)
            result = running.run([chat])[0]
        after = running.run([chat])[0]
    assert result.received == after.received == expected(chat)
    [record] = result.write("masked").records
    assert not record["integrity"]["complete"]
    assert record["integrity"]["dropped_reads"] > 0
    assert record["timing"]["first_token_s"] is None
    assert record["usage"]["output_tokens"] is None
    [record] = after.write("masked").records
    assert record["integrity"]["complete"]


@pytest.mark.parametrize("name", LIVE)
def test_a_bug_at_the_start_of_the_capture_does_not_reach_the_client(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = DRIVERS[name]
    assert driver.start
    assert driver.breaks
    chat = BY_NAME["chat"]
    with driver.start(tmp_path) as running:
        with monkeypatch.context() as broken:
            broken.setattr("streamgauge.recorder.exchange_capture.RequestStarted", raising)
            assert running.ask(chat) == expected(chat)
        assert heard_of(running, chat)


def heard_of(running: Running, scenario: Scenario) -> bool:
    """Whether the tap works for the next request as if nothing had happened."""
    before = len(running.recorder.messages)
    assert running.ask(scenario) == expected(scenario)
    reported = running.reported(before, 1)
    [record] = written(reported[scenario.name, 0], "full").records
    [same] = written(reference(scenario), "full").records
    return bool(record["outcome"] == same["outcome"] and record["integrity"]["complete"])
