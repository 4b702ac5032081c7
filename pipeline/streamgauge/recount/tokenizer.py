"""A public tokenizer: its vocabulary, its expression for pieces, and the engine that runs both."""

from collections.abc import Mapping

import tiktoken

from streamgauge.recount.bpe import Merges
from streamgauge.recount.splits import Split

_BYTES = {bytes([value]): value for value in range(256)}


class Matcher:
    """An expression that is matched at the beginning of a text, by the tokenizer's own engine and tables of Unicode.

    With a vocabulary of single bytes, an encoding has as many tokens as the match has bytes.
    """

    def __init__(self, pattern: str) -> None:
        self._encoding = tiktoken.Encoding(
            "match", pat_str=rf"\A(?:{pattern})", mergeable_ranks=_BYTES, special_tokens={}
        )

    def end(self, text: str) -> int:
        """Where the match ends (characters); 0 if there is none."""
        size = len(self._encoding.encode_ordinary(text))
        return size if text.isascii() else len(text.encode()[:size].decode())


class Tokenizer:
    """`name` as its publisher gives it. `ranks`: the tokens."""

    def __init__(self, name: str, split: Split, ranks: Mapping[bytes, int]) -> None:
        self.name, self.split = name, split
        self.merges = Merges(ranks)
        self._encoding = tiktoken.Encoding(name, pat_str=split.pattern, mergeable_ranks=dict(ranks), special_tokens={})
        self._matchers: dict[str, Matcher] = {}

    def count(self, text: str) -> int:
        """The tokens of a whole text without lone surrogates. Special tokens in it are text."""
        return len(self._encoding.encode_ordinary(text))

    def end(self, pattern: str, text: str) -> int:
        """Where a match of the pattern at the beginning of the text ends (characters); 0 if there is none."""
        matcher = self._matchers.get(pattern)
        if matcher is None:
            matcher = self._matchers[pattern] = Matcher(pattern)
        return matcher.end(text)
