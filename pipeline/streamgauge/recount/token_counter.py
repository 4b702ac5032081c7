"""Counts the tokens of a text that comes in parts, exactly as if it came whole, in bounded memory.

A tokenizer splits a text into pieces, and merges the bytes of each piece into tokens. Text that comes later may change the
last pieces only. So the text is kept from the last place on where a piece ends whatever follows (`certain_end`); all
before it is counted. If there is no such place in MAX_KEPT characters, the pieces that no further text can change are
counted one by one, and a piece that is longer than that is counted while it comes (`long_pieces`).
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from streamgauge.recount.long_pieces import LongPiece, Punctuation, Space, Word

# White space of Unicode, as the tokenizers' expressions see it. Python's own \s has four control characters more.
_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
_SPACE_IN_LINE = _SPACE.replace("\\t-\\r", "\\t\\v\\f")
# Letters, and characters that are neither letter, number, mark nor space, in every version of Unicode since 3.2. The
# apostrophe is left out: what follows it may belong to the word before.
_LETTERS = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u00ff\u0410-\u044f\u3041-\u3094\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
)
_OTHERS = "!-&(-/:-@\\[-`{-~\u2010-\u2027\u3001\u3002\u3008-\u3011\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"

# The last place of a text where a piece ends, whatever follows the text, and where it would also end if the text ended
# there. No piece continues from another character to a space within a line; from a line end to anything but space and `/`;
# from a letter or a digit to one of another kind.
_CERTAIN = re.compile(
    rf"""(?s:.*)(?:(?<=[^{_SPACE}])(?=[{_SPACE_IN_LINE}])
    |(?<=[\r\n])(?=[^{_SPACE}/])
    |(?<=[{_LETTERS}])(?=[0-9{_OTHERS}])
    |(?<=[0-9])(?=[{_LETTERS}{_OTHERS}]))""".replace("\n    ", "")
)


def certain_end(text: str) -> int:
    """The last place where a piece certainly ends, whatever is appended; 0 if there is none."""
    match = _CERTAIN.match(text)
    return 0 if match is None else match.end()


if TYPE_CHECKING:
    from streamgauge.recount.tokenizer import Tokenizer

# Text is counted once this much of it has come (characters): counting many short texts takes longer.
GATHERED = 512
# The most text that is kept between two parts (characters). A word, a line of punctuation or an indentation is shorter.
MAX_KEPT = 2_048
# How much is processed at once (characters); it bounds the time of one call of the tokenizer, and its memory.
_AT_ONCE = 65_536
# No end of a piece depends on more characters after the run that it is in ('ll).
_AHEAD = 3

# The kinds of pieces that may be long, in the order of the expressions; `Split.runs` has their expressions.
_Kind = Callable[["Tokenizer"], LongPiece]
_KINDS: tuple[_Kind, ...] = (Word, Punctuation, Space)

_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def without_surrogates(text: str) -> str:
    """The text with each surrogate pair as its character, and each lone surrogate as U+FFFD."""
    joined = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return _SURROGATE.sub("\ufffd", joined)


class TokenCounter:
    """Add text, then take `total`: the tokens of all that was added."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._counted = 0
        self._kept = ""
        self._enough = GATHERED  # `_kept` is processed once it has this many characters
        self._high = ""  # the first half of a surrogate pair, whose second half may come
        self._long: LongPiece | None = None

    def add(self, text: str) -> None:
        """Append text. It may end within a surrogate pair."""
        if self._high or (not text.isascii() and _SURROGATE.search(text)):
            text = self._without_surrogates(text)
        self._kept = kept = self._kept + text
        if len(kept) >= self._enough:
            self._kept = ""
            for at in range(0, len(kept), _AT_ONCE):
                self._kept += kept[at : at + _AT_ONCE]
                self._count_certain()
            self._enough = len(self._kept) + GATHERED

    def _without_surrogates(self, text: str) -> str:
        """The text, without a half pair at its end, which waits for the next one."""
        text = self._high + text
        self._high = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return without_surrogates(text[: len(text) - len(self._high)])

    def _count_certain(self) -> None:
        """Count what no further text can change; keep the rest, at most MAX_KEPT characters."""
        while self._long is None or self._ends_long_piece(self._long):
            end = certain_end(self._kept)
            if end:
                self._counted += self._tokenizer.count(self._kept[:end])
                self._kept = self._kept[end:]
            self._long = self._count_pieces()
            if self._long is None:
                return

    def _count_pieces(self) -> LongPiece | None:
        """Count the first pieces one by one, until at most MAX_KEPT characters are left, or a long piece begins."""
        text, at, tokenizer = self._kept, 0, self._tokenizer
        kind: _Kind | None = None
        while len(text) - at > MAX_KEPT and kind is None:
            window = text[at : at + MAX_KEPT]
            size, kind = self._first_piece(window)
            self._counted += tokenizer.count(window[:size])
            at += size
        self._kept = text[at:]
        return None if kind is None else kind(tokenizer)

    def _first_piece(self, text: str) -> tuple[int, "_Kind | None"]:
        """The size of the first piece; if text after this one may change that, 0 and the piece's kind."""
        tokenizer, split = self._tokenizer, self._tokenizer.split
        leading = tokenizer.end(split.leading, text) if split.leading else 0
        if leading:
            return leading, None
        for kind, run in zip(_KINDS, split.runs, strict=True):
            size = tokenizer.end(run, text)
            if size + _AHEAD >= len(text):
                return 0, kind
            if size:
                break
        return tokenizer.end(split.pattern, text), None

    def _ends_long_piece(self, long: LongPiece) -> bool:
        """Append what is kept to the long piece; return whether it ended."""
        rest = long.append(self._kept)
        self._kept = rest or ""
        if rest is not None:
            self._counted += long.count
            self._long = None
        return rest is not None

    def total(self) -> int:
        """The tokens of all that was added. Nothing can be added after it."""
        self._kept += without_surrogates(self._high)
        self._high = ""
        if self._long is not None:
            self._count_certain()
        if self._long is not None:
            self._kept = self._long.end()
            self._counted += self._long.count
            self._long = None
        self._counted += self._tokenizer.count(self._kept)
        self._kept = ""
        return self._counted
