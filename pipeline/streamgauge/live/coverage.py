"""The share of a tap's responses that have a record, for the page."""

from pathlib import Path

from streamgauge.live.answers import Responses, Uncaptured
from streamgauge.spool.response_counters import read_responses


def responses_of(counters: Path) -> Responses:
    """The answer of a tap whose counters file this is. Raises OSError if the counts cannot be read."""
    by_upstream = read_responses(counters)
    without = [
        Uncaptured(upstream, reason.value, count)
        for upstream, responses in sorted(by_upstream.items())
        for reason, count in responses.not_captured.most_common()
    ]
    seen = sum(counts.seen for counts in by_upstream.values())
    return Responses(seen, sum(counts.captured for counts in by_upstream.values()), without)
