"""How public tokenizers split text into pieces before they merge bytes, as far as it matters for text that still grows."""

import re
from typing import NamedTuple

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
    found = _CERTAIN.match(text)
    return 0 if found is None else found.end()


class Split(NamedTuple):
    """A family of expressions that split text.

    `pattern`: the expression itself, in the tokenizer's dialect. `letter`: the class of characters in a word. `tail`: the
    class of characters that follow punctuation in its piece. `leading`: what is a piece of its own before anything else.
    `contraction`: what is appended to a word. `by_case`: words also end before an upper-case letter that follows a lower-case
    one. `end_is_whole`: white space at the end of the text is one piece.
    """

    pattern: str
    letter: str
    tail: str
    leading: str | None = None
    contraction: str | None = None
    by_case: bool = False
    end_is_whole: bool = False

    @property
    def runs(self) -> tuple[str, str, str]:
        """What may become one long piece: a word, punctuation, white space.

        The first that matches shows the kind of a text's first piece. It reaches as far as the expression looks, apart from
        three characters.
        """
        return (rf"[^\r\n\p{{L}}\p{{N}}]?{self.letter}+", rf" ?[^\s\p{{L}}\p{{N}}]+{self.tail}*", r"\s+")


_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD_BY_CASE = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"

CL100K = Split(
    pattern=r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s",
    letter=r"\p{L}",
    tail=r"[\r\n]",
    leading="'(?i:[sdmt]|ll|ve|re)",
    end_is_whole=True,
)
O200K = Split(
    pattern="|".join([*(word + _CONTRACTION + "?" for word in _WORD_BY_CASE), r"\p{N}{1,3}", _REST]),
    letter=r"[\p{L}\p{M}]",
    tail=r"[\r\n/]",
    contraction=_CONTRACTION,
    by_case=True,
)
TEKKEN = O200K._replace(pattern="|".join([*_WORD_BY_CASE, r"\p{N}", _REST]), contraction=None)
