"""Usage as disjoint kinds of tokens, whose sum is the whole.

A record's input includes what was read from and written to a cache, and audio; its output includes reasoning and audio
(`core/usage.py` has normalised what providers report). Adding those numbers counts tokens twice. Here each token has one
kind. The rest of the input is `input_uncached`, the rest of the output `output_text`: text, tool calls, refusals.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# Fields of a record's usage -> the names that `token_kinds` has for them.
REPORTED: Mapping[str, str] = {
    "input_tokens": "input",
    "input_cached_tokens": "cached",
    "input_cache_write_tokens": "cache_write",
    "audio_input_tokens": "audio_input",
    "output_tokens": "output",
    "reasoning_tokens": "reasoning",
    "audio_output_tokens": "audio_output",
}

# What a record reports -> the kind that it becomes, in the order in which parts are taken out of their whole. Audio that
# was read from the cache is reported as both; it counts as cached, since that decides its price.
_INPUT_PARTS: Mapping[str, str] = {
    "cached": "input_cached",
    "cache_write": "input_cache_write",
    "audio_input": "input_audio",
}
_OUTPUT_PARTS: Mapping[str, str] = {"reasoning": "reasoning", "audio_output": "output_audio"}

# All kinds of each side; the sum of a side is what the record reports for it.
INPUT_KINDS = ("input_uncached", *_INPUT_PARTS.values())
OUTPUT_KINDS = ("output_text", *_OUTPUT_PARTS.values())


@dataclass(frozen=True, slots=True)
class TokenKinds:
    """Tokens by kind; a kind that was not reported is missing, which is not 0.

    `above_whole`: parts that are larger than their whole. `overlapping`: wholes whose parts are larger together, so that
    some of their tokens are reported in two parts. In both cases the parts are cut to the size of the whole.
    """

    input: dict[str, int]
    output: dict[str, int]
    above_whole: int
    overlapping: int


def reported_tokens(usage: object) -> dict[str, int]:
    """The token counts that a usage reports, by their names in `REPORTED`; counts that are None are left out.

    `usage`: a record's `Usage`, or another structure with its fields.
    """
    return {name: tokens for field, name in REPORTED.items() if (tokens := getattr(usage, field)) is not None}


def token_kinds(reported: Mapping[str, int]) -> TokenKinds:
    """The kinds of the numbers that a record reports: `input`, `cached`, ... (the values of `REPORTED`)."""
    inputs, above_input, overlap_input = _split(reported, "input", _INPUT_PARTS, "input_uncached")
    outputs, above_output, overlap_output = _split(reported, "output", _OUTPUT_PARTS, "output_text")
    return TokenKinds(inputs, outputs, above_input + above_output, overlap_input + overlap_output)


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """The growth of one side's counters, by kind: a stream and the streams that resume it had reported `before`, now `after`.

    The sum of all kinds grows by exactly what the whole grows by; no counter goes down. So tokens that were counted as
    uncached stay so, if a later part of the stream reports that they were cached.
    """
    left = sum(after.values()) - sum(before.values())
    added: dict[str, int] = {}
    for kind, tokens in after.items():
        grown = min(tokens - before.get(kind, 0), left)
        if grown > 0:
            added[kind] = grown
            left -= grown
    return added


def _split(
    reported: Mapping[str, int], whole: str, parts: Mapping[str, str], rest: str
) -> tuple[dict[str, int], int, int]:
    """The kinds of one side, the number of parts above the whole, and 1 if the parts overlap, else 0.

    Without the whole the parts stand by themselves.
    """
    kinds = {kind: reported[name] for name, kind in parts.items() if name in reported}
    total = reported.get(whole)
    if total is None:
        return kinds, 0, 0
    above = sum(tokens > total for tokens in kinds.values())
    overlapping = int(not above and sum(kinds.values()) > total)
    left = total
    for kind, tokens in kinds.items():
        kinds[kind] = min(tokens, left)
        left -= kinds[kind]
    return {**kinds, rest: left}, above, overlapping
