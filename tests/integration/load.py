"""Many simulated streams at the same time, by a client that only reads: the load of the chain's tests."""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

from streamgauge_demo.scenario import Scenario
from streamgauge_demo.scenarios import SCENARIOS
from tests.demo.raw import request_bytes

# Connections that are opened at a time; all stream together then. The size of a listener's backlog is not tested here.
OPENING_AT_ONCE = 100

# Time for a round of streams, which takes seconds on an idle machine (seconds).
PATIENCE_S = 120.0


def mixed(count: int) -> list[Scenario]:
    """This many scenarios, each kind equally often: all whose response ends by itself."""
    kinds = [one for one in SCENARIOS if one.expected.exact and one.answer.ends]
    return [kinds[place % len(kinds)] for place in range(count)]


async def ask_all(url: str, scenarios: Sequence[Scenario]) -> None:
    """Sends all requests at once through the tap at `url`, and reads every response to its end."""
    opening = asyncio.Semaphore(OPENING_AT_ONCE)
    asking = [_ask(url, scenario, opening) for scenario in scenarios]
    await asyncio.wait_for(asyncio.gather(*asking), PATIENCE_S)


async def _ask(url: str, scenario: Scenario, opening: asyncio.Semaphore) -> None:
    address = urlsplit(url)
    head, body = request_bytes(scenario, f"/{scenario.upstream}")
    async with opening:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(head + body)
        while await reader.read(65_536):
            continue
    except ConnectionResetError:
        assert scenario.expected.outcome == "upstream_reset", scenario
    finally:
        writer.close()
