"""What `up` and `tap` share: tenants, several relays on one address, and the counts that a new tap finds."""

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.cli import collector, supervisor
from streamgauge.cli.tenants_file import read_tenants
from streamgauge.settings.sources import load
from streamgauge.spool.read_counters import Counters, read_balance
from tests.integration.provider import BEGIN, REST, Provider, provider
from tests.processes import children
from tests.running import PATIENCE_S, Running, start, start_tap, start_up, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def small() -> Iterator[Provider]:
    with provider() as started:
        yield started


def ask(up: Running, **headers: str) -> None:
    with up.post(headers={name.replace("_", "-"): value for name, value in headers.items()}) as answer:
        assert answer.read() == BEGIN + REST


def newest(up: Running, count: int) -> dict[str, Any]:
    return up.wait_for_records(count)[-1]


def test_tenants_come_from_a_header_or_from_a_file(small: Provider, tmp_path: Path) -> None:
    data_dir, tenants = tmp_path / "data", tmp_path / "tenants.toml"
    with start_up({"small": small.url}, data_dir, "--tenant-header", "X-Tenant") as up:
        ask(up, authorization="Bearer one", x_tenant="red")
        first = newest(up, 1)
        assert first["tenant"] == "red"
        assert first["credential_id"]
        assert up.stop() == 0
    tenants.write_text(f'{first["credential_id"]} = "blue"\n')
    with start_up({"small": small.url}, data_dir, "--tenants", str(tenants)) as up:
        ask(up, authorization="Bearer one")
        assert newest(up, 2)["tenant"] == "blue"
        ask(up, authorization="Bearer two")
        assert newest(up, 3)["tenant"] is None


def test_the_tenants_file_is_utf_8_in_any_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tenants = tmp_path / "tenants.toml"
    tenants.write_text('a = "Zürich"\n', encoding="utf-8")
    monkeypatch.setattr(Path, "read_text", lambda self: self.read_bytes().decode("latin-1"))  # as in such a locale
    assert read_tenants(tenants) == {"a": "Zürich"}


def relays(pid: int) -> int:
    return len([line for line in children(pid).values() if "streamgauge.taps.proxy" in line])


def test_several_relays_share_one_address_and_one_balance(small: Provider, tmp_path: Path) -> None:
    options = ("--kafka", "127.0.0.1:1", "--workers", "3", "--drain-timeout", "1")
    with start_tap("tap", {"small": small.url}, tmp_path / "data", *options) as tap:
        assert relays(tap.process.pid) == 3
        for _ in range(12):
            ask(tap)
        page = wait_for(
            lambda: (found := tap.metrics())["streamgauge_tap_reads_seen_total"] >= 12 and found,
            "the reads of all relays",
        )
        assert page["streamgauge_tap_reads_seen_total"] == page["streamgauge_tap_reads_waiting"]
        assert tap.stop() == 0


def test_up_has_one_relay_whatever_a_tap_has(small: Provider, tmp_path: Path) -> None:
    """It has no option for their number."""
    with start_up({"small": small.url}, tmp_path / "data", environment={"STREAMGAUGE_WORKERS": "3"}) as up:
        assert relays(up.process.pid) == 1


def test_a_pump_that_was_not_built_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tap = supervisor.Tap(None, "127.0.0.1:1", "")  # type: ignore[arg-type]
    for built, pump, said in ((True, "auto", False), (False, "auto", True), (False, "off", False)):
        monkeypatch.setattr(supervisor, "BUILT", built)
        supervisor.announce("up", tap, load({"upstream": ["http://127.0.0.1:2"], "pump": pump}))
        assert ("pump (native C code) was not built" in capsys.readouterr().err) == said


def test_the_pump_can_be_switched_off(small: Provider, tmp_path: Path) -> None:
    with start_up({"small": small.url}, tmp_path / "data", "--pump", "off") as up:
        relay = next(pid for pid, line in children(up.process.pid).items() if "streamgauge.taps.proxy" in line)
        assert (
            len(list(Path(f"/proc/{relay}/task").iterdir())) <= 2
        )  # its own, and one that waits for the end of its parent
        ask(up)
        assert up.stop() == 0


@pytest.mark.parametrize("role", ["relay-0", "relay-31"])
def test_reads_that_a_crash_lost_are_counted_as_dropped_by_crash(small: Provider, tmp_path: Path, role: str) -> None:
    """Reads that a former tap had seen, and that are neither in its spool nor in its ledger; also if it had more relays
    than this one.
    """
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    with Counters(data_dir / "counters", role) as counters:
        counters.seen(7)
    with start_up({"small": small.url}, data_dir) as up:
        assert up.metrics()['streamgauge_tap_reads_dropped_total{reason="crash"}'] == 7
        ask(up)
        wait_for(lambda: up.metrics()["streamgauge_tap_reads_delivered_total"], "delivered reads")
        assert up.stop() == 0
    balance = read_balance(data_dir / "counters")
    assert balance.seen == balance.delivered + 7
    assert balance.waiting == 0


def test_children_have_their_own_process_groups_and_share_the_session(tmp_path: Path) -> None:
    """Ctrl-C is handled by the parent, no terminal stops the children, and the kernel does not divide CPU time by
    session between them.
    """
    ignored = sum(1 << number - 1 for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU))
    with start_up({"small": "http://127.0.0.1:9"}, tmp_path) as up:
        found = children(up.process.pid)
        assert len(found) >= 2
        for pid in found:
            assert os.getpgid(pid) == pid
            assert os.getsid(pid) == os.getsid(up.process.pid)
            if (status := Path(f"/proc/{pid}/status")).exists():
                mask = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigIgn"))
                assert int(mask, 16) & ignored == ignored


def test_counters_of_applications_are_settled_again_after_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settled: list[Path] = []

    def settle(counters: Path) -> None:
        settled.append(counters)
        if len(settled) < 3:
            raise LookupError("a bug")

    monkeypatch.setattr(collector, "CLOSE_BALANCES_S", 0.01)
    monkeypatch.setattr(collector, "close_app_balances", settle)

    async def work() -> None:
        settling = asyncio.create_task(collector.keep_closing_app_balances(tmp_path))
        async with asyncio.timeout(PATIENCE_S):
            while len(settled) < 4 and not settling.done():  # noqa: ASYNC110 - another thread settles
                await asyncio.sleep(0.01)
        settling.cancel()

    asyncio.run(work())
    assert len(settled) >= 4
    assert [message.splitlines()[0] for message in caplog.messages if "internal error" in message] == [
        "internal error in the closing of applications' balances: LookupError"
    ]


def test_the_page_of_an_admin_port_on_all_addresses_is_at_one_that_can_be_opened(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    token.chmod(0o600)
    more = ("--admin", "0.0.0.0:0", "--admin-token-file", str(token))
    places = [
        "--upstream",
        "http://127.0.0.1:9",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path / "data"),
        *more,
    ]
    with start("up", places, tmp_path / "data") as up:
        wait_for(lambda: "page at" in up.log, "the address of the page")
        assert re.search(r"page at http://127\.0\.0\.1:[1-9]\d+/, metrics at http://127\.0\.0\.1:", up.log), up.log
