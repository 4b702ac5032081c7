"""Makes the bands of `recount` from recorded streams.

`python -m scripts.calibrate_recount FOLDER` replays the recordings in FOLDER and writes recount/band_table.py. Each line of
`--only FILE` names one recording below FOLDER: those that were really recorded, not written by hand. Of the recordings only
counts of tokens and characters go into the table.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from streamgauge.cli.replay import Replaying
from streamgauge.core.record import Record
from streamgauge.recount.bands import ALL
from streamgauge.recount.models import version_of
from streamgauge.recount.output import Output, Outputs
from streamgauge.recount.recount import characters, counted_tokens, generated, may_hide_reasoning
from streamgauge.recount.vocabularies import MissingVocabulary, Tokenizers
from streamgauge.settings.declarations import Settings
from streamgauge.taps.replay.files import recordings_in

TABLE = Path(__file__).parent.parent / "pipeline" / "streamgauge" / "recount" / "band_table.py"

# A version with fewer streams gets no band of its own.
MIN_STREAMS = 3
# Shorter answers say little about tokens for a character (code points): a token more or less is a large share. A version
# with fewer long ones gets no band by characters: with one, a fifth of the streams left out in turn were outside it.
LONG, MIN_LONG = 200, 3

# What adds tokens that are not in the output: tools that the provider runs itself, a compaction of the conversation,
# predicted text that it rejected.
_OTHER_TOKENS = re.compile(
    rb"(?:web_search|file_search|code_interpreter|mcp|image_generation|computer|shell)_call|server_tool_use"
    rb'|executed_tools|"type":\s*"compaction"|"rejected_prediction_tokens":\s*[1-9]'
)

Offsets = tuple[int, int, int, int, int]
Ratios = tuple[int, int, int, int, int, int]


class Sample(NamedTuple):
    """A stream. `reported`: output tokens without reasoning; `tokens`: as recounted, None without a public tokenizer."""

    version: str
    reported: int
    tokens: int | None
    chars: int
    calls: int


def sample_of(record: Record, output: Output | None) -> Sample | None:
    """What a stream shows; None if its reported number may be of something else than its text."""
    usage, model = record.usage, record.response_model or record.request_model
    is_whole = record.outcome == "completed" and record.integrity.complete and record.resumed_from is None
    is_reported = usage.source == "final" and not usage.bad_values and usage.identity_failed is None
    has_media = usage.audio_output_tokens or (output is not None and output.has_media)
    if not is_whole or not is_reported or has_media or not generated(record) or usage.output_tokens is None:
        return None
    if usage.reasoning_tokens is None and may_hide_reasoning(record):
        return None
    calls = sum(len(choice.tool_calls) for choice in record.choices)
    chars = characters(record, reasoning=not usage.reasoning_tokens)
    reported = usage.output_tokens - (usage.reasoning_tokens or 0)
    return Sample(version_of(model), reported, counted_tokens(record, output), chars, calls)


def offsets(samples: Iterable[Sample]) -> Offsets | None:
    """The band of these streams whose tokens were counted."""
    counted = [(sample.reported - sample.tokens, sample.calls) for sample in samples if sample.tokens is not None]
    if len(counted) < MIN_STREAMS:
        return None
    without = [beyond for beyond, calls in counted if not calls] or [0]
    low, high = min(without), max(without)
    lowest = [(beyond - low) // calls for beyond, calls in counted if calls]
    highest = [-((high - beyond) // calls) for beyond, calls in counted if calls]
    call_low = max(0, min(lowest, default=0))
    return len(counted), low, high, call_low, max([call_low, *highest])


def ratios(samples: Sequence[Sample]) -> Ratios | None:
    """The band of these streams by their characters."""
    plain = [(sample.reported, sample.chars) for sample in samples if not sample.calls]
    long = [(tokens, chars) for tokens, chars in plain if chars >= LONG]
    if len(long) < MIN_LONG:
        return None
    low = min(1000 * tokens // chars for tokens, chars in long)
    high = max(-(-1000 * tokens // chars) for tokens, chars in long)
    less = max(sample.chars * low // 1000 - sample.reported for sample in samples)
    more = max(tokens - _most(chars, high) for tokens, chars in plain)
    more = max(0, more)
    with_calls = [sample for sample in samples if sample.calls]
    calls = [-((_most(sample.chars, high) + more - sample.reported) // sample.calls) for sample in with_calls]
    return len(samples), low, high, max(0, less), more, max(0, *calls) if calls else 0


def _most(chars: int, high: int) -> int:
    return -(-chars * high // 1000)


def samples_in(files: Iterable[Path]) -> list[Sample]:
    """The samples of recordings, without those that show tokens of another kind."""
    files = [file for file in files if not _OTHER_TOKENS.search(file.read_bytes())]
    tokenizers = Tokenizers()
    outputs = Outputs(tokenizers.of)
    replaying = Replaying(replace(Settings(), capture="full"), None, assembler=outputs.assembler)
    records = replaying.records(files, of_topic=False)
    samples = [sample for record in records if (sample := sample_of(record, outputs.take(record))) is not None]
    if tokenizers.missing:  # without a count the bands of its models would be too wide
        raise MissingVocabulary(" ".join(tokenizers.missing.values()))
    return samples


def page(samples: Sequence[Sample]) -> str:
    """The module with the tables."""
    versions = {ALL: list(samples)}
    for sample in sorted(samples):
        versions.setdefault(sample.version, []).append(sample)
    of_tokens = {version: band for version, own in versions.items() if (band := offsets(own))}
    of_characters = {version: band for version, own in versions.items() if (band := ratios(own))}
    before, _, _ = TABLE.read_text().partition("# Version ->")
    return (
        before
        + "# Version -> streams; tokens reported beyond those recounted, lowest and highest; the same for each tool call.\n"
        + _rows("OFFSETS", "int, int, int, int, int", of_tokens)
        + "\n# Version -> streams; tokens for 1000 characters, lowest and highest; how many tokens fewer or more short"
        " answers have;\n# the most tokens that each tool call adds.\n"
        + _rows("RATIOS", "int, int, int, int, int, int", of_characters)
    )


def _rows(name: str, kinds: str, bands: Mapping[str, tuple[int, ...]]) -> str:
    rows = "".join(f'    "{version}": {band},\n' for version, band in bands.items())
    return f"{name}: dict[str, tuple[{kinds}]] = {{\n{rows}}}\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", type=Path, help="file with the names of the recordings to use, one a line")
    parser.add_argument("--print", action="store_true", help="print samples instead")
    options = parser.parse_args(argv)
    names = options.only.read_text().splitlines() if options.only else None
    files = recordings_in(options.folder) if names is None else [options.folder / name for name in names]
    samples = samples_in(files)
    if options.print:
        for sample in sorted(samples):
            sys.stdout.write(f"{sample}\n")
    else:
        TABLE.write_text(page(samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
