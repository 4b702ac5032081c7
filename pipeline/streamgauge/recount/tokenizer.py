"""Tokenizers: how many tokens a whole text has.

`RankTokenizer` runs a published vocabulary by tiktoken, `JsonTokenizer` a tokenizer.json by the library `tokenizers`. Time
and memory are bounded for every text: a text that would exceed the bounds has no count.
"""

import re
from collections.abc import Mapping
from typing import Protocol

# The most characters without a cut that tiktoken gets. Words, lines of punctuation and indentations are shorter. One
# call takes at most 10 ms then. One word of a million letters takes tiktoken 0.14 more than a second, and as much white
# space makes it panic (StackOverflow).
MAX_UNCUT = 16_384
# The most characters of a text that `tokenizers` gets, in one call: where its text may be cut depends on the file. Its
# time is linear in every kind of text that was tried, at most half a second of CPU and 150 MB for this many.
MAX_JSON_TEXT = 262_144

_SURROGATE = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")

# White space of Unicode, as the tokenizers' expressions see it. Python's own \s has four control characters more.
_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
_SPACE_IN_LINE = _SPACE.replace("\\t-\\r", "\\t\\v\\f")
# Letters, and characters that are neither letter, number, mark nor space, in every version of Unicode since 3.2. The
# apostrophe is left out: what follows it may belong to the word before.
_LETTERS = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u00ff\u0410-\u044f\u3041-\u3094\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
)
_OTHERS = "!-&(-/:-@\\[-`{-~\u2010-\u2027\u3001\u3002\u3008-\u3011\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"

# The last position of a text at which a piece ends, whatever follows, and at which it would also end if the text ended there.
# No piece continues from another character to a space within a line; from a line end to anything but space and `/`; from a
# letter or a digit to a character of another kind.
_CUT = re.compile(
    rf"""(?s:.*)(?:(?<=[^{_SPACE}])(?=[{_SPACE_IN_LINE}])
    |(?<=[\r\n])(?=[^{_SPACE}/])
    |(?<=[{_LETTERS}])(?=[0-9{_OTHERS}])
    |(?<=[0-9])(?=[{_LETTERS}{_OTHERS}]))""".replace("\n    ", "")
)


def last_cut(text: str) -> int:
    """The last position at which a text may be cut: both parts together have the tokens of the whole. 0 if there is none."""
    match = _CUT.match(text)
    return 0 if match is None else match.end()


def without_surrogates(text: str) -> str:
    """The text with each surrogate pair as its character, and each lone surrogate as U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    joined = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return _SURROGATE.sub("\ufffd", joined)


class Tokenizer(Protocol):
    """A tokenizer with its name in results."""

    name: str

    def count(self, text: str) -> int | None:
        """The tokens of a text without lone surrogates; None above the bounds. Special tokens in the text are text."""


class RankTokenizer:
    """A vocabulary of ranks, and the expression that splits text into pieces before their bytes are merged.

    `ranks`: the tokens; the pair with the lowest rank is merged first. `max_uncut`: the most characters without a cut.
    """

    def __init__(self, name: str, pattern: str, ranks: Mapping[bytes, int]) -> None:
        import tiktoken  # an extra

        self.name, self.max_uncut = name, MAX_UNCUT
        self._encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=dict(ranks), special_tokens={})

    def count(self, text: str) -> int | None:
        """See Tokenizer."""
        tokens = start = 0
        while len(text) - start > self.max_uncut:
            end = last_cut(
                text[start : start + self.max_uncut + 1]
            )  # a cut depends on the characters on both sides of it
            if not end:
                return None
            tokens += len(self._encoding.encode_ordinary(text[start : start + end]))
            start += end
        return tokens + len(self._encoding.encode_ordinary(text[start:]))


class JsonTokenizer:
    """A tokenizer.json as models publish it. Raises ValueError if it is none, or cannot encode every text."""

    def __init__(self, name: str, content: bytes) -> None:
        import tokenizers  # in no extra

        self.name = name
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(content)
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            self._tokenizer.encode_special_tokens = True
            self.count("a\U0010ffff")
        except Exception as error:  # noqa: BLE001 - the library raises no narrower type
            raise ValueError(str(error)) from None

    def count(self, text: str) -> int | None:
        """See Tokenizer. A text of more than MAX_JSON_TEXT characters is above the bounds."""
        if len(text) > MAX_JSON_TEXT:
            return None
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)
