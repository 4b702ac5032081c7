"""Objectives of alert rules: the share of streams that has to be good, and what good means."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from streamgauge.metrics.table import FIRST_TOKEN


@dataclass(frozen=True)
class Objectives:
    """Objectives of streams. Shares lie between 0 and 1.

    `unbroken`: the share of 2xx streams without error, reset, timeout or truncation. `ttft`: the time to the first
    token (seconds), which the share `ttft_share` keeps; it is a bound of the histogram's buckets, since only then the
    share can be counted. `usage`: the share of completed streams that report their token usage; 0 if clients do not ask
    for it.
    """

    unbroken: float = 0.99
    ttft: float = 5.0
    ttft_share: float = 0.95
    usage: float = 0.9

    def __post_init__(self) -> None:
        for name in ("unbroken", "ttft_share"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name):g}: give a share above 0 and below 1, such as 0.99")
        if not 0 <= self.usage < 1:
            raise ValueError(f"usage={self.usage:g}: give a share from 0 to below 1, such as 0.9")
        if self.ttft not in FIRST_TOKEN.bounds:
            nearest = " or ".join(f"{bound:g}" for bound in _nearest(self.ttft))
            raise ValueError(
                f"ttft={self.ttft:g} is no bound of the buckets of {FIRST_TOKEN.name}, so the share within it cannot be "
                f"counted: give {nearest}"
            )


NAMES = tuple(field.name for field in fields(Objectives))


def objectives_of(changed: Sequence[str]) -> Objectives:
    """The objectives with changes, each as NAME=NUMBER. Raises ValueError with a sentence for the operator."""
    changes: dict[str, float] = {}
    for change in changed:
        name, _, value = change.partition("=")
        if name not in NAMES:
            raise ValueError(f"{change!r} names no objective: write NAME=NUMBER with one of {', '.join(NAMES)}")
        if name in changes:
            raise ValueError(f"{name} is given twice: give it once")
        try:
            changes[name] = float(value)
        except ValueError:
            raise ValueError(
                f"{change!r} has no number after {name}=: write {name}={getattr(Objectives, name):g}"
            ) from None
    return replace(Objectives(), **changes)


def _nearest(seconds: float) -> tuple[float, ...]:
    """The bounds below and above; only the nearer end for a value beyond the ends."""
    bounds = FIRST_TOKEN.bounds
    index = bisect_left(bounds, seconds)
    return bounds[max(0, index - 1) : index + 1]
