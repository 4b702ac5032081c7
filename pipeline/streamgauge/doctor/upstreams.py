"""Each upstream: its name resolves, it accepts connections, its certificate is valid, and it answers in HTTP."""

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from streamgauge.doctor.contract import Finding, Installation, fail, ok, warn
from streamgauge.doctor.probe import Answer, ProbeError, head
from streamgauge.runtime.certificates import Invalid
from streamgauge.settings.types import Upstream, version_at_end

# A certificate that expires sooner is reported (days): certificates of public authorities are renewed 30 days before.
WARN_DAYS = 14

_REDIRECTS = (301, 302, 307, 308)
_UNAVAILABLE = (502, 503, 504)

CURES = {
    Invalid.UNTRUSTED: "give the CA file with --upstream-ca",
    Invalid.EXPIRED: "renew it on the upstream, and check the clock of this host",
    Invalid.NOT_YET: "check the clocks of both hosts",
    Invalid.OTHER_HOST: "use a host name of the certificate in the URL of --upstream",
    Invalid.OTHER: "check it on the upstream",
}


async def check_upstreams(installation: Installation) -> Sequence[Finding]:
    """One finding for each upstream, and one more for each whose URL ends in a version."""
    findings = await asyncio.gather(*(_of(upstream, installation) for upstream in installation.upstreams))
    return [*findings, *(finding for upstream in installation.upstreams for finding in _on_version(upstream))]


async def ask(upstream: Upstream, installation: Installation) -> Answer:
    """The upstream's answer. Raises ProbeError."""
    parts = urlsplit(upstream.url)
    secure = parts.scheme == "https"
    if secure and installation.upstream_tls is None:
        raise ProbeError("it was not asked, since the files for TLS cannot be used", "see the check of the settings")
    tls = installation.upstream_tls if secure else None
    return await head(parts.hostname or "", parts.port or (443 if secure else 80), parts.path, tls, CURES)


async def _of(upstream: Upstream, installation: Installation) -> Finding:
    name = f"upstream {upstream.name or upstream.url}"
    try:
        answer = await ask(upstream, installation)
    except ProbeError as error:
        return fail(f"{name}: {error.says}", error.cure)
    if answer.status in _REDIRECTS:
        cure = "give --upstream the address to which it redirects: clients would leave the tap"
        return warn(f"{name}: answers with a redirect ({answer.status})", cure)
    if answer.status in _UNAVAILABLE:
        return warn(f"{name}: answers with {answer.status}", "check the server, and what stands before it")
    if answer.certificate_ends_s is not None:
        days = (answer.certificate_ends_s - time.time()) / 86_400
        if days < WARN_DAYS:
            return warn(f"{name}: its certificate expires in {days:.0f} days", "renew it on the upstream")
        return ok(
            f"{name}: reached over TLS, answers with {answer.status}; its certificate is valid for {days:.0f} days"
        )
    return ok(f"{name}: reached, answers with {answer.status}")


def _on_version(upstream: Upstream) -> list[Finding]:
    """What becomes of a version that both the URL and the base URL of clients have."""
    version = version_at_end(upstream.url)
    if not version:
        return []
    prefix = f"/{upstream.name}" if upstream.name else ""
    return [
        ok(
            f"upstream {upstream.name or upstream.url}: its URL ends in {version}; clients reach it with the base URL"
            f" {prefix}{version} and with {prefix or '/'}, and no request goes to {version}{version}"
        )
    ]
