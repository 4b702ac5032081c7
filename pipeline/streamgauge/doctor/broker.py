"""The brokers: they answer, accept the log-in, and name addresses that this host can reach."""

import asyncio
import ssl
import time
from collections.abc import Sequence

from streamgauge.doctor.findings import Finding, fail, failure_of, ok, warn
from streamgauge.doctor.installation import Installation
from streamgauge.doctor.probe import ProbeError, certificate_ends_s, connected
from streamgauge.doctor.upstreams import WARN_DAYS
from streamgauge.kafka.topics import TopicsError
from streamgauge.runtime.certificates import Invalid

# The most brokers to which a connection is tried.
_MAX_NODES = 50

# Clients verify the name that a broker gives itself, not only that in --kafka.
_CURES = dict.fromkeys(Invalid, "give the broker a certificate that is valid for the host of its advertised.listeners")


async def find(installation: Installation) -> Sequence[Finding]:
    """One finding for the brokers that the settings name; one more for each broker that cannot be reached."""
    if installation.cluster is None:
        return []  # the check of the settings says why
    brokers = installation.cluster.brokers
    try:
        facts = await installation.cluster.facts()
    except TopicsError as error:
        return [failure_of(error)]
    nodes = facts.nodes[:_MAX_NODES]
    tls = brokers.context
    unreached = [one for one in await asyncio.gather(*(_reach(*node, tls) for node in nodes)) if one is not None]
    count = f"{len(facts.nodes)} broker{'s' if len(facts.nodes) != 1 else ''}"
    return unreached or [ok(f"the cluster at {brokers} answers over {brokers.protocol} and has {count}, all reached")]


async def _reach(host: str, port: int, tls: ssl.SSLContext | None) -> Finding | None:
    """A failure if a broker cannot be reached at the address that it names; clients use that one, not --kafka."""
    try:
        async with connected(host, port, tls, _CURES) as (_, writer):
            ends_s = certificate_ends_s(writer)
    except ProbeError as error:
        return fail(
            f"a broker names itself {host}:{port} to clients, but {error.says}",
            f"correct advertised.listeners of the broker, or {error.cure}",
        )
    if ends_s is not None and (days := (ends_s - time.time()) / 86_400) < WARN_DAYS:
        return warn(
            f"the certificate of the broker at {host}:{port} expires in {days:.0f} days", "renew it on the broker"
        )
    return None
