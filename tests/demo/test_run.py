"""The whole demo with the real `up` as a separate process, and its ledger."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from streamgauge.ledger import open_ledger
from streamgauge_demo.driver import Clients
from streamgauge_demo.run import StartUp, Tap, run_demo
from streamgauge_demo.scenario import Scenario
from streamgauge_demo.scenarios import BY_MODEL, SCENARIOS, UPSTREAMS
from streamgauge_demo.verdict import Json
from tests.demo.running import QUICK
from tests.running import start_up

pytestmark = pytest.mark.slow

# Longer than any quick scenario pauses.
OPTIONS = ("--upstream-idle-timeout", "5", "--drain-timeout", "5")

A_FEW = [
    BY_MODEL[model] for model in ("nanogpt/chat-tools", "nimbus/messages-error", "sansa/no-credits", "local/chat-abort")
]


class LedgerTap:
    """A tap's address, and the records of its ledger that have not been read yet."""

    def __init__(self, url: str, ledger: Path) -> None:
        self.url = url
        self._ledger = ledger
        self._read: set[str] = set()

    async def records(self) -> list[Json]:
        if not self._ledger.exists():
            return []
        with open_ledger(f"sqlite:///{self._ledger}", create=False) as ledger:
            records = [json.loads(line) for line in ledger.query(None)]
        new = [record for record in records if record["stream_id"] not in self._read]
        self._read.update(record["stream_id"] for record in new)
        return new


def up(directory: Path) -> StartUp:
    @asynccontextmanager
    async def start(upstreams: Mapping[str, str]) -> AsyncIterator[LedgerTap]:
        with start_up(upstreams, directory / "data", *OPTIONS) as tap:
            yield LedgerTap(tap.url, tap.data_dir / "ledger.sqlite")

    return start


def run(directory: Path, scenarios: list[Scenario]) -> tuple[int, str]:
    out = StringIO()
    console = Console(file=out, width=160)
    code = asyncio.run(run_demo(up(directory), scenarios=scenarios, time_scale=QUICK, console=console))
    return code, out.getvalue()


def test_every_scenario_ends_as_expected(tmp_path: Path) -> None:
    code, output = run(tmp_path, list(SCENARIOS))
    count = len(SCENARIOS)
    assert f"{count} requests, {count} records; {count} of {count} scenarios as expected." in output, output
    assert code == 0
    assert "✗" not in output
    assert f"tap at http://127.0.0.1:{output.split('tap at http://127.0.0.1:')[1].split(':')[0]}" in output
    for upstream in UPSTREAMS:
        assert upstream in output
    assert "Recorded time to first token minus the simulator's own: median +" in output


def test_an_unexpected_result_fails_the_demo_and_is_reported(tmp_path: Path) -> None:
    wrong = replace(A_FEW[0], expected=replace(A_FEW[0].expected, finish="stop"))
    code, output = run(tmp_path, [wrong, *A_FEW[1:]])
    assert code == 1
    assert "nanogpt/chat-tools: finish_reason: 'tool_calls' instead of 'stop'" in output
    assert output.count("✗") == 1
    assert "3 of 4 scenarios as expected." in output


def test_the_summary_as_one_json_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = replace(A_FEW[0], expected=replace(A_FEW[0].expected, finish="stop"))
    playing = run_demo(up(tmp_path), scenarios=[wrong, *A_FEW[1:]], time_scale=QUICK, as_json=True)
    assert asyncio.run(playing) == 1
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert (summary["requests"], summary["records"], summary["as_expected"]) == (4, 4, False)
    assert [bool(one["differences"]) for one in summary["scenarios"]] == [True, False, False, False]
    assert summary["scenarios"][0]["seen"] == {"completed, tool_calls": 1}
    assert "simulated providers at http://" in printed.err


def test_clients_that_block_their_event_loop_do_not_block_that_of_the_tap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import of the clients' libraries takes seconds, in which the tap's pages must answer."""
    tap_loop: list[asyncio.AbstractEventLoop] = []

    class Blocking(Clients):
        def __init__(self, *, sync: bool) -> None:
            answered = threading.Event()
            tap_loop[0].call_soon_threadsafe(answered.set)
            assert answered.wait(60)
            super().__init__(sync=sync)

    @asynccontextmanager
    async def start(upstreams: Mapping[str, str]) -> AsyncIterator[Tap]:
        tap_loop.append(asyncio.get_running_loop())
        async with up(tmp_path)(upstreams) as tap:
            yield tap

    monkeypatch.setattr("streamgauge_demo.driver.Clients", Blocking)
    assert asyncio.run(run_demo(start, scenarios=A_FEW, time_scale=QUICK, console=Console(file=StringIO()))) == 0


def test_serving_continues_until_it_is_stopped(tmp_path: Path) -> None:
    out = StringIO()

    async def serve() -> int:
        stop = asyncio.Event()
        demo = asyncio.create_task(
            run_demo(
                up(tmp_path),
                serve=True,
                stop=stop,
                scenarios=A_FEW,
                time_scale=QUICK,
                console=Console(file=out, width=160),
            )
        )
        while out.getvalue().count("sansa/no-credits") < 2:  # a second round has begun
            assert not demo.done()
            await asyncio.sleep(0.2)
        stop.set()
        return await demo

    assert asyncio.run(serve()) == 0
    assert "as expected." in out.getvalue()


def test_a_tap_whose_records_cannot_be_read_ends_the_demo(tmp_path: Path) -> None:
    class Broken(LedgerTap):
        async def records(self) -> list[Json]:
            raise OSError("the ledger is gone")

    @asynccontextmanager
    async def start(upstreams: Mapping[str, str]) -> AsyncIterator[LedgerTap]:
        with start_up(upstreams, tmp_path / "data", *OPTIONS) as tap:
            yield Broken(tap.url, tmp_path / "none")

    with pytest.raises(OSError, match="the ledger is gone"):
        asyncio.run(run_demo(start, scenarios=A_FEW, time_scale=QUICK, console=Console(file=StringIO())))
