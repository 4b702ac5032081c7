"""What runs beside a test: a simulator, in a thread with an event loop of its own, and the tap, as a process."""

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamgauge.demo.simulator import Simulator

# Fast enough for a test, slow enough that most writes arrive one by one.
QUICK = 0.05

# A thread or a process starts, or ends, within this on a busy machine (seconds).
START_S = 60.0


@contextmanager
def simulator(time_scale: float = QUICK) -> Iterator[Simulator]:
    """A started simulator; stopped when the context is left."""
    running, ready, loops = Simulator(time_scale=time_scale), threading.Event(), list[asyncio.AbstractEventLoop]()

    async def run(stop: asyncio.Event) -> None:
        await running.start()
        ready.set()
        await stop.wait()
        await running.stop()

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        await run(stop)

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(START_S)
        yield running
    finally:
        if loops:
            loops[0].call_soon_threadsafe(stop.set)
        thread.join(START_S)
        assert not thread.is_alive()


@contextmanager
def tap(upstreams: dict[str, str], data_dir: Path, idle_timeout_s: float) -> Iterator[str]:
    """`streamgauge up` as a process of its own before these upstreams (URL by name); gives its base URL."""
    command = [sys.executable, "-m", "streamgauge", "up", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    command += ["--data-dir", str(data_dir), "--upstream-idle-timeout", str(idle_timeout_s), "--drain-timeout", "5"]
    for name, url in upstreams.items():
        command += ["--upstream", f"{name}={url}"]
    with (
        (data_dir.parent / f"{data_dir.name}.log").open("w+") as log,
        subprocess.Popen(command, stderr=log) as process,
    ):
        try:
            yield _address(process, Path(log.name))
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(START_S) == 0


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """What `up` says on stderr when it serves: `up: http://HOST:PORT/NAME -> URL`."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        said = re.search(r"up: (http://[^/\s]+)/\S* -> ", log.read_text())
        if said:
            return said[1]
        time.sleep(0.05)
    raise AssertionError(f"up did not start: {log.read_text()}")
