"""The process group, with real processes: start, supervision, restart, stop."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from streamgauge.errors import DONE, UNAVAILABLE, Unavailable
from streamgauge.runtime import process_group as group_module
from streamgauge.runtime.process_group import HANGS_S, RESERVE_S, Child, Group, streams_drain_s
from tests.running import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a pause between starts."""
    monkeypatch.setattr(group_module, "RESTART_S", 0.02)
    monkeypatch.setattr(group_module, "MAX_RESTART_S", 0.05)


def settings_of(log: Path, name: str, *does: str) -> bytes:
    return json.dumps({"name": name, "log": str(log), "does": does or ["stay"]}).encode()


def child(log: Path, name: str, *does: str) -> Child:
    return Child(name, "tests.group_child", lambda: settings_of(log, name, *does))


def lines(log: Path, ending: str = "") -> list[str]:
    return [line for line in (log.read_text().splitlines() if log.exists() else []) if line.endswith(ending)]


def pids(log: Path, name: str) -> list[int]:
    return [int(line.rpartition(" ")[2]) for line in lines(log) if line.startswith(f"{name} started")]


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.01)


def play(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(work(), PATIENCE_S)

    asyncio.run(limited())


def test_starts_all_and_stops_relays_before_the_collector(log: Path) -> None:
    sentences: list[str] = []

    async def work() -> None:
        members = [child(log, name) for name in ("collector", "one", "two")]
        group = Group(members[0], members[1:], sentences.append)
        assert not group.serving
        await group.start()
        assert group.serving
        assert group.processes == [(name, pids(log, name)[0]) for name in ("collector", "one", "two")]
        await group.stop(5)
        assert not group.serving
        assert group.processes == []
        assert [member.starts for member in members] == [1, 1, 1]

    play(work)
    assert lines(log)[0].startswith("collector started"), "relays look for it at once"
    everything = ["supervisor", "one", "two"]
    assert [line for line in lines(log) if "status" in line] == [
        f"collector status True {everything}",
        f"collector status False {everything}",
    ]
    stopped = lines(log, "stopped")
    assert set(stopped[:2]) == {"one stopped", "two stopped"}
    assert stopped[2:] == ["collector stopped"]
    assert sentences == []


@pytest.mark.parametrize(("name", "code"), [("relay", "signal 9"), ("collector", "signal 9")])
def test_a_child_that_is_killed_is_started_again(log: Path, name: str, code: str) -> None:
    sentences: list[str] = []

    async def work() -> None:
        members = {one: child(log, one) for one in ("collector", "relay")}
        group = Group(members["collector"], [members["relay"]], sentences.append)
        await group.start()
        os.kill(pids(log, name)[0], signal.SIGKILL)
        await until(lambda: len(pids(log, name)) == 2 and members[name].ready)
        assert {one: member.starts for one, member in members.items()} == {"collector": 1, "relay": 1, name: 2}
        await group.stop(5)

    play(work)
    assert sentences == [f"the {name} ended unexpectedly ({code}); restarting it"]
    assert len(lines(log, "stopped")) == 2


def test_relay_ended_gets_the_exit_code_before_the_next_start(log: Path) -> None:
    ends: list[tuple[int, int]] = []

    async def work() -> None:
        members = {one: child(log, one) for one in ("collector", "relay")}
        group = Group(
            members["collector"],
            [members["relay"]],
            lambda _: None,
            relay_ended=lambda code: ends.append((code, members["relay"].starts)),
        )
        await group.start()
        for name, number in (("relay", signal.SIGSEGV), ("collector", signal.SIGSEGV), ("relay", signal.SIGKILL)):
            before = len(pids(log, name))
            os.kill(pids(log, name)[-1], number)
            await until(lambda name=name, before=before: len(pids(log, name)) > before and members[name].ready)  # type: ignore[misc]
        await group.stop(5)

    play(work)
    assert ends == [(-signal.SIGSEGV, 1), (-signal.SIGKILL, 2)]


def test_a_relay_is_started_again_although_relay_ended_fails(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    def failing(code: int) -> None:
        raise LookupError("sk-0123456789")

    async def work() -> None:
        relay = child(log, "relay")
        group = Group(child(log, "collector"), [relay], lambda _: None, relay_ended=failing)
        await group.start()
        os.kill(pids(log, "relay")[0], signal.SIGKILL)
        await until(lambda: len(pids(log, "relay")) == 2 and relay.ready)
        await group.stop(5)

    play(work)
    assert [message.splitlines()[0] for message in caplog.messages] == [
        "internal error in the callback after the end of the relay: LookupError"
    ]


def test_without_a_relay_that_is_ready_nothing_is_served(log: Path) -> None:
    lines: list[str] = []

    async def work() -> None:
        group = Group(child(log, "collector"), [child(log, "relay", "stay", "babble", "refuse", "stay")], lines.append)
        await group.start()
        os.kill(pids(log, "relay")[0], signal.SIGKILL)
        await until(lambda: not group.serving)
        await until(lambda: group.serving)
        await group.stop(5)

    play(work)
    assert len(pids(log, "relay")) == 4
    assert (
        lines
        == ["the relay ended unexpectedly (signal 9); restarting it"]
        + ["the relay did not start: see its error message above"] * 2
    )


def test_without_relays_the_collector_is_what_serves(log: Path) -> None:
    sentences: list[str] = []

    async def work() -> None:
        group = Group(child(log, "collector"), [], sentences.append)
        assert not group.serving
        await group.start()
        assert group.serving
        os.kill(pids(log, "collector")[0], signal.SIGKILL)
        await until(lambda: not group.serving)
        await until(lambda: group.serving)
        await group.stop(5)
        assert not group.serving

    play(work)
    assert sentences == ["the collector ended unexpectedly (signal 9); restarting it"]
    assert lines(log, "stopped") == ["collector stopped"]


def test_child_that_crashes_repeatedly_is_restarted_each_time(log: Path) -> None:
    lines: list[str] = []

    async def work() -> None:
        group = Group(child(log, "collector", "stay", "stay"), [child(log, "relay", "fall")], lines.append)
        await group.start()
        await until(lambda: len(pids(log, "relay")) >= 4)
        await group.stop(5)

    play(work)
    assert "the relay ended unexpectedly (exit code 7); restarting it" in lines
    assert not any(map(runs, pids(log, "relay")))


@pytest.mark.parametrize("does", ["refuse", "babble"])
@pytest.mark.parametrize("who", ["collector", "relay"])
def test_a_child_that_does_not_get_ready_is_an_error_and_leaves_none(log: Path, who: str, does: str) -> None:
    async def work() -> None:
        ways = {"collector": "stay", "relay": "stay", who: does}
        group = Group(child(log, "collector", ways["collector"]), [child(log, "relay", ways["relay"])], print)
        with pytest.raises(Unavailable, match=f"the {who} did not start: see its error message above"):
            await group.start()
        assert not group.serving
        await group.stop(5)

    play(work)
    assert pids(log, who)
    assert not any(runs(pid) for name in ("collector", "relay") for pid in pids(log, name))


@pytest.mark.parametrize("who", ["collector", "relay"])
def test_a_child_says_why_it_does_not_start(log: Path, who: str) -> None:
    async def work() -> None:
        ways = {"collector": "stay", "relay": "stay", who: "refuse-by-line"}
        group = Group(child(log, "collector", ways["collector"]), [child(log, "relay", ways["relay"])], print)
        with pytest.raises(Unavailable, match="the weather is bad"):
            await group.start()

    play(work)


def test_the_collector_gets_the_state_of_the_relays(log: Path) -> None:
    async def work() -> None:
        group = Group(child(log, "collector"), [child(log, "relay")], lambda _: None)
        await group.start()
        os.kill(pids(log, "relay")[0], signal.SIGKILL)
        await until(lambda: len(lines(log, "'relay']")) == 2)
        os.kill(pids(log, "collector")[0], signal.SIGKILL)
        await until(lambda: len(pids(log, "collector")) == 2 and len(lines(log, "'relay']")) == 3)
        await group.stop(5)

    play(work)
    states = [line.removeprefix("collector status ") for line in lines(log) if "status" in line]
    both, alone = "['supervisor', 'relay']", "['supervisor']"
    assert states == [f"True {both}", f"False {alone}", f"True {both}", f"True {both}", f"False {both}"]


def test_child_that_never_reports_ready_is_killed() -> None:
    async def work() -> None:
        silent = Child("relay", "asyncio", lambda: b"", ready_s=0.1)  # a prompt that waits for more
        with pytest.raises(Unavailable, match="the relay did not start"):
            await silent.start()
        assert silent.process is not None
        assert not runs(silent.process.pid)

    play(work)


def test_a_program_that_cannot_be_run_is_an_error(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module.sys, "executable", str(log / "python"))  # type: ignore[attr-defined]
    with pytest.raises(Unavailable, match="the relay cannot be started"):
        play(child(log, "relay").start)


def test_cancelled_start_leaves_no_process(log: Path) -> None:
    async def work() -> None:
        slow = Child("relay", "tests.group_child", lambda: b"")  # waits for its settings, as nothing was said yet
        starting = asyncio.create_task(slow.start())
        await until(lambda: slow.process is not None)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert slow.process is not None
        assert not runs(slow.process.pid)

    play(work)


def test_stop_during_a_restart_leaves_no_process(log: Path) -> None:
    async def work() -> None:
        relay = child(log, "relay")
        group = Group(child(log, "collector"), [relay], lambda _: None)
        await group.start()
        os.kill(pids(log, "relay")[0], signal.SIGKILL)
        await until(lambda: relay.starts > 1)
        await group.stop(5)

    play(work)
    assert not any(runs(pid) for name in ("collector", "relay") for pid in pids(log, name))


def test_a_child_that_hangs_is_killed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "HANGS_S", 0.3)
    lines: list[str] = []

    async def work() -> None:
        group = Group(child(log, "collector", "deaf"), [child(log, "relay", "deaf")], lines.append)
        await group.start()
        await group.stop(0.1)

    play(work)
    assert lines == [f"the {name} did not stop in time and was killed" for name in ("relay", "collector")]
    assert not any(runs(pid) for name in ("collector", "relay") for pid in pids(log, name))


def test_a_child_that_writes_to_its_stdout_is_not_held_up_and_its_end_is_seen(log: Path) -> None:
    """A library may print: nothing of that is read as an answer, and nothing waits for a reader of it."""
    sentences: list[str] = []

    async def work() -> None:
        relay = child(log, "relay", "chat", "stay")
        group = Group(child(log, "collector"), [relay], sentences.append)
        await group.start()
        await until(lambda: lines(log, "chatted"))
        os.kill(pids(log, "relay")[0], signal.SIGKILL)
        await until(lambda: relay.starts == 2 and relay.ready)
        await group.stop(5)

    play(work)
    assert sentences == ["the relay ended unexpectedly (signal 9); restarting it"]


def test_the_end_of_a_child_is_seen_although_another_process_holds_its_stdout(log: Path) -> None:
    program = """
import subprocess, sys, time
sys.stdin.readline()
holder = subprocess.Popen(["sleep", "600"])
print("ready", flush=True)
print(holder.pid, file=sys.stderr, flush=True)
"""
    folder = log.parent / "modules"
    folder.mkdir()
    (folder / "leaves_a_holder.py").write_text(program)

    async def work() -> None:
        leaves = Child("relay", "leaves_a_holder", lambda: b"")
        await leaves.start()
        assert await leaves.wait() == 0

    with pytest.MonkeyPatch.context() as patch, (log.parent / "holder").open("w+") as errors:
        patch.setenv("PYTHONPATH", str(folder))
        kept = os.dup(2)
        os.dup2(errors.fileno(), 2)
        try:
            play(work)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            errors.seek(0)
            os.kill(int(errors.read()), signal.SIGKILL)


@pytest.mark.parametrize(("who", "code"), [("relay", DONE), ("collector", UNAVAILABLE)])
def test_a_child_that_crashes_while_it_is_stopped_is_named(log: Path, who: str, code: int) -> None:
    sentences: list[str] = []

    async def work() -> int:
        members = [child(log, name, "crash" if name == who else "stay") for name in ("collector", "relay")]
        group = Group(members[0], members[1:], sentences.append)
        await group.start()
        await group.stop(5)
        return group.exit_code

    assert asyncio.run(work()) == code
    assert sentences == [f"the {who} ended unexpectedly while it was stopped (exit code 7)"]


def test_the_exit_code_says_that_a_collector_had_to_be_killed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "HANGS_S", 0.3)

    async def work() -> int:
        group = Group(child(log, "collector", "deaf"), [], lambda _: None)
        await group.start()
        await group.stop(0.1)
        return group.exit_code

    assert asyncio.run(work()) == UNAVAILABLE


def test_a_collector_that_had_crashed_before_the_stop_has_nothing_to_write(log: Path) -> None:
    async def work() -> int:
        group = Group(child(log, "collector", "stay"), [], lambda _: None)
        await group.start()
        (_, pid), *_ = group.processes
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            while group.processes:  # noqa: ASYNC110 - the group tells of an end by its sentences alone
                await asyncio.sleep(0.01)
        await group.stop(5)
        return group.exit_code

    assert asyncio.run(work()) == DONE


def test_streams_have_the_drain_timeout_but_for_a_reserve() -> None:
    assert streams_drain_s(30) == 30 - RESERVE_S
    assert streams_drain_s(2) == 1
    assert streams_drain_s(0) == 0
    assert HANGS_S > RESERVE_S


def test_f4_a_child_whose_first_line_is_too_long_is_started_again(log: Path) -> None:
    lines: list[str] = []

    async def work() -> None:
        group = Group(child(log, "collector"), [child(log, "one", "fall", "shout", "stay")], lines.append)
        await group.start()
        await until(lambda: len(pids(log, "one")) == 3 and group.serving)
        await group.stop(5)

    play(work)
    assert any("did not start" in sentence for sentence in lines)


def test_child_with_a_too_long_first_line_is_unavailable(log: Path) -> None:
    async def work() -> None:
        with pytest.raises(Unavailable, match="did not start"):
            await Group(child(log, "collector", "shout"), [], print).start()

    play(work)
    assert not any(map(runs, pids(log, "collector")))


def test_a_child_whose_settings_cannot_be_made_is_tried_again_and_reported(
    log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its settings restore a directory first, for which the disk may have no room."""
    failures = [OSError(28, "No space left on device"), LookupError("sk-0123456789")]

    def failing() -> bytes:
        if made.starts in (2, 3):
            raise failures.pop(0)
        return settings_of(log, "one", "fall", "stay")

    made = Child("one", "tests.group_child", failing)

    async def work() -> None:
        group = Group(child(log, "collector"), [made], print)
        await group.start()
        await until(lambda: made.starts == 4 and group.serving)
        await group.stop(5)

    play(work)
    assert [message.splitlines()[0] for message in caplog.messages] == [
        "internal error in the start of the one: OSError: [Errno 28] No space left on device",
        "internal error in the start of the one: LookupError",
    ]
