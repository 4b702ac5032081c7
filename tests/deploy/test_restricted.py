"""Taps and workers run where they may write to their data directory and /tmp alone, without rights, as in image and units.

Their system calls are those that the units allow, and no memory becomes executable that was written.
"""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from streamgauge.recorder.installation_key import installation_key
from streamgauge.runtime.data_directory import make_data_dir, warning_about
from streamgauge_demo.child import simulator_process
from tests.deploy.chart import environment, pods
from tests.deploy.sandbox import DATA, contained, serving, stopped, without_new_code
from tests.deploy.system_calls import allowed, made, traced
from tests.integration.load import ask_all, mixed
from tests.running import start, wait_for, wait_until_ready

STREAMS = 20


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    place.mkdir(mode=0o700)
    return place


def test_nothing_else_can_be_written_in_the_sandbox(data_dir: Path) -> None:
    attempt = "touch /new; touch /etc/new; touch /var/tmp/new; touch /run/new; touch /tmp/new && touch /srv/new; id -u"
    done = subprocess.run(
        [*contained(data_dir), "sh", "-c", attempt], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr.count("Read-only file system") == 4, done.stderr
    assert done.stdout.strip() == "10001"
    assert os.listdir(data_dir) == ["new"]  # noqa: PTH208 - names alone


def test_the_units_allow_what_processes_need_and_no_more() -> None:
    assert {"read", "epoll_wait", "prlimit64"} <= allowed()
    assert allowed().isdisjoint({"setuid", "mount", "ptrace", "chroot", "bpf", "sched_setscheduler"})


def test_up_with_a_read_only_root(data_dir: Path) -> None:
    asyncio.run(send_through_up([*contained(data_dir), *traced()], data_dir, DATA))
    assert {"ledger.sqlite", "spool.sqlite", "key"} <= {path.name for path in data_dir.iterdir()}
    assert made(data_dir) - allowed() == set()
    assert {"execve", "sendto"} <= made(data_dir)


def test_up_where_written_memory_cannot_be_executed(data_dir: Path) -> None:
    """MemoryDenyWriteExecute of the units."""
    asyncio.run(send_through_up(without_new_code(), data_dir, str(data_dir)))


async def send_through_up(around: list[str], place: Path, where: str) -> None:
    async with simulator_process(1.0) as simulator:
        with serving("up", place, around, where, simulator.url) as up, stopped(up):
            await ask_all(up.url, mixed(STREAMS))
            await asyncio.to_thread(up.wait_for_records, STREAMS)
            assert up.get("/health/live")[0] == 200


def test_the_key_of_the_chart_is_that_of_the_tap(data_dir: Path) -> None:
    """Its init container copies the key of a Secret, which belongs to root, before the tap would make its own."""
    (pod,) = [pod for pod in pods("full") if pod.owner.startswith("Deployment/")]
    (container,) = pod.spec["initContainers"]
    tap = environment(pod.spec["containers"][0])["STREAMGAUGE_DATA_DIR"]
    assert container["command"][-1] == f"{tap}/key"
    secret = data_dir / "secret"
    secret.write_bytes(bytes(range(32)))
    secret.chmod(0o440)
    command = [word.replace("/run/secrets/installation-key/key", f"{DATA}/secret") for word in container["command"]]
    command[-1] = f"{DATA}/tap/key"
    for _ in range(2):  # also when the container is started again
        subprocess.run([*contained(data_dir), *command], check=True, timeout=60)
    assert installation_key(data_dir / "tap") == bytes(range(32))
    make_data_dir(data_dir / "tap")
    assert warning_about(data_dir / "tap") is None


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_tap_and_worker_with_a_read_only_root(kafka: str, prefix: str, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("tap", "worker")}
    for place in places.values():
        place.mkdir(mode=0o700)
    asyncio.run(send_through_kafka(["--kafka", kafka, "--topic-prefix", prefix], **places))
    for place in places.values():
        assert made(place) - allowed() == set()


async def send_through_kafka(topics: list[str], tap: Path, worker: Path) -> None:
    flags = [*topics, "--admin", "127.0.0.1:0", "--data-dir", DATA]
    inside = [*without_new_code(), *traced()]
    async with simulator_process(1.0) as simulator:
        with (
            serving("tap", tap, [*contained(tap), *inside], DATA, simulator.url, *topics) as tapping,
            stopped(tapping),
            start("worker", flags, worker, around=[*contained(worker), *inside]) as working,
            stopped(working),
        ):
            await asyncio.to_thread(wait_until_ready, working)
            await ask_all(tapping.url, mixed(STREAMS))
            await asyncio.to_thread(wait_for, lambda: working.recorded() >= STREAMS, f"{STREAMS} records", 120)
