"""The simulator in its own process: the clients that the demo runs do not delay its clock."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import msgspec

from streamgauge.errors import Unavailable
from streamgauge_demo.truth import Told

# Time limit to start, to answer and to stop, on a busy machine (seconds).
PATIENCE_S = 30.0


class SimulatorProcess:
    """A running simulator. `url`: without a final slash."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def told(self) -> dict[str, Told]:
        """What the simulator did so far, by request id."""
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
            response = await client.get(f"{self.url}/truth")
        return {truth.request_id: truth for truth in msgspec.json.decode(response.content, type=list[Told])}


@asynccontextmanager
async def simulator_process(time_scale: float) -> AsyncIterator[SimulatorProcess]:
    """A simulator that runs while the context lasts; it also ends with this process. Raises Unavailable."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "streamgauge_demo.simulator", "--time-scale", str(time_scale), "--until-stdin-ends"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must not end the simulator: the demo reads its truth afterwards
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield SimulatorProcess(await _address(process.stdout))
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE_S):  # wait_for of Python 3.11 may swallow a cancellation
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _address(stdout: asyncio.StreamReader) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            url = (await stdout.readline()).decode().strip()
    except (TimeoutError, ValueError):  # ValueError: its first line is longer than 64 KiB
        url = ""
    if not url:
        raise Unavailable("the provider simulator did not start: see its error message above")
    return url
