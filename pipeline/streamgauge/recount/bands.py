"""Bands: what providers reported beyond the tokens that a recount finds, by model version, as recorded streams show it.

`Offsets` are for a text whose tokens were counted: tokens that are not text (the end of a turn, the frame of a tool call).
`Ratios` are for a text of which only the characters are known. A band holds for all streams that it was made of, and says
how many these were; another stream may lie outside. For a version without a band that of all versions serves.
"""

from typing import NamedTuple

from streamgauge.recount.band_table import OFFSETS, RATIOS

# The name of the band over all versions.
ALL = "all"


class Range(NamedTuple):
    """From `low` to `high`, both included."""

    low: int
    high: int


class Band(NamedTuple):
    """A range of tokens. `version`: of the model whose streams it comes from; `streams`: how many."""

    version: str
    streams: int
    tokens: Range


def with_offsets(version: str, tokens: int, calls: int) -> Band:
    """What a provider reports for an answer with these tokens of text, some of them in tool calls."""
    known = version if version in OFFSETS else ALL
    streams, low, high, call_low, call_high = OFFSETS[known]
    return Band(known, streams, Range(max(0, tokens + low + calls * call_low), tokens + high + calls * call_high))


def by_characters(version: str, chars: int, calls: int) -> Band:
    """What a provider reports for an answer with these characters of text (code points), some of them in tool calls."""
    known = version if version in RATIOS else ALL
    streams, low, high, less, more, call_high = RATIOS[known]
    if not chars:
        return Band(known, streams, Range(0, more + calls * call_high))
    lowest = max(0, chars * low // 1000 - less)
    return Band(known, streams, Range(lowest, -(-chars * high // 1000) + more + calls * call_high))
