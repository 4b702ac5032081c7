"""The results of `streamgauge recount --output jsonl`: the streams whose reported output is not what was counted.

A recount says what a provider may bill for a stream (`low` to `high`). These ranges are of few recorded streams, so a
reported number is a finding only if it is further away than a tolerance. A range that is wider than half of the reported
number shows no error at all.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from streamgauge.errors import UsageFault

# How far a reported number may be from the range: a fiftieth of the nearer end, and so many tokens.
PART, TOKENS = 50, 8
# The widest range that shows an error: this part of the reported number.
WIDEST_PART = 2
# Streams that are kept at most: about 200 MB of them.
MAX_OUTSIDE = 1_000_000


class _Recount(msgspec.Struct):
    """The members of a recount that decide."""

    stream_id: str
    output_tokens_reported: int | None
    low: int | None
    high: int | None
    reasons: list[str]


# With one of these the reported number is of something else than the counted text (`recount.Recount.reasons`).
_INCOMPARABLE = frozenset({"incomplete_capture", "resumed", "media"})


class Recounts(NamedTuple):
    """The recounts of a file. outside: the ids of the streams whose reported output tokens are outside of their range.
    too_wide: how many streams would be, if their range were not too wide to show an error.
    """

    outside: frozenset[str] = frozenset()
    too_wide: int = 0

    @property
    def notes(self) -> list[str]:
        """What is not judged: one sentence, or none."""
        if not self.too_wide:
            return []
        streams = "1 stream" if self.too_wide == 1 else f"{self.too_wide} streams"
        return [
            f"the reported output of {streams} is outside of the range of its recount, and no finding: the range is wider "
            "than half of the reported number"
        ]


def reported_outside(path: Path) -> Recounts:
    """The streams whose reported output tokens are not those that the recount allows.

    Raises UsageFault for a file that cannot be read, with its line.
    """
    decode = msgspec.json.Decoder(_Recount).decode
    outside: set[str] = set()
    number = too_wide = 0
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):  # noqa: B007 - an error names the line
                if line.strip() and _is_outside(recount := decode(line)):
                    if _is_too_wide(recount):
                        too_wide += 1
                    else:
                        outside.add(recount.stream_id)
                if len(outside) > MAX_OUTSIDE:
                    raise UsageFault(
                        f"--recounts {path}: more than {MAX_OUTSIDE} streams differ: give a shorter period"
                    )
    except OSError as error:
        raise UsageFault(f"--recounts {path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageFault(
            f"--recounts {path}: line {number}: not a line of `streamgauge recount --output jsonl`: {error}"
        ) from None
    return Recounts(frozenset(outside), too_wide)


def _is_outside(recount: _Recount) -> bool:
    reported = recount.output_tokens_reported
    if reported is None or not _INCOMPARABLE.isdisjoint(recount.reasons):
        return False
    below = recount.low is not None and reported < recount.low - recount.low // PART - TOKENS
    above = recount.high is not None and reported > recount.high + recount.high // PART + TOKENS
    return below or above


def _is_too_wide(recount: _Recount) -> bool:
    if recount.low is None or recount.high is None or recount.output_tokens_reported is None:
        return False
    return (recount.high - recount.low) * WIDEST_PART > recount.output_tokens_reported
