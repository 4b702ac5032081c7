"""Several exchanges at once or one after another, and a tap with a bug in it."""

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
# Those whose clients are ours; the libraries' have connections of their own, and leave by their own time-outs.
RAW = [one for one in LIVE if DRIVERS[str(one.values[0])].tap != "httpx"]
ASKED_IN_VAIN = [
    pytest.param(*one.values, scenario, marks=one.marks, id=f"{one.values[0]}-{scenario.name}")
    for scenario in WITHOUT_ANSWER
    for one in (RAW if scenario.end == "client" else LIVE)
]
# A stream, an answer that is none, and a stream again.
IN_A_ROW = [BY_NAME[name] for name in ("chat", "not-streamed", "content-length")]


@pytest.mark.parametrize("name", LIVE)
def test_twenty_streams_at_once(name: str, tmp_path: Path) -> None:
    """Of two kinds, so that a mixture shows."""
    driver = DRIVERS[name]
    assert driver.start
    kinds = [BY_NAME["tool-call"], BY_NAME["chat-with-usage"]]
    asked = [kinds[number % len(kinds)] for number in range(STREAMS)]
    with driver.start(tmp_path) as running:
        results = running.run(asked, at_once=STREAMS)
    ids = set()
    for scenario, result in zip(asked, results, strict=True):
        assert result.came == expected(scenario)
        [record] = result.write("masked").records
        assert list(differences(scenario.record, record)) == []
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
            came = [client.ask(scenario) for scenario in IN_A_ROW]
        told = running.told(0, len(IN_A_ROW))
    assert came == [expected(scenario) for scenario in IN_A_ROW]
    for scenario in IN_A_ROW:
        [record] = written(told[scenario.name, 0], "full").records
        assert list(differences(scenario.record, record)) == []


def test_one_connection_in_a_capture_file() -> None:
    told = wire.by_stream(wire.read(packets_of(*IN_A_ROW)))
    for scenario, messages in zip(IN_A_ROW, told, strict=True):
        [record] = written(messages, "full").records
        assert list(differences(scenario.record, record)) == []


def test_a_relay_connects_once_for_two_requests(tmp_path: Path) -> None:
    """When its upstream's connection was made is said of the first alone."""
    driver = DRIVERS["proxy"]
    assert driver.start
    chat = BY_NAME["chat"]
    with driver.start(tmp_path) as running:
        assert running.connect
        with running.connect() as client:
            for _ in range(2):
                assert client.ask(chat) == expected(chat)
        told = running.told(0, 2)
    first, second = (written(told[chat.name, number], "full").records[0]["timing"] for number in range(2))
    assert first["upstream_connect_s"] is not None
    assert second["upstream_connect_s"] is None


@pytest.mark.parametrize(("name", "scenario"), ASKED_IN_VAIN)
def test_without_an_answer_there_is_a_record(name: str, scenario: Scenario, tmp_path: Path) -> None:
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
def test_a_bug_in_the_capture_costs_the_record_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sees nothing of it, and the record says that it is incomplete."""
    driver = DRIVERS[name]
    assert driver.start
    assert driver.breaks
    chat = BY_NAME["chat"]
    with driver.start(tmp_path) as running:
        with monkeypatch.context() as broken:
            broken.setattr(driver.breaks, raising)
            result = running.run([chat])[0]
        after = running.run([chat])[0]
    assert result.came == after.came == expected(chat)
    [record] = result.write("masked").records
    assert not record["integrity"]["complete"]
    assert record["integrity"]["dropped_reads"] > 0
    assert record["timing"]["first_token_s"] is None
    assert record["usage"]["output_tokens"] is None
    [record] = after.write("masked").records
    assert record["integrity"]["complete"]


@pytest.mark.parametrize("name", LIVE)
def test_a_bug_at_the_very_beginning_is_not_felt(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Whether the tap goes on as if nothing had been."""
    before = len(running.recorder.messages)
    assert running.ask(scenario) == expected(scenario)
    told = running.told(before, 1)
    [record] = written(told[scenario.name, 0], "full").records
    [same] = written(reference(scenario), "full").records
    return bool(record["outcome"] == same["outcome"] and record["integrity"]["complete"])
