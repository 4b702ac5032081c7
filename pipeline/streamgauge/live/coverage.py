"""How many of the responses that a tap saw have a record, for the page."""

from pathlib import Path

from streamgauge.live.answers import Responses, Uncaptured
from streamgauge.spool.response_counters import read_responses


def responses_of(counters: Path) -> Responses:
    """The answer of a tap whose counters file this is. Raises OSError if the counts cannot be read."""
    found = read_responses(counters)
    without = [
        Uncaptured(upstream, reason.value, count)
        for upstream, responses in sorted(found.items())
        for reason, count in responses.not_captured.most_common()
    ]
    seen = sum(one.seen for one in found.values())
    return Responses(seen, sum(one.captured for one in found.values()), without)
