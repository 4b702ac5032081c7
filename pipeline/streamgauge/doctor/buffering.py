"""Whether a proxy before or after the tap buffers: then a slow stream arrives in pieces, and no time of a token is right.

The doctor serves a slow stream of its own, at the address of the upstream that is named `doctor`, and requests it through
the running tap and through --through. Without such an upstream --through must lead to the stream itself.
"""

import ssl
from collections.abc import Sequence
from itertools import pairwise
from urllib.parse import urlsplit

from streamgauge.doctor.findings import Finding, fail, ok, warn
from streamgauge.doctor.installation import DOCTOR, Installation
from streamgauge.doctor.ports import reached_at
from streamgauge.doctor.slow_stream import EVENTS, GAP_S, PATH, SlowStream, StreamFailedError, arrivals, serving
from streamgauge.doctor.threads import in_thread
from streamgauge.runtime.listeners import Address
from streamgauge.runtime.redaction import redacted_value

# Where the stream is served if no upstream says it.
DEFAULT_URL = "http://127.0.0.1:9469"

# Two events that arrive within this share of the time between their writes came together.
_TOGETHER = 0.25
# From which share of events that came together a proxy buffers. A busy host delays some.
_BUFFERED = 0.5

_UNBUFFER = "turn buffering off in the proxy (nginx: proxy_buffering off; gzip off), for event streams at least"
_ADD = f"start the tap with --upstream {DOCTOR}={DEFAULT_URL}, and give the doctor the same"


async def find(installation: Installation) -> Sequence[Finding]:
    """One finding for the way through the tap, one for the way through --through."""
    upstream = installation.doctor_upstream
    if upstream is None and not installation.through:
        return [
            warn("whether a proxy buffers was not tested", f"{_ADD}; give --through URL for proxies before the tap")
        ]
    place = urlsplit(upstream.url if upstream is not None else DEFAULT_URL)
    base = f"{place.path}{PATH}"
    at = installation.serve or Address(host=place.hostname or "", port=place.port or 80)
    try:
        async with serving(at.host, at.port) as stream:
            found = []
            if upstream is not None:
                found.append(await _through_tap(installation, stream))
            if installation.through:
                path = f"/{DOCTOR}{PATH}" if upstream is not None else base
                found.append(await _through(installation.through, path, stream))
            return found
    except OSError as error:
        cure = (
            f"let the upstream {DOCTOR} have a free port of this host, as in {DOCTOR}={DEFAULT_URL}, or give"
            " --serve HOST:PORT if it leads here through a proxy"
        )
        return [warn(f"the slow stream cannot be served at {at} ({error.strerror or error})", cure)]


async def _through_tap(installation: Installation, stream: SlowStream) -> Finding:
    settings = installation.settings
    scheme, tls = "http", None
    if settings.client_token_file is not None or settings.tls_client_ca is not None:
        return warn(
            f"the tap at {settings.listen} authenticates its clients, so that no stream was sent through it",
            "see with one of its clients whether the events of a stream arrive one by one",
        )
    if settings.tls_certificate is not None:
        # The address is this host's own, for which the certificate need not be.
        scheme, tls = "https", ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    at = reached_at(settings.listen)
    where = f"the tap at {settings.listen}"
    try:
        return await _measured(where, f"{scheme}://{at}/{DOCTOR}{PATH}", tls, stream)
    except StreamFailedError as error:
        if isinstance(error.__cause__, ConnectionRefusedError):
            return warn(f"{where} does not run, so that no stream was sent through it", "start it, and run this again")
        if error.status == 404:
            return warn(f"{where} runs without the upstream {DOCTOR}", _ADD)
        return fail(f"the slow stream does not arrive through {where}: {error}", "see the tap's log")


async def _through(url: str, path: str, stream: SlowStream) -> Finding:
    shown = redacted_value(url)
    if urlsplit(url).scheme not in ("http", "https"):
        return fail(f"--through {shown} is no address of HTTP", "write http://HOST[:PORT] or https://HOST[:PORT]")
    tls = ssl.create_default_context() if url.startswith("https:") else None
    try:
        return await _measured(shown, f"{url.rstrip('/')}{path}", tls, stream)
    except StreamFailedError as error:
        cure = f"check the address: {shown.rstrip('/')}{path} must lead to the doctor's stream"
        return fail(f"the slow stream does not arrive through {shown}: {error}", cure)


async def _measured(where: str, url: str, tls: ssl.SSLContext | None, stream: SlowStream) -> Finding:
    """Compares the gaps between arrivals with those between writes. Raises StreamFailedError."""
    number = stream.next_number()
    arrived = await in_thread(arrivals, f"{url}?{number}", tls)
    sent = stream.sent.get(number, [])
    if len(arrived) != EVENTS or len(sent) != EVENTS:
        raise StreamFailedError(f"{len(arrived)} of {EVENTS} events arrived")
    together = sum(
        later - earlier < _TOGETHER * (sent[place + 1] - sent[place])
        for place, (earlier, later) in enumerate(pairwise(arrived))
    )
    late_s = max(there - then for there, then in zip(arrived, sent, strict=True))
    if together >= _BUFFERED * (EVENTS - 1):
        pieces = "one piece" if together == EVENTS - 1 else f"{EVENTS - together} pieces"
        says = f"{EVENTS} events, sent every {GAP_S:g} s, arrive through {where} in {pieces}, {late_s:.1f} s late"
        return fail(f"a proxy buffers: {says}", _UNBUFFER)
    return ok(f"events that are sent every {GAP_S:g} s arrive through {where} one by one, {late_s:.2f} s late at most")
