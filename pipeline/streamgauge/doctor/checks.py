"""The checks, in the order of their lines. They run at once, each with a time limit, and none shows a traceback."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from streamgauge.doctor.broker import check_broker, check_rights, check_topics
from streamgauge.doctor.buffering import check_buffering
from streamgauge.doctor.clock import check_clock
from streamgauge.doctor.contract import Finding, Installation, fail, failure_of
from streamgauge.doctor.data_directory import check_coverage, check_disk, check_key
from streamgauge.doctor.formats import check_formats
from streamgauge.doctor.ledger import check_ledger
from streamgauge.doctor.ports import check_ports
from streamgauge.doctor.prometheus import check_prometheus
from streamgauge.doctor.settings import check_certificates, check_secrets, check_settings
from streamgauge.doctor.upstreams import check_upstreams
from streamgauge.errors import StreamgaugeError

_UP, _TAP, _WORKER = "up", "tap", "worker"


@dataclass(frozen=True)
class Check:
    """`name`: what is checked; `find`: the check; `commands`: those for which it is run."""

    name: str
    find: Callable[[Installation], Awaitable[Sequence[Finding]]]
    commands: tuple[str, ...] = (_UP, _TAP, _WORKER)


CHECKS = (
    Check("settings", check_settings),
    Check("upstreams", check_upstreams, (_UP, _TAP)),
    Check("certificates", check_certificates),
    Check("secrets", check_secrets),
    Check("ports", check_ports),
    Check("buffering", check_buffering, (_UP, _TAP)),
    Check("broker", check_broker, (_TAP, _WORKER)),
    Check("topics", check_topics, (_TAP, _WORKER)),
    Check("rights", check_rights, (_TAP, _WORKER)),
    Check("disk", check_disk),
    Check("key", check_key, (_UP, _TAP)),
    Check("ledger", check_ledger, (_UP, _WORKER)),
    Check("formats", check_formats),
    Check("coverage", check_coverage, (_UP, _TAP)),
    Check("clock", check_clock),
    Check("prometheus", check_prometheus),
)


async def run_checks(
    installation: Installation, timeout_s: float, checks: Sequence[Check] = CHECKS
) -> list[tuple[str, Finding]]:
    """Each finding with the name of its check, in the order of `checks`. `timeout_s`: the time limit of each check."""
    chosen = [check for check in checks if installation.command in check.commands]
    results = await asyncio.gather(*(_findings(check, installation, timeout_s) for check in chosen))
    return [(check.name, finding) for check, findings in zip(chosen, results, strict=True) for finding in findings]


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
