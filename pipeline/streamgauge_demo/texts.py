"""The generated texts: enough words for a stream, with characters of one to four bytes."""

import re

RIVER = (
    "A river tells how much water it carries only to the one who measures it: at the gauge, every minute, in all weathers. "
    "Die Strömung ist heute ruhig, 水位は安定しています 🌊. Yesterday it rose by a hand's breadth within the hour, and "
    "nobody saw it who only looked once a day."
)
BRIDGE = "Take the bridge upstream; the ford below is closed while the water stands above the second mark 🚧."
THOUGHT = "They ask about the ford. The gauge reads two marks, so the ford is out and the bridge remains."
SHORT = "The gauge reads 2.4 m."
ARGUMENTS = '{"station":"Reykjavík harbour","unit":"m","since":"2025-10-09T08:53:20Z"}'

# About the length of an English token (code points), for cutting JSON, which has no words.
FRAGMENT_CHARS = 6


def words(text: str) -> list[str]:
    """The text in pieces: each word with the white space before it. Joined, they are the text."""
    return re.findall(r"\s*\S+|\s+\Z", text)


def fragments(text: str) -> list[str]:
    """The text in pieces of FRAGMENT_CHARS characters; the last one may be shorter."""
    return [text[start : start + FRAGMENT_CHARS] for start in range(0, len(text), FRAGMENT_CHARS)]
