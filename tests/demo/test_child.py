"""The simulator as a child process: it gives the truth over HTTP, and ends with its parent."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from streamgauge_demo.child import simulator_process
from streamgauge_demo.driver import Clients, drive
from streamgauge_demo.scenarios import BY_MODEL
from streamgauge_demo.tally import Seen

pytestmark = pytest.mark.slow

# A process of ours starts, or ends, within this on a busy machine (seconds).
PROCESS_S = 60


def test_it_plays_and_gives_the_truth() -> None:
    scenario = BY_MODEL["nimbus/messages-error"]

    async def run() -> tuple[Seen, list[str]]:
        async with simulator_process(0.01) as simulator:
            clients = Clients(sync=False)
            seen = await drive(clients, scenario, simulator.url)
            await clients.close()
            return seen, [f"{request_id} {request.model}" for request_id, request in (await simulator.told()).items()]

    seen, requests = asyncio.run(run())
    assert requests == [f"{seen.request_id} {scenario.model}"]


def test_it_ends_with_a_parent_that_was_killed() -> None:
    program = """
import asyncio, sys
from streamgauge_demo.child import simulator_process

async def main():
    async with simulator_process(1.0) as simulator:
        print(simulator.url, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline().rpartition(":")[2])
        assert _listens(port)
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + PROCESS_S
    while _listens(port) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _listens(port)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
