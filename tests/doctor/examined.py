"""Installations for the checks, and what one check finds."""

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamgauge.doctor.checks import CHECKS
from streamgauge.doctor.cluster import Cluster
from streamgauge.doctor.contract import Finding, Installation, Level
from streamgauge.kafka.security import brokers_at
from streamgauge.kafka.topics import Job
from streamgauge.recorder.installation_key import installation_key
from streamgauge.settings.sources import load
from streamgauge.taps.proxy.tls import upstream_context

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL


def installation(command: str, folder: Path, brokers: Any = None, **options: Any) -> Installation:
    """An installation of `command` with these settings; `brokers`: an address or a Brokers; without it none.

    `through`, `prometheus` and `serve` are those of the doctor.
    """
    of_doctor = {name: options.pop(name, "") for name in ("through", "prometheus")}
    of_doctor["serve"] = options.pop("serve", None)
    settings = load({"data_dir": str(folder / "data"), **options}, commands=[command])
    job = Job.WORKER if command == "worker" else Job.TAP
    cluster = None if brokers is None else Cluster(brokers_at(brokers), settings.topic_prefix, job)
    tls: ssl.SSLContext = upstream_context(settings.upstream_ca, None, None)
    return Installation(command, settings, installation_key, cluster, tls, (), **of_doctor)


def found(name: str, examined: Installation) -> Sequence[Finding]:
    """What the check of this name finds."""
    [check] = [one for one in CHECKS if one.name == name]
    return asyncio.run(_found(check.find, examined))


async def _found(find: Any, examined: Installation) -> Sequence[Finding]:
    findings: Sequence[Finding] = await find(examined)
    return findings


def only(name: str, examined: Installation) -> Finding:
    """The one finding of a check. A finding that is not ok has a cure."""
    [finding] = found(name, examined)
    assert bool(finding.cure) == (finding.level is not OK), finding
    return finding
