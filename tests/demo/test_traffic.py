"""Traffic through a server that stands for a tap: rounds follow each other, and SIGTERM ends them."""

import asyncio
import signal
import subprocess
import sys

import pytest

from streamgauge_demo.scenarios import BY_MODEL
from streamgauge_demo.traffic import rounds
from tests.demo.running import simulator
from tests.ports import free_port
from tests.running import wait_for

pytestmark = pytest.mark.slow

PLAYED = tuple(BY_MODEL[model] for model in ("gateway/usage", "nimbus/messages-stop"))


def test_each_round_plays_every_scenario() -> None:
    with simulator(time_scale=0.01) as provider:

        async def until_two_rounds() -> None:
            playing = asyncio.ensure_future(rounds(provider.url, PLAYED, rest_s=0.01))
            async with asyncio.timeout(60):
                while len(provider.told) < 2 * len(PLAYED):
                    assert not playing.done()
                    await asyncio.sleep(0.02)
            playing.cancel()
            await asyncio.wait({playing})

        asyncio.run(until_two_rounds())
        assert {told.model for told in provider.told.values()} == {scenario.model for scenario in PLAYED}


def test_it_waits_for_a_tap_and_ends_by_a_signal() -> None:
    with simulator(time_scale=0.01) as provider:
        words = [sys.executable, "-m", "streamgauge_demo.traffic", f"{provider.url}/"]
        with subprocess.Popen(words) as traffic:
            wait_for(lambda: len(provider.told) > 3, "requests")
            traffic.send_signal(signal.SIGTERM)
            assert traffic.wait(60) == 0
    with subprocess.Popen([*words[:-1], f"http://127.0.0.1:{free_port()}"]) as alone:
        with pytest.raises(subprocess.TimeoutExpired):
            alone.wait(5)
        alone.send_signal(signal.SIGTERM)
        assert alone.wait(60) == 0
