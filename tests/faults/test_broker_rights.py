"""K7: missing rights and missing topics. The command that needs one names it.

The least rights are a table (`Topics.rights`), which the guide shows: these tests check it against a real authorizer.
"""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from streamgauge.kafka import dead_letters, topics
from streamgauge.kafka.administrator import Kind, Operation, Right
from streamgauge.kafka.security import Brokers, Login, Password, TlsFiles
from streamgauge.kafka.topics import Job, Topics
from tests.dead_letters import send_back
from tests.faults.doors import SECRET, scram_door, tap_by, worker_by
from tests.faults.rig import assert_whole, records_on
from tests.integration.synthetic import SyntheticTap, assembled, distinct
from tests.kafka_broker.administration import delete_topic
from tests.kafka_broker.fixtures import make_topics
from tests.kafka_broker.reading import read_all, write_all
from tests.kafka_broker.secured import Secured
from tests.running import wait_for

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guides" / "kafka-security.md"
# How long a change of rights may take until it applies in every thread of the broker (seconds).
APPLIED_S = 10.0


@pytest.fixture
def secure_prefix(secured: Secured) -> str:
    """Topics of this test's own, created by the administrator."""
    return make_topics(secured.bootstrap)


async def read_letters(brokers: Brokers, prefix: str) -> None:
    assert [one async for one in dead_letters.read(brokers, Topics(prefix))] == []


ASK: dict[Job, Callable[[Brokers, str], Awaitable[object]]] = {
    Job.TAP: topics.segments_partitions,
    Job.WORKER: topics.check,
    Job.DESCRIBE: topics.describe,
    Job.REPLAY: lambda brokers, prefix: topics.segments_partitions(brokers, prefix, Job.REPLAY),
    Job.DEADLETTER: read_letters,
}


def outcome(ask: Callable[[Brokers, str], Awaitable[object]], brokers: Brokers, prefix: str) -> str:
    """The result of a request: nothing, or a sentence."""

    async def asked() -> None:
        await ask(brokers, prefix)

    try:
        asyncio.run(asked())
    except topics.TopicsError as error:
        return str(error)
    return ""


def brokers_for(secured: Secured, user: str) -> Brokers:
    return Brokers(secured.address["SCRAM"], TlsFiles(secured.files.ca), Login(user, Password(SECRET)))


@pytest.mark.kafka
@pytest.mark.parametrize("job", ASK)
def test_k7_each_right_that_is_missing_is_named(secured: Secured, secure_prefix: str, job: Job) -> None:
    """With exactly these rights there is no error; without any one of them, that one is named."""
    user = secured.user(SECRET)
    brokers, rights = brokers_for(secured, user), Topics(secure_prefix).rights(job)
    secured.allow(user, rights)
    wait_for(lambda: outcome(ASK[job], brokers, secure_prefix) == "", "all rights", APPLIED_S)
    for right in rights:
        secured.deny(user, right)
        sentence = wait_for(lambda: outcome(ASK[job], brokers, secure_prefix), f"a sentence about {right}", APPLIED_S)
        assert right.name in sentence
        if job is not Job.DEADLETTER:  # it reads without checking before
            named = re.findall(rf"(\w+) on {right.kind} {re.escape(right.name)}\b", sentence)
            assert right.operation.acl_name in named
            assert sentence.endswith(f"grant it to User:{user}, for example with kafka-acls --add")
        others = {one.name for one in rights} - {right.name}
        assert not any(re.search(rf"{re.escape(other)}[,: ]", sentence) for other in others), sentence
        secured.allow(user, [right])
        wait_for(lambda: outcome(ASK[job], brokers, secure_prefix) == "", "all rights again", APPLIED_S)


@pytest.mark.kafka
@pytest.mark.parametrize("job", [Job.CREATE, Job.RETRY])
def test_k7_each_right_to_write_or_create_is_needed(
    secured: Secured, secure_prefix: str, tmp_path: Path, job: Job
) -> None:
    """Rights that are checked only when they are used."""
    user = secured.user(SECRET)
    brokers = brokers_for(secured, user)
    rights = Topics(secure_prefix).rights(job)
    secured.allow(user, rights)

    async def do(right: Right) -> None:
        if job is Job.CREATE:
            await delete_topic(secured.bootstrap, right.name)
            await topics.create(brokers, None, secure_prefix)
        else:
            letter = dead_letters.DeadLetter(
                0, 0, None, None, right.name, 0, 0, None, None, b"key", b"nothing that can be read"
            )
            await send_back(brokers, Topics(secure_prefix), [letter])

    doing = [right for right in rights if right.operation in (Operation.CREATE, Operation.WRITE)]
    for right in doing:
        wait_for(lambda one=right: outcome(lambda *_: do(one), brokers, secure_prefix) == "", "all rights", APPLIED_S)
        secured.deny(user, right)
        sentence = wait_for(
            lambda one=right: outcome(lambda *_: do(one), brokers, secure_prefix), "a sentence", APPLIED_S
        )
        assert right.name in sentence
        if job is Job.CREATE:
            assert f"Create on topic {right.name}: grant it to User:{user}" in sentence
        secured.allow(user, [right])


@pytest.mark.kafka
@pytest.mark.parametrize("what", ["denied", "missing"])
def test_k7_tap_names_what_is_denied_or_missing_and_continues_once_it_exists(
    secured: Secured, tmp_path: Path, what: str
) -> None:
    prefix = f"k7-{what}-{tmp_path.name[-6:].replace('_', '-')}"
    user = secured.user(SECRET)
    rights = Topics(prefix).rights(Job.TAP)
    if what == "denied":
        asyncio.run(topics.create(secured.bootstrap, 4, prefix))
    else:
        secured.allow(user, rights)
    says = {
        "denied": f"denies Write on topic {prefix}.segments: grant it to User:{user}",
        "missing": f"topic {prefix}.segments does not exist: run `streamgauge topics create`",
    }[what]

    async def run() -> None:
        async with tap_by(scram_door(secured, tmp_path / "files", user), tmp_path, prefix) as rig:
            await rig.traffic.run_until(lambda: says in rig.tap.log)
            await rig.traffic.run_for(3)
            assert rig.tap.metrics()["streamgauge_broker_problem"] == 1
            assert rig.tap.metrics()["streamgauge_broker_connected"] == 1
            assert rig.tap.log.count(says) == 1
            assert rig.tap.get("/health/ready")[0] == 200
            if what == "denied":
                secured.allow(user, rights)
            else:
                await topics.create(secured.bootstrap, 4, prefix)
            await rig.deliver_all()
            assert rig.tap.metrics()["streamgauge_broker_problem"] == 0
            rig.traffic.judge()
            assert "Traceback" not in rig.tap.log
            assert_whole(await records_on(secured.bootstrap, prefix), len(rig.traffic.pairs))

    asyncio.run(run())


@pytest.mark.kafka
@pytest.mark.parametrize("place", [0, 4, 7], ids=["to read segments", "to read state", "the group's"])
def test_k7_a_worker_without_a_right_does_not_start(
    secured: Secured, secure_prefix: str, tmp_path: Path, place: int
) -> None:
    """Faust alone would wait silently without the group's right, and continue without a topic that is denied."""
    user = secured.user(SECRET)
    rights = Topics(secure_prefix).rights(Job.WORKER)
    secured.allow(user, [right for right in rights if right is not rights[place]])
    # All other rights apply at the broker once the one that is checked last does.
    wait_for(
        lambda: (
            str(rights[place]) in (sentence := outcome(topics.check, brokers_for(secured, user), secure_prefix))
            and sentence.count(" on ") == 1
        ),
        "all but one right",
        APPLIED_S,
    )
    with worker_by(scram_door(secured, tmp_path / "files", user), tmp_path / "worker", secure_prefix) as worker:
        assert worker.process.wait(60) == 3
        assert worker.log.count(f"the broker denies {rights[place]}: grant it to User:{user}") == 1
        assert "Traceback" not in worker.log


@pytest.mark.kafka
@pytest.mark.parametrize("place", [0, 3, 7], ids=["to read segments", "to write records", "the group's"])
def test_k7_worker_ends_when_a_right_is_revoked_and_its_successor_continues(
    secured: Secured, secure_prefix: str, tmp_path: Path, place: int
) -> None:
    """With one sentence; nothing is lost or counted twice after the right is restored."""
    user, names = secured.user(SECRET), Topics(secure_prefix)
    rights = names.rights(Job.WORKER)
    secured.allow(user, rights)
    wait_for(lambda: outcome(topics.check, brokers_for(secured, user), secure_prefix) == "", "all rights", APPLIED_S)
    door = scram_door(secured, tmp_path / "files", user)

    seeds = itertools.count()

    def write() -> None:
        asyncio.run(write_all(secured.bootstrap, names.segments, list(SyntheticTap(next(seeds)).bundles(20))))

    def has_ended() -> bool:
        write()  # it may take a second until the broker's authorizer applies it
        return worker.process.poll() is not None

    def records() -> list[Any]:
        return asyncio.run(read_all(secured.bootstrap, names.records))

    write()
    with worker_by(door, tmp_path / "worker", secure_prefix) as worker:
        wait_for(lambda: len(records()) == 20, "the first records")
        secured.deny(user, rights[place])
        wait_for(has_ended, "the worker's end")
        assert worker.process.wait() == 3
        lines = [line for line in worker.log.splitlines() if '"level":"error","part":"streamgauge.worker"' in line]
        assert len(lines) == 1
        assert "denies" in lines[0]
        assert rights[place].name in lines[0]
        assert "Traceback" not in worker.log
    secured.allow(user, rights)
    wait_for(lambda: outcome(topics.check, brokers_for(secured, user), secure_prefix) == "", "all rights", APPLIED_S)
    expected = assembled(asyncio.run(read_all(secured.bootstrap, names.segments)))
    with worker_by(door, tmp_path / "worker", secure_prefix) as worker:
        wait_for(lambda: distinct(records()).keys() == expected.keys(), "all records")
        assert worker.stop() == 0
    assert distinct(records()) == {stream: {record} for stream, record in expected.items()}


def test_the_guide_shows_the_rights_as_they_are() -> None:
    """One row per job: its name, and its rights, with topics without their prefix."""
    shown: dict[str, set[str]] = {}
    for name, cell in re.findall(r"^\| `([^`]+)` \| ((?:\w+ on .*?)) \|$", GUIDE.read_text(), re.MULTILINE):
        shown[name] = set(cell.split("; "))
    assert shown == {
        job.value: {f"{right.operation.acl_name} on {_place(right)}" for right in Topics("PREFIX").rights(job)}
        for job in Job
    }


def _place(right: Right) -> str:
    return f"`{right.name}`" if right.kind is Kind.TOPIC else f"group `{right.name}`"
