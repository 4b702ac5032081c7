"""Where a piece of a growing text ends, whatever follows. It holds for each `Split`."""

import re

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
