"""How public tokenizers split text into pieces before they merge bytes. The expressions are for their engine."""

from typing import NamedTuple


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
