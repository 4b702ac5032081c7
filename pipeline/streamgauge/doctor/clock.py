"""The clock of this host, compared with the clocks of other hosts, by the Date header of HTTP and the broker's times."""

import asyncio
import ssl
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from streamgauge.doctor.contract import Finding, Installation, fail, ok, warn
from streamgauge.doctor.probe import ProbeError, head
from streamgauge.doctor.upstreams import CURES, ask
from streamgauge.kafka.log_reader import LogUnreadableError
from streamgauge.runtime.listeners import is_loopback

# From which difference on times of records are visibly wrong, and from which certificates and days are (seconds).
WARN_S = 5.0
FAIL_S = 300.0
# How many upstreams are asked.
_ASKED = 3
_CURE = "synchronise the clock of this host (chrony, systemd-timesyncd)"


async def check_clock(installation: Installation) -> Sequence[Finding]:
    """One finding: the smallest difference that a host shows, since more than one wrong clock is unlikely."""
    seen = await _differences(installation)
    if not seen:
        cure = "give --prometheus URL of another host, whose answer has a date, or compare the clock yourself"
        return [warn("no other host gave its time to compare the clock with", cure)]
    difference_s, host = min(seen, key=lambda difference: abs(difference[0]))
    if abs(difference_s) < WARN_S:
        return [ok(f"the clock of this host differs from that of {host} by less than {WARN_S:g} s")]
    way = "ahead of" if difference_s > 0 else "behind"
    says = f"the clock of this host is {abs(difference_s):.0f} s {way} that of {host}"
    return [fail(says, _CURE) if abs(difference_s) >= FAIL_S else warn(says, _CURE)]


async def _differences(installation: Installation) -> list[tuple[float, str]]:
    """The differences between our clock and each other host's (seconds), with the host's name."""
    differences = []
    others = [
        upstream
        for upstream in installation.upstreams
        if not await _is_this_host(urlsplit(upstream.url).hostname or "")
    ]
    for upstream in others[:_ASKED]:
        try:
            date_s = (await ask(upstream, installation)).date_s
        except ProbeError:
            continue  # the check of the upstreams reports it
        if date_s is not None:
            differences.append((_difference(date_s), urlsplit(upstream.url).hostname or upstream.name))
    if installation.prometheus and (from_prometheus := await _of_prometheus(installation.prometheus)) is not None:
        differences.append((_difference(from_prometheus), "Prometheus"))
    return differences + await _of_broker(installation)


def _difference(date_s: float) -> float:
    """A Date header is cut to whole seconds, so it is half a second too early on average."""
    return time.time() - (date_s + 0.5)


async def _of_prometheus(url: str) -> float | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None  # the check of Prometheus reports that this is no address
    if await _is_this_host(parts.hostname or ""):
        return None
    secure = parts.scheme == "https"
    tls = ssl.create_default_context() if secure else None
    try:
        port = port or (443 if secure else 80)
        return (await head(parts.hostname or "", port, f"{parts.path.rstrip('/')}/-/healthy", tls, CURES)).date_s
    except ProbeError:
        return None


async def _is_this_host(host: str) -> bool:
    """Whether every address of the host is one of loopback: its clock is ours. No name that is not resolved is."""
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return all(is_loopback(str(address[0])) for *_, address in addresses)


async def _of_broker(installation: Installation) -> list[tuple[float, str]]:
    """The broker's clock is not before the newest message that it stamped, so this shows only a clock that is behind."""
    cluster = installation.cluster
    if installation.command != "worker" or cluster is None or (facts := await cluster.facts_if_known()) is None:
        return []
    if (segments := facts.topics.get(cluster.topics.segments)) is None:
        return []
    try:
        ends = await cluster.ends(cluster.topics.segments, segments.partitions)
    except LogUnreadableError:
        return []
    behind = [time.time() - last.log_ms / 1000 for _, last in ends.values()]
    return [(behind_s, "the broker") for behind_s in behind if behind_s < -WARN_S]
