"""How fast tokens are counted in text that comes in deltas, as a share of the whole-text encoder's speed.

The whole-text encoder (tiktoken) counts each text in one call. Ours gets the same text in deltas of four characters, a usual
size. Both count the same text, alternately, in one process. A figure is the median of the rounds' ratios.

    python -m bench.recount [--chars N] [--rounds N] [--tokenizer NAME] [--document FILE]
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.core import seconds
from bench.document import replace_section, table
from streamgauge.recount.token_counter import TokenCounter
from streamgauge.recount.vocabularies import tokenizer

if TYPE_CHECKING:
    from streamgauge.recount.tokenizer import Tokenizer

DELTA = 4
_PROSE = (
    "A stream gauge is the instrument that tells how much water a river carries. It stands beside the river, and writes "
    "down its level every quarter of an hour; from that, and from a table that someone measured once, comes the flow.\n\n"
)
_CODE = "def level(self, stamp: int) -> float | None:\n    return self._levels.get(stamp // 900_000, None)  # m\n\n"
_JSON = '{"station":"A-17","levels":[{"at":1795687200,"m":1.25},{"at":1795688100,"m":1.31}],"ok":true}'
_CHINESE = "水位站测量河流的水位和流量\uff0c每十五分钟记录一次。" * 2
_THAI = "สถานีวัดน้ำวัดระดับน้ำในแม่น้ำทุกสิบห้านาที"

# What is measured: a text that is repeated, and how much of it as a share of the usual length. The last three are one piece.
TEXTS: dict[str, tuple[str, float]] = {
    "prose": (_PROSE, 1),
    "code": (_CODE, 1),
    "JSON": (_JSON, 1),
    "Chinese": (_CHINESE, 1),
    "Thai, without spaces": (_THAI, 0.2),
    "one long word": ("streamgauge", 0.1),
    "one long line (=)": ("=", 0.1),
    "one long indentation": (" ", 0.1),
}


def share(one: "Tokenizer", text: str, rounds: int) -> float:
    """The speed in deltas as a share of the whole-text encoder's. Raises SystemExit if the counts differ."""
    deltas = [text[at : at + DELTA] for at in range(0, len(text), DELTA)]
    counts: list[int] = []

    def whole() -> None:
        counts.append(one.count(text))

    def ours() -> None:
        counter = TokenCounter(one)
        for delta in deltas:
            counter.add(delta)
        counts.append(counter.total())

    ratio = statistics.median(seconds(whole) / max(seconds(ours), 1e-9) for _ in range(rounds))
    if len(set(counts)) != 1:
        raise SystemExit(f"the counts differ: {sorted(set(counts))}")
    return ratio


def rows(one: "Tokenizer", chars: int, rounds: int) -> Iterator[list[str]]:
    """The table: a head, and a row for each text."""
    yield ["text", "characters", "share of the whole-text encoder's speed"]
    for name, (part, length) in TEXTS.items():
        size = max(1, round(chars * length))
        text = (part * (size // len(part) + 1))[:size]
        yield [name, f"{size:,}", f"{share(one, text, rounds):.3f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.recount", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chars", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokenizer", default="o200k_base")
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    lines = []
    for row in rows(tokenizer(given.tokenizer), given.chars, given.rounds):
        lines.append(row)
        print("  ".join(f"{cell:<24}" for cell in row), flush=True)
    if given.document is not None:
        replace_section(given.document, "recount", table(lines))


if __name__ == "__main__":
    main()
