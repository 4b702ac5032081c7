"""S4: a broker that requires authentication. A refusal gives one sentence that says what to do.

Nothing falls back to plain text, nothing is lost, the tap's traffic is not affected. After the fix everything continues.
"""

import asyncio
import re
import uuid
from pathlib import Path

import pytest

from streamgauge.kafka.topics import Job, Topics
from tests.faults.doors import SECRET, Door, mutual_door, plain_door, run_by, scram_door, tap_by, worker_by
from tests.faults.rig import Rig, assert_whole, records_on
from tests.kafka_broker.fixtures import make_topics
from tests.kafka_broker.secured import Secured
from tests.processes import children
from tests.running import here, wait_for, wait_until_ready

pytestmark = pytest.mark.kafka

# Lines that a tap or a worker may log about one lasting problem: what it is doing, and the one sentence.
FEW_LINES = 8


@pytest.fixture
def secure_prefix(secured: Secured) -> str:
    """Topics of this test's own, created by the administrator."""
    return make_topics(secured.bootstrap)


def command_lines(pid: int) -> str:
    """What every user of the host can read about a process and its children."""
    pids = [pid, *children(pid)]
    return "\n".join(Path(f"/proc/{one}/cmdline").read_bytes().decode() for one in pids)


def has_secret(text: str) -> bool:
    return "secret" in text


async def all_through(door: Door, worker_door: Door, folder: Path, prefix: str) -> None:
    """Traffic through a tap and a worker: a record in the ledger for each stream, and no secret anywhere."""
    with worker_by(worker_door, folder / "worker", prefix) as worker:
        async with tap_by(door, folder / "tap", prefix) as rig:
            await asyncio.to_thread(wait_until_ready, worker)
            await rig.traffic.run_for(1)
            await rig.deliver_all()
            rig.traffic.judge_bytes()
            streams = len(rig.traffic.pairs)
            records = await asyncio.to_thread(worker.wait_for_records, streams)
            assert len({record["stream_id"] for record in records}) == len(records) == streams
            assert {record["outcome"] for record in records} == {"completed"}
            assert rig.tap.metrics()["streamgauge_broker_connected"] == 1
            assert rig.tap.metrics()["streamgauge_broker_problem"] == 0
            for running in (rig.tap, worker):
                shown = command_lines(running.process.pid)
                assert "--kafka" in shown
                assert not has_secret(shown + running.log)
                assert "Traceback" not in running.log
        assert await asyncio.to_thread(worker.stop) == 0, worker.log


@pytest.mark.parametrize("way", ["SCRAM-SHA-512 over TLS", "PLAIN", "certificates"])
def test_s4_least_rights_suffice(secured: Secured, tmp_path: Path, way: str) -> None:
    """Topics are created, shipped to, assembled, stored and replayed, each by a user with exactly the rights for it."""
    prefix = f"least-{uuid.uuid4().hex[:8]}"
    if way == "SCRAM-SHA-512 over TLS":
        users = {job: secured.user(SECRET) for job in Job}
        doors = {job: scram_door(secured, tmp_path / job.name, user) for job, user in users.items()}
    else:  # these jobs have the same user, which therefore has the rights for all of them
        door = plain_door(secured) if way == "PLAIN" else mutual_door(secured)
        doors = dict.fromkeys(Job, door)
    for job, door in doors.items():
        secured.allow(door.user, Topics(prefix).rights(job))

    made = wait_for(
        lambda: (done := run_by(doors[Job.CREATE], prefix, "topics", "create", ask=here)).returncode == 0 and done,
        "created topics",
        20,
    )
    assert f"created {prefix}.segments" in made.stdout or "have the expected settings" in made.stdout
    assert run_by(doors[Job.DESCRIBE], prefix, "topics", "describe", ask=here).returncode == 0
    asyncio.run(all_through(doors[Job.TAP], doors[Job.WORKER], tmp_path, prefix))
    replayed = run_by(doors[Job.REPLAY], prefix, "replay", "--output", "jsonl", ask=here)
    assert replayed.returncode == 0, replayed.stderr
    assert len(replayed.stdout.splitlines()) == len(asyncio.run(records_on(secured.bootstrap, prefix)))
    listed = run_by(doors[Job.DEADLETTER], prefix, "deadletter", "list", ask=here)
    assert listed.returncode == 0, listed.stderr


# What is wrong -> words of the sentence.
WRONG = {
    "another authority": r"is not signed by a trusted CA: .*--kafka-ca",
    "expired": "has expired: renew it",
    "another host": "is for another host",
    "wrong password": "rejected the user .* or its password: .*--kafka-password-file",
}


def wrong_door(secured: Secured, folder: Path, user: str, what: str) -> Door:
    listener = {"expired": "EXPIRED", "another host": "ELSEWHERE"}.get(what, "SCRAM")
    secret = "wrong-and-secret" if what == "wrong password" else SECRET
    door = scram_door(secured, folder, user, listener=listener, secret=secret)
    if what == "another authority":
        (folder / "ca.pem").write_bytes(secured.files.other_ca.read_bytes())
    return door


async def judge_refused(rig: Rig, says: str) -> None:
    """Asserts that the tap serves, logs the problem once, exports it as a metric, and loses nothing."""
    await rig.traffic.run_until(lambda: re.search(says, rig.tap.log) is not None)
    await rig.traffic.run_for(4)
    page = rig.tap.metrics()
    assert page["streamgauge_broker_connected"] == 0
    assert page["streamgauge_broker_problem"] == 1
    reads = rig.tap.reads()
    assert (reads["delivered"], reads["waiting"]) == (0, reads["seen"])
    assert len(re.findall(says, rig.tap.log)) == 1
    assert len(rig.tap.log.splitlines()) <= FEW_LINES, rig.tap.log
    assert "Traceback" not in rig.tap.log
    assert not has_secret(rig.tap.log)


@pytest.mark.parametrize("what", WRONG)
def test_s4_refused_tap_serves_and_delivers_after_the_fix(
    secured: Secured, secure_prefix: str, tmp_path: Path, what: str
) -> None:
    user = secured.user(SECRET)
    secured.allow(user, Topics(secure_prefix).rights(Job.TAP))
    door = wrong_door(secured, tmp_path / "files", user, what)

    async def run() -> None:
        async with tap_by(door, tmp_path, secure_prefix) as rig:
            await judge_refused(rig, WRONG[what])
            rig.traffic.judge()
            if what in ("expired", "another host"):
                return  # the broker's own certificate cannot be renewed here
            (tmp_path / "files" / "ca.pem").write_bytes(secured.files.ca.read_bytes())
            (tmp_path / "files" / "password").write_text(SECRET)
            await rig.deliver_all()
            assert rig.tap.metrics()["streamgauge_broker_problem"] == 0
            assert_whole(await records_on(secured.bootstrap, secure_prefix), len(rig.traffic.pairs))

    asyncio.run(run())


@pytest.mark.parametrize("what", WRONG)
def test_s4_a_worker_and_a_command_that_are_refused_end_with_one_sentence(
    secured: Secured, secure_prefix: str, tmp_path: Path, what: str
) -> None:
    user = secured.user(SECRET)
    secured.allow(user, [right for job in Job for right in Topics(secure_prefix).rights(job)])
    door = wrong_door(secured, tmp_path / "files", user, what)
    with worker_by(door, tmp_path / "worker", secure_prefix) as worker:
        assert worker.process.wait(60) == 3
        output = worker.log
    assert len(re.findall(WRONG[what], output)) == 1, output
    assert len(output.splitlines()) <= FEW_LINES
    for words in (("topics", "describe"), ("topics", "create"), ("replay",), ("deadletter", "list")):
        done = run_by(door, secure_prefix, *words)
        assert done.returncode == 3, done.stderr
        assert re.search(WRONG[what], done.stderr)
        assert len(done.stderr.splitlines()) == 1
        output += done.stderr
    assert "Traceback" not in output
    assert not has_secret(output)


def test_s4_nothing_falls_back_to_plain_text(secured: Secured, secure_prefix: str, tmp_path: Path) -> None:
    """A broker that only offers plain text gets no log-in and no bundle from a tap whose settings require TLS."""
    user = secured.user(SECRET)
    there = scram_door(secured, tmp_path / "files", user)
    door = Door(secured.bootstrap, user, there.options)

    async def run() -> None:
        async with tap_by(door, tmp_path, secure_prefix) as rig:
            await judge_refused(rig, "closed the connection without an answer to SASL_SSL: .*--kafka-security")
            rig.traffic.judge()
            assert await records_on(secured.bootstrap, secure_prefix) == []

    asyncio.run(run())


def test_s4_password_that_is_rotated_while_processes_run(secured: Secured, secure_prefix: str, tmp_path: Path) -> None:
    """The broker accepts only the new password, and every connection is cut: changing the password file is enough."""
    tap_user, worker_user = secured.user(SECRET), secured.user(SECRET)
    secured.allow(tap_user, Topics(secure_prefix).rights(Job.TAP))
    secured.allow(worker_user, Topics(secure_prefix).rights(Job.WORKER))
    tap_door = scram_door(secured, tmp_path / "tap-files", tap_user)
    worker_door = scram_door(secured, tmp_path / "worker-files", worker_user)

    async def run() -> None:
        with worker_by(worker_door, tmp_path / "worker", secure_prefix) as worker:
            async with tap_by(tap_door, tmp_path / "tap", secure_prefix) as rig:
                await asyncio.to_thread(wait_until_ready, worker)
                await rig.traffic.run_for(1)
                await rig.deliver_all()
                for user in (tap_user, worker_user):
                    secured.set_password(user, "new-and-secret")
                await asyncio.to_thread(secured.broker.stop)
                await asyncio.to_thread(secured.broker.start)
                refused = "rejected the user .* or its password"
                await rig.traffic.run_until(lambda: re.search(refused, rig.tap.log) is not None)
                assert rig.tap.metrics()["streamgauge_broker_problem"] == 1
                for files in ("tap-files", "worker-files"):
                    (tmp_path / files / "password").write_text("new-and-secret")
                await rig.deliver_all()
                assert rig.tap.metrics()["streamgauge_broker_problem"] == 0
                rig.traffic.judge()
                records = await asyncio.to_thread(worker.wait_for_records, len(rig.traffic.pairs))
                assert len({record["stream_id"] for record in records}) == len(records) == len(rig.traffic.pairs)
                for log in (rig.tap.log, worker.log):
                    assert len(re.findall(refused, log)) <= 2, log
                    assert "Traceback" not in log
                    assert not has_secret(log)

    asyncio.run(run())
