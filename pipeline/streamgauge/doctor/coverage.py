"""How many of the responses that the tap has counted have a record: what the ledger can say about a bill."""

from collections import Counter
from collections.abc import Sequence

from streamgauge.doctor.findings import Finding, ok, warn
from streamgauge.doctor.installation import Installation
from streamgauge.doctor.threads import in_thread
from streamgauge.spool.response_counters import NotCaptured, read_responses

# Responses that were to have a record; the other reasons are of traffic that is not captured by design.
_LOST = frozenset(NotCaptured) - {
    NotCaptured.NOT_LLM,
    NotCaptured.FORMAT,
    NotCaptured.REFUSED,
    NotCaptured.PROTOCOL,
    NotCaptured.STOPPING,
}


async def find(installation: Installation) -> Sequence[Finding]:
    """One finding: a warning if responses that were to have a record have none."""
    counters = installation.settings.data_dir / "counters"
    found = await in_thread(lambda: read_responses(counters))
    seen = sum(responses.seen for responses in found.values())
    if not seen:
        return [ok("no response has passed the tap of this data directory yet")]
    without: Counter[NotCaptured] = Counter()
    for responses in found.values():
        without += responses.not_captured
    captured = seen - without.total()
    counts = ", ".join(f"{count} {reason.value}" for reason, count in without.most_common())
    says = f"{captured} of {seen} responses have a record ({captured / seen:.1%}){f'; without: {counts}' if counts else ''}"
    if any(reason in _LOST for reason in without):
        return [
            warn(
                says,
                "see streamgauge_tap_responses_not_captured_total, and the reasons in docs/explanation/measuring.md",
            )
        ]
    return [ok(says)]
