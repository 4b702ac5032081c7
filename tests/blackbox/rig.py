"""A provider, `streamgauge up` in front of it, and exchanges through both, each with its record."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from streamgauge_demo.provider import Provider, Script
from tests import client
from tests.blackbox.compare import Exchange, client_findings, record_findings
from tests.events import PATHS
from tests.running import Running, off_loop, start_up

Json = dict[str, Any]
# Clients at the same time: enough to interleave streams, below the file limit of a small machine.
AT_ONCE = 64


class Rig:
    """Runs exchanges and judges them. `prefix`: what goes before each path."""

    def __init__(self, running: Running, up: Provider, prefix: str) -> None:
        self.running, self.provider, self.prefix = running, up, prefix
        self.scripts = up.scripts
        self.exchanges: dict[str, Exchange] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    async def run(
        self,
        case: str,
        dialect: str,
        script: Script,
        *,
        ended: str = "proper",
        path: str | None = None,
        headers: str = "",
        body: bytes = b'{"stream":true}',
        method: str = "POST",
        exact: bool = True,
        talk: dict[str, Any] | None = None,
        line: client.Line | None = None,
    ) -> Exchange:
        """One exchange, on a connection of its own or on `line`."""
        trace = uuid.uuid4().hex
        self.scripts[case] = script
        where = self.prefix + (path or PATHS[dialect])
        asked = client.request(where, body, case=case, trace=trace, headers=headers, method=method)
        async with self._room:
            if line is None:
                received = await client.talk(self.running.url, [asked], method=method, **(talk or {}))
            else:
                received = client.Received()
                await line.send(received, [asked])
                await line.read_answer(received, method)
        return self.keep(Exchange(case, trace, dialect, received, None, ended, exact, body, method=method))

    def keep(self, one: Exchange) -> Exchange:
        played = self.provider.played(one.case)
        one.played = played[0] if played else None
        self.exchanges[one.case] = one
        return one

    async def records(self) -> dict[str, list[Json]]:
        """Every record by its trace, once there is one for each exchange or a while has passed."""
        records = await asyncio.to_thread(self._wait, len(self.exchanges))
        by: dict[str, list[Json]] = {}
        for record in records:
            by.setdefault(record["trace_id"], []).append(record)
        return by

    def _wait(self, count: int) -> list[Json]:
        import time

        deadline = time.monotonic() + 20
        while len(found := self.running.records()) < count and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(0.5)  # duplicates arrive now
        return self.running.records() if len(found) >= count else found

    async def record(self, one: Exchange) -> Json:
        """The exchange's one record."""
        found = (await self.records()).get(one.trace, [])
        assert len(found) == 1, f"{one.case}: {len(found)} records"
        return found[0]

    async def findings(self) -> list[str]:
        """Compares all exchanges so far with their records; empty if there is no difference."""
        by = await self.records()
        found = []
        for case, one in self.exchanges.items():
            one.read()
            mine = by.get(one.trace, [])
            found += [f"{case}: {finding}" for finding in client_findings(one)]
            if len(mine) != 1:
                found.append(f"{case}: {len(mine)} records")
            else:
                found += [f"{case}: {finding}" for finding in record_findings(one, mine[0])]
        return found


@asynccontextmanager
async def rig(folder: Path, *options: str, name: str | None = "fake") -> AsyncIterator[Rig]:
    """`up` before one provider; `name` None for a single upstream without prefix."""
    async with Provider({}) as up:
        command = start_up({name: up.url} if name else up.url, folder / "data", *options)
        async with off_loop(command) as running:
            yield Rig(running, up, f"/{name}" if name else "")


def judged(folder: Path, work: Callable[[Rig], Awaitable[None]], *options: str, name: str | None = "fake") -> None:
    """Runs `work` on a separate rig."""

    async def main() -> None:
        async with rig(folder, *options, name=name) as made:
            await work(made)

    asyncio.run(main())
