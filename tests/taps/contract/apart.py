"""Where a tap's records may differ from the reference, and why. Everything else must be equal, and each entry must be
needed.

Paths are patterns of flattened records (comparing.py).
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from tests.taps.contract.comparing import differing
from tests.taps.contract.drivers import LIBRARIES
from tests.taps.contract.scenario import Scenario


class Apart(NamedTuple):
    """`only`: the scenarios for which the entry applies; empty: all."""

    why: str
    paths: tuple[str, ...]
    only: frozenset[str] = frozenset()

    def is_of(self, scenario: str) -> bool:
        return not self.only or scenario in self.only

    def covers(self, path: str) -> bool:
        return any(fnmatchcase(path, pattern) for pattern in self.paths)


_BLOCKED = Apart("only a relay holds back its upstream for a client that reads slowly", ("timing.client_blocked_s",))
_NO_UPSTREAM = Apart("an application that breaks off its own answer has no upstream that failed", ("error.code",))
_NO_HOST = Apart("an application is its own server", ("request.host",))
_OF_BOTO3 = (
    Apart("botocore tells no handler when it has sent the request", ("timing.request_sent_s",)),
    Apart(
        "it reads the body of an error before a handler sees the head",
        ("timing.headers_s",),
        frozenset({"too-many-requests", "bad-gateway", "redirect", "retry-at-a-date", "error-as-stream"}),
    ),
    Apart("it keeps the last of several fields of a name", ("provider_request_id",), frozenset({"ids-twice"})),
)
_ADDRESS = Apart("the host is that of the URL, here an address, and not that of the header Host", ("request.host",))
_NO_SOCKET = Apart("what reached a client's socket is not seen from within a process", ("counts.client_bytes",))
_NOT_RECORDED = Apart("a recording does not hold what reached the client", ("counts.client_bytes",))
_NO_ENDING = Apart(
    "these formats do not say how the connection ended",
    ("outcome", "error", "error.*", "timing.client_gone_s"),
    frozenset(
        {
            "fin-amid-chunked", "fin-amid-length", "rst-amid-chunked", "rst-amid-length", "rst-before-the-body", "cut-json",
            "client-leaves", "client-leaves-after-terminal", "client-leaves-within-an-event", "client-leaves-at-an-error",
        }
    ),
)  # fmt: skip
_WHOLE_REQUEST = Apart(
    "a recording holds the request's body, which a live tap has let pass when the answer's head shows an event stream",
    ("request.stream", "request_model", "request_digest"),
    frozenset({"unknown-path", "type-in-capitals", "type-twice", "types-in-one-field"}),
)
_NO_STAMPS = Apart(
    "reads have no stamps",
    (
        "timing.first_*", "timing.last_token_s", "timing.finish_s", "timing.inter_token_latency_s", "timing.gaps.*_s",
        "timing.gaps.stalls", "timing.gaps.buckets", "choices.*.first_token_s",
    ),
)  # fmt: skip
_NOT_SENT = Apart("mitmproxy says when it had the request, not when it had sent it on", ("timing.request_sent_s",))
_NO_TIMES = Apart(
    "this one has no times, though some do", ("timing.headers_s", "timing.end_s", "timing.request_sent_s")
)
_FILE = Apart("the command names the upstreams of live captures, not those of a file", ("upstream",))
_CUT_CODING = Apart(
    "a coding that stops amid is the fault, where a connection is not known to have broken",
    ("outcome", "error", "error.*", "integrity.*"),
    frozenset({"rst-amid-gzip"}),
)
_RECORDED = (_BLOCKED, _NOT_RECORDED, _NO_ENDING, _CUT_CODING, _WHOLE_REQUEST, _NO_STAMPS)
_BODY_ALONE = (
    Apart(
        "a body tells nothing of its request",
        (
            "request", "request.*", "request_model", "request_digest", "credential_id", "tenant", "trace_id", "attempt",
            "parent_span_id", "attributes.*",
            "resumed_from", "service_tier", "upstream",
        ),
    ),
    Apart("nor that this was too long", ("integrity.reasons.*",), frozenset({"long-prompt"})),
    Apart(
        "nor of its head",
        (
            "status_code", "provider_request_id", "provider_organization", "provider_project", "retry_after_s",
            "rate_limit", "rate_limit.*",
        ),
    ),
    Apart(
        "without the status an error page is an answer that was cut short, and an error object one that failed",
        ("outcome", "error", "error.*"),
        frozenset({"bad-gateway", "too-many-requests", "retry-at-a-date", "error-as-stream", "redirect"}),
    ),
    Apart(
        "without a path what holds nothing of a dialect is of none, and nothing at all is no stream",
        ("dialect", "endpoint", "streaming"),
        frozenset({"bad-gateway", "redirect", "page-for-an-answer", "empty", "rst-before-the-body", "cut-json"}),
    ),
    Apart(
        "without the position that the request names nothing is repeated",
        ("endpoint", "counts.*", "choices.*.token_events", "timing.gaps.count"),
        frozenset({"resumed"}),
    ),
)  # fmt: skip

_ENVOY = (
    _BLOCKED,
    _NO_SOCKET,
    Apart(
        "Envoy does not tell whether an upstream's connection was reset or closed",
        ("error.code",),
    ),
    Apart("Envoy joins the fields of one name", ("provider_request_id",), frozenset({"ids-twice"})),
)
_NO_REQUEST_BODY = (
    Apart(
        "Envoy does not report the request's body, if its configuration does not ask for it",
        ("request.*", "request_model", "request_digest", "service_tier", "timing.request_sent_s"),
    ),
    Apart("nor that it was too long", ("integrity.reasons.*",), frozenset({"long-prompt"})),
)

APART: Mapping[str, tuple[Apart, ...]] = {
    "proxy": (_ADDRESS,),
    **{f"{name}-{kind}": (_BLOCKED, _NO_SOCKET, _ADDRESS) for name in LIBRARIES for kind in ("sync", "async")},
    "boto3": (_BLOCKED, _NO_SOCKET, _ADDRESS, *_OF_BOTO3),
    "asgi": (_BLOCKED, _NO_SOCKET, _NO_UPSTREAM, _NO_HOST),
    "packets": (_BLOCKED,),
    "envoy": (*_ENVOY, *_NO_REQUEST_BODY),
    "envoy-with-request-bodies": _ENVOY,
    "pcap": (_BLOCKED,),
    "replay-pcap": (_BLOCKED, _FILE),
    "har": (*_RECORDED, _NO_TIMES),
    "flows": (*_RECORDED, _NOT_SENT),
    "cassette": (*_RECORDED, _NO_TIMES),
    "body": (_BLOCKED, _NOT_RECORDED, _NO_ENDING, _NO_STAMPS, _NO_TIMES, *_BODY_ALONE),
}


def unexplained(driver: str, scenario: Scenario, wanted: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """The paths at which a driver's record differs from the reference's and no entry gives the reason."""
    entries = [entry for entry in APART[driver] if entry.is_of(scenario.name)]
    return sorted(path for path in differing(wanted, record) if not any(entry.covers(path) for entry in entries))
