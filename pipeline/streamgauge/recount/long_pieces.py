"""Pieces that are longer than what is kept of a text: how many tokens they have, while text is appended.

There are three kinds: words, punctuation and white space. Numbers are split every three digits, and so are never long. Each
kind gets text until a character ends it; then its tokens are known, and the rest of the text begins another piece.
"""

from typing import TYPE_CHECKING, Protocol

from streamgauge.recount.bpe import GrowingPiece

if TYPE_CHECKING:
    from streamgauge.recount.tokenizer import Tokenizer

# The characters after a word that decide whether a contraction ('ll) belongs to it.
_CONTRACTION = 3

_UPPER_OR_CASELESS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER_OR_CASELESS = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASELESS_LAST = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Lm}\p{Lo}\p{M}]"


class LongPiece(Protocol):
    """One piece, or several that are decided together."""

    def append(self, text: str) -> str | None:
        """Append text. None if the piece may continue; else the rest of the text, which does not belong to it."""

    def end(self) -> str:
        """The text ends here: return what of it does not belong to the piece."""

    @property
    def count(self) -> int:
        """The tokens, once the piece has ended."""


class Punctuation:
    """Characters that are neither letters, numbers nor space, then line ends (and slashes)."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer, self._piece = tokenizer, GrowingPiece(tokenizer.merges)
        self._patterns = [r" ", r"[^\s\p{L}\p{N}]+", rf"{tokenizer.split.tail}+"]  # what may come now and later

    def append(self, text: str) -> str | None:
        """See LongPiece."""
        while text:
            size = self._tokenizer.end(self._patterns[0], text)
            self._piece.append(text[:size].encode())
            text = text[size:]
            if text and len(self._patterns) == 1:
                return text
            if text or len(self._patterns) == 3:
                del self._patterns[0]
        return None

    def end(self) -> str:
        """See LongPiece."""
        return ""

    @property
    def count(self) -> int:
        """See LongPiece."""
        return self._piece.count


class Space:
    """White space. All up to the last line end is one piece; of the rest, the last character belongs to what follows."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._whole, self._rest = GrowingPiece(tokenizer.merges), GrowingPiece(tokenizer.merges)
        self._lines = 0  # tokens up to the last line end
        self._before_last = 0  # tokens of the rest without its last character
        self._last = ""  # the last character, if it is no line end
        self.count = 0

    def append(self, text: str) -> str | None:
        """See LongPiece."""
        size = self._tokenizer.end(r"\s+", text)
        for character in text[:size]:
            data = character.encode()
            self._whole.append(data)
            if character in "\r\n":
                self._lines, self._before_last, self._last = self._whole.count, 0, ""
                self._rest = GrowingPiece(self._tokenizer.merges)
            else:
                self._before_last = self._rest.count
                self._rest.append(data)
                self._last = character
        if size == len(text):
            return None
        self.count = self._lines + self._before_last
        return self._last + text[size:]

    def end(self) -> str:
        """See LongPiece."""
        whole = self._tokenizer.split.end_is_whole
        self.count = self._whole.count if whole else self._lines + self._rest.count
        return ""


class Word:
    """Letters, after one character of another kind.

    With `by_case`, letters without lower case may be two pieces: up to the last letter without case, and upper case after it.
    A lower-case letter makes all of them one piece, which then goes on to the next upper-case letter.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer, self._split = tokenizer, tokenizer.split
        self._whole, self._upper = GrowingPiece(tokenizer.merges), GrowingPiece(tokenizer.merges)
        self._caseless = 0  # tokens up to the last letter without case
        self._has_upper = False  # upper case follows it
        self._begun = self._has_lower = False
        self._after = ""  # text that may begin with a contraction
        self._ended = False
        self.count = 0

    def append(self, text: str) -> str | None:
        """See LongPiece."""
        text, self._after = self._after + text, ""
        if not self._begun and text:
            self._begun = True
            if not self._tokenizer.end(self._split.letter, text):
                self._whole.append(text[0].encode())
                text = text[1:]
        if not self._ended:
            text = self._letters(text)
            self._ended = bool(text)
        if not self._ended or (self._split.contraction and len(text) < _CONTRACTION):
            self._after = text
            return None
        return self._close(text)

    def end(self) -> str:
        """See LongPiece."""
        return self._close(self._after)

    def _letters(self, text: str) -> str:
        """Append the letters at the beginning of the text; return the rest."""
        if not self._split.by_case:
            size = self._tokenizer.end(f"{self._split.letter}+", text)
            self._whole.append(text[:size].encode())
            return text[size:]
        if not self._has_lower:
            size = self._tokenizer.end(f"{_UPPER_OR_CASELESS}+", text)
            self._without_lower(text[:size])
            text = text[size:]
            if not text:
                return ""
        size = self._tokenizer.end(f"{_LOWER_OR_CASELESS}+", text)
        self._has_lower = self._has_lower or size > 0
        self._whole.append(text[:size].encode())
        return text[size:]

    def _without_lower(self, letters: str) -> None:
        size = self._tokenizer.end(_CASELESS_LAST, letters)
        if size:
            self._whole.append(letters[:size].encode())
            self._caseless, self._has_upper = self._whole.count, False
            self._upper = GrowingPiece(self._tokenizer.merges)
            letters = letters[size:]
        if letters:
            self._has_upper = True
            self._upper.append(letters.encode())
            self._whole.append(letters.encode())

    def _close(self, after: str) -> str:
        """The word ends before this text, but for a contraction at its beginning; return the rest."""
        contraction = self._split.contraction
        size = self._tokenizer.end(contraction, after) if contraction and after else 0
        is_two = self._split.by_case and not self._has_lower and self._caseless > 0 and self._has_upper
        last = self._upper if is_two else self._whole
        last.append(after[:size].encode())
        self.count = self._caseless + last.count if is_two else last.count
        return after[size:]
