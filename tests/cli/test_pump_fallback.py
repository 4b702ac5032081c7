"""A tap whose relays crash repeatedly continues without the pump: with a test clock, and on a real tap."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from streamgauge.cli.pump_fallback import CRASH_SIGNALS, CRASHES, WINDOW_S, PumpFallback
from streamgauge.spool.read_counters import read_incidents
from streamgauge.taps.proxy.pump_handle import BUILT
from streamgauge.taps.proxy.relay_settings import RelaySettings
from tests.integration.provider import BEGIN, REST, Provider, provider
from tests.processes import children
from tests.running import Running, start_up, wait_for

pytestmark = pytest.mark.slow

SEGFAULT = -signal.SIGSEGV
PUMP_OFF = 'streamgauge_tap_incidents_total{kind="pump_off"}'


@pytest.fixture
def small() -> Iterator[Provider]:
    with provider() as started:
        yield started


class Watched:
    """A fallback with a test clock, and what it logged."""

    def __init__(self, counters: Path, pump: bool = True) -> None:
        self.said: list[str] = []
        self.at_s = 1000.0
        self.fallback = PumpFallback(pump, counters, self.said.append, lambda: self.at_s)

    def end(self, at_s: float, code: int = SEGFAULT) -> None:
        self.at_s = at_s
        self.fallback.relay_ended(code)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "counters")


def test_three_crashes_within_the_window_switch_the_pump_off(watched: Watched, tmp_path: Path) -> None:
    relay = RelaySettings(upstreams=[], recorder_socket="socket", counters_path="counters")
    for at_s in (0.0, 1.0):
        watched.end(at_s)
        assert msgspec.json.decode(watched.fallback.encoded(relay))["pump"] is True
    assert watched.said == []
    watched.end(WINDOW_S)
    assert msgspec.json.decode(watched.fallback.encoded(relay))["pump"] is False
    assert len(watched.said) == 1
    for part in (
        "3 times within 60 s",
        "SIGSEGV",
        "without the pump",
        "--pump off",
        "report the crash",
        "restart the tap",
    ):
        assert part in watched.said[0]
    assert read_incidents(tmp_path / "counters")["pump_off"] == 1


def test_three_crashes_in_longer_than_the_window_do_not(watched: Watched) -> None:
    for at_s in (0.0, 30.0, WINDOW_S + 0.1, 120.0):
        watched.end(at_s)
    assert watched.fallback.pump
    watched.end(120.0)
    assert not watched.fallback.pump, "the last three are within the window"


@pytest.mark.parametrize("number", sorted(CRASH_SIGNALS))
def test_each_signal_of_a_crash_counts(watched: Watched, number: int) -> None:
    for _ in range(CRASHES):
        watched.end(0.0, -number)
    assert not watched.fallback.pump
    assert signal.Signals(number).name in watched.said[0]


@pytest.mark.parametrize("code", [-signal.SIGKILL, -signal.SIGTERM, 0, 1, 3, 70, signal.SIGSEGV])
def test_a_kill_or_an_exit_code_does_not_count(watched: Watched, code: int) -> None:
    for _ in range(CRASHES - 1):
        watched.end(0.0)
    for _ in range(CRASHES):
        watched.end(0.0, code)
    assert watched.fallback.pump
    assert watched.said == []


def test_the_switch_is_logged_once(watched: Watched, tmp_path: Path) -> None:
    for _ in range(3 * CRASHES):
        watched.end(0.0)
    assert len(watched.said) == 1
    assert read_incidents(tmp_path / "counters")["pump_off"] == 1


def test_without_a_pump_nothing_is_switched_off(tmp_path: Path) -> None:
    without = Watched(tmp_path / "counters", pump=False)
    for _ in range(CRASHES):
        without.end(0.0)
    assert without.said == []


def test_a_failure_to_open_counters_is_ignored(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "missing" / "counters")
    for _ in range(CRASHES):
        watched.end(0.0)
    assert not watched.fallback.pump


def relay_of(tap: Running) -> int:
    """The process of the tap's relay; 0 while none runs its program."""
    return next((pid for pid, line in children(tap.process.pid).items() if "streamgauge.taps.proxy" in line), 0)


def threads(pid: int) -> set[str]:
    return {thread.name for thread in Path(f"/proc/{pid}/task").iterdir()}


def crash(tap: Running) -> int:
    """Ends the relay by SIGSEGV; gives the new one's process, once the tap is ready again."""
    before = relay_of(tap)
    os.kill(before, signal.SIGSEGV)
    after = wait_for(lambda: (now := relay_of(tap)) != before and now, "another relay")
    wait_for(lambda: tap.get("/health/ready")[0] == 200, "readiness")
    return int(after)


def ask(tap: Running, records: int) -> None:
    """One stream, and waits until the ledger has this many records: a crash loses what a relay has not sent yet."""
    with tap.post() as answer:
        assert answer.read() == BEGIN + REST
    wait_for(lambda: tap.recorded() == records, f"{records} records")


@pytest.mark.skipif(not BUILT, reason="the pump is not built")
def test_t8_a_tap_whose_relay_crashes_three_times_relays_and_records_without_the_pump(
    small: Provider, tmp_path: Path
) -> None:
    with start_up({"small": small.url}, tmp_path / "data") as up:
        ask(up, records=1)
        for _ in range(CRASHES - 1):
            with_pump = len(threads(crash(up)))
        assert "without the pump" not in up.log
        assert up.metrics()[PUMP_OFF] == 0
        ask(up, records=2)
        without_pump = len(threads(crash(up)))
        assert with_pump == without_pump + 1
        assert up.log.count("from now on the tap starts relays without the pump, as with --pump off") == 1
        assert up.metrics()[PUMP_OFF] == 1
        ask(up, records=3)
        assert [record["outcome"] for record in up.records()] == ["completed"] * 3
        assert up.stop() == 0
