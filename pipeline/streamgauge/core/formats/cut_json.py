"""Reads members of a JSON object of which only the first and the last bytes are known."""

import re

from streamgauge.core.formats.json_text import parse

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*"|"|[\[\]{},]', re.DOTALL)
_CLOSING = {b"{": b"}", b"[": b"]"}


def first_members(head: bytes) -> dict[str, object]:
    """The whole members at the beginning of an object of which only the first bytes are known; empty if there are none."""
    open_brackets: list[bytes] = []
    whole, closing = b"", b""
    for token in _TOKEN.finditer(head):
        mark = token[0]
        if mark == b'"':
            break  # a string without its end
        if mark in _CLOSING:
            open_brackets.append(mark)
            end = token.end()
        elif mark == b",":
            end = token.start()
        elif mark in b"]}":
            if not open_brackets:
                break
            open_brackets.pop()
            end = token.end()
        else:
            continue
        whole, closing = head[:end], b"".join([_CLOSING[bracket] for bracket in reversed(open_brackets)])
    value = parse(whole + closing)
    return value if isinstance(value, dict) else {}


def last_members(tail: bytes, opening: bytes, member: str) -> dict[str, object]:
    """The members from the last one of this name on, in an object of which only the last bytes are known; else empty.

    `opening`: the brackets and names that are open before the member, as `{"response":{`. The rest must close them, which a
    member of the same name in another object does not. No string can hold the name in quotes after a comma, since its quotes
    are escaped there.
    """
    matches = re.finditer(rb'[,{]\s*("%b"\s*:)' % member.encode(), tail)
    for match in reversed(list(matches)):
        value = parse(opening + tail[match.start(1) :])
        if isinstance(value, dict):
            return value
    return {}


def begins_text(head: bytes, member: str) -> bool:
    """Whether a member of this name has a text that begins in the first bytes of an object, and does not end there."""
    text = rb'[,{]\s*"%b"\s*:\s*"[^"\\]*(?:\\.[^"\\]*)*\\?\Z' % member.encode()
    return re.search(text, head, re.DOTALL) is not None


def element_of(first: dict[str, object], last: dict[str, object], member: str) -> dict[str, object]:
    """The members of the first object in the list `member`, which the first and the last bytes show: `first` and `last`."""
    members: dict[str, object] = {}
    for part in (first, last):
        elements = part.get(member)
        for element in elements[:1] if isinstance(elements, list) else ():
            members |= element if isinstance(element, dict) else {}
    return members
