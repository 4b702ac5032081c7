"""How fast the tokens of a stream are counted, as a share of the speed of its tokenizer alone.

The tokenizer (tiktoken) gets each text in one call. A recount gets it in deltas of four characters, a usual size,
gathers them, and counts their text in windows, which bound the time of a call. Both count the same text, alternately, in
one process. A figure is the median of the rounds' ratios.

    python -m bench.recount [--chars N] [--rounds N] [--tokenizer NAME] [--document FILE]
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path

from bench.core import seconds
from bench.document import replace_section, table
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.capture.segments import Opening
from streamgauge.recount.output import Memory, Output
from streamgauge.recount.tokenizer import MAX_UNCUT, RankTokenizer
from streamgauge.recount.vocabularies import tokenizer

DELTA = 4
_PROSE = (
    "A stream gauge is the instrument that tells how much water a river carries. It stands beside the river, and writes "
    "down its level every quarter of an hour; from that, and from a table that someone measured once, comes the flow.\n\n"
)
_CODE = "def level(self, stamp: int) -> float | None:\n    return self._levels.get(stamp // 900_000, None)  # m\n\n"
_JSON = '{"station":"A-17","levels":[{"at":1795687200,"m":1.25},{"at":1795688100,"m":1.31}],"ok":true}'
_CHINESE = "水位站测量河流的水位和流量\uff0c每十五分钟记录一次。" * 2
_THAI = "สถานีวัดน้ำวัดระดับน้ำในแม่น้ำทุกสิบห้านาที"

# What is measured: a text that is repeated. The last three have the longest pieces that are counted.
TEXTS: dict[str, str] = {
    "prose": _PROSE,
    "code": _CODE,
    "JSON": _JSON,
    "Chinese": _CHINESE,
    "Thai, with few spaces": _THAI * 20 + " ",
    "words of 16,384 letters": f"{'streamgauge' * MAX_UNCUT}"[: MAX_UNCUT - 1] + " ",
    "lines of 16,384 characters (=)": "=" * (MAX_UNCUT - 1) + "\nx",
    "indentations of 16,384 spaces": " " * (MAX_UNCUT - 1) + "x",
}


def share(counter: RankTokenizer, text: str, rounds: int) -> float:
    """The speed of a recount as a share of its tokenizer's. Raises SystemExit if the counts differ."""
    alone = copy(counter)
    alone.max_uncut = len(text)
    deltas = [text[start : start + DELTA] for start in range(0, len(text), DELTA)]
    counts: list[int | None] = []

    def whole() -> None:
        counts.append(alone.count(text))

    def recounted() -> None:
        opening = Opening(tap="proxy", tap_version="", capture="full")
        output = Output(StreamState(bytes(16), b"", 0, opening=opening), lambda _: counter, Memory())
        for delta in deltas:
            output.add("text", delta)
        counts.append(output.tokens(reasoning=False))

    ratio = statistics.median(seconds(whole) / max(seconds(recounted), 1e-9) for _ in range(rounds))
    if len(set(counts)) != 1:
        raise SystemExit(f"the counts differ: {sorted(map(str, set(counts)))}")
    return ratio


def rows(counter: RankTokenizer, chars: int, rounds: int) -> Iterator[list[str]]:
    """The table: a head, and a row for each text."""
    yield ["text", "share of the tokenizer's speed"]
    for name, part in TEXTS.items():
        text = (part * (chars // len(part) + 1))[:chars]
        yield [name, f"{share(counter, text, rounds):.2f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.recount", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chars", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokenizer", default="o200k_base")
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    options = parser.parse_args(arguments)
    lines = []
    for row in rows(tokenizer(options.tokenizer), options.chars, options.rounds):
        lines.append(row)
        print("  ".join(f"{cell:<32}" for cell in row), flush=True)
    if options.document is not None:
        replace_section(options.document, "recount", table(lines))


if __name__ == "__main__":
    main()
