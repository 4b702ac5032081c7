"""The checks, in the order of their lines. They run at once, each with a time limit, and none shows a traceback."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from streamgauge.doctor import (
    acls,
    broker,
    buffering,
    certificates,
    clock,
    coverage,
    disk,
    formats,
    key_file,
    ledger,
    ports,
    prometheus,
    secrets,
    settings,
    topics,
    upstreams,
)
from streamgauge.doctor.findings import Finding, fail, failure_of
from streamgauge.doctor.installation import Installation
from streamgauge.errors import StreamgaugeError

_UP, _TAP, _WORKER = "up", "tap", "worker"


@dataclass(frozen=True)
class Check:
    """`name`: what is checked; `find`: the check; `commands`: those for which it is run."""

    name: str
    find: Callable[[Installation], Awaitable[Sequence[Finding]]]
    commands: tuple[str, ...] = (_UP, _TAP, _WORKER)


CHECKS = (
    Check("settings", settings.find),
    Check("upstreams", upstreams.find, (_UP, _TAP)),
    Check("certificates", certificates.find),
    Check("secrets", secrets.find),
    Check("ports", ports.find),
    Check("buffering", buffering.find, (_UP, _TAP)),
    Check("broker", broker.find, (_TAP, _WORKER)),
    Check("topics", topics.find, (_TAP, _WORKER)),
    Check("rights", acls.find, (_TAP, _WORKER)),
    Check("disk", disk.find),
    Check("key", key_file.find, (_UP, _TAP)),
    Check("ledger", ledger.find, (_UP, _WORKER)),
    Check("formats", formats.find),
    Check("coverage", coverage.find, (_UP, _TAP)),
    Check("clock", clock.find),
    Check("prometheus", prometheus.find),
)


async def run_checks(
    installation: Installation, timeout_s: float, checks: Sequence[Check] = CHECKS
) -> list[tuple[str, Finding]]:
    """Each finding with the name of its check, in the order of `checks`. `timeout_s`: the time limit of each check."""
    chosen = [check for check in checks if installation.command in check.commands]
    found = await asyncio.gather(*(_findings(check, installation, timeout_s) for check in chosen))
    return [(check.name, finding) for check, findings in zip(chosen, found, strict=True) for finding in findings]


async def _findings(check: Check, installation: Installation, timeout_s: float) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(timeout_s):
            return await check.find(installation)
    except TimeoutError:
        cure = "give it more time with --check-timeout, or look at what it asks"
        return [fail(f"this check did not end within {timeout_s:g} s", cure)]
    except StreamgaugeError as error:
        return [failure_of(error)]
    except Exception as error:  # noqa: BLE001 - a fault of one check is no reason to lose the results of the others
        return [fail(f"this check failed by itself: {type(error).__name__}", "please report it")]
