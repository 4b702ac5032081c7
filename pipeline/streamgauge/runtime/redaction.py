"""Hides passwords in malformed settings and in sentences for the operator.

A URL that cannot be parsed does not show where its password ends. So everything that may belong to a password is hidden,
however the value is written; the rest shows the operator which value is meant.
"""

import re

# An @, also URL-encoded, and the characters that Unicode's NFKC turns into an @ (urllib refuses a host with these).
_AT = re.compile("@|%40|\uff20|\ufe6b")
# A colon that is not followed by a port, a group of an IPv6 address or a path; and everything after it.
_NO_PORT = re.compile(r""":(?![0-9A-Fa-f]{0,5}(?:%[\w.-]*)?(?:[/\\:\],'"]|$)).*""", re.DOTALL)
_QUERY = re.compile(r"[?#]")
_QUERY_IN_TEXT = re.compile(r"\?[^\s=?]+=.*")
_PEM = "-----BEGIN"
_HIDDEN = "..."
SECRET = "***"  # noqa: S105 - shown in place of one


def redacted_value(value: str) -> str:
    """A malformed URL, address or name as it may be shown.

    Hides everything before the last @, a query, a fragment, a PEM file, and what follows a colon and is no port.
    """
    *before, shown = _AT.split(value.partition(_PEM)[0])
    if any(map(_QUERY.search, before)):  # either the password holds a ?, or the query holds an @
        return _HIDDEN
    shown = _QUERY.split(shown)[0]
    return _NO_PORT.sub(f":{_HIDDEN}", f"{_HIDDEN}@{shown}" if before else shown)


def redacted_item(item: str, value: object) -> str:
    """One item of `value`, which was split at its commas, as it may be shown.

    If `value` contains an @, a comma may be part of a password: then the whole value is redacted.
    """
    return redacted_value(value if isinstance(value, str) and _AT.search(value) else item)


def redacted_text(text: str) -> str:
    """A sentence that may quote paths and arguments, with USER:PASSWORD@, ?NAME=VALUE and PEM files hidden.

    A path such as /home/user@example.com/x stays as it is.
    """
    text, pem, _ = text.partition(_PEM)
    return re.sub(r"\S+", _redacted_word, text) + (f"{_PEM}{_HIDDEN}" if pem else "")


def _redacted_word(match: re.Match[str]) -> str:
    word = match[0]
    ats = list(_AT.finditer(word))
    if ats and ":" in word[: ats[-1].start()]:
        quotes = word[: len(word) - len(word.lstrip("\"'("))]
        word = f"{quotes}{_HIDDEN}@{word[ats[-1].end() :]}"
    return _QUERY_IN_TEXT.sub(f"?{_HIDDEN}", word)


def without_password(url: str) -> str:
    """The URL of a ledger with *** for its password, and for its options, one of which may be a password."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "sqlite":
        return url if separator else SECRET
    # What precedes the last @ is the user and the password, whatever characters they hold.
    before, at, after = rest.rpartition("@")
    user, colon, _ = before.partition(":")
    shown_user = SECRET if any(sign in user for sign in "/?#") else user
    location, question, _ = after.partition("?")
    return f"{scheme}://{shown_user}{f':{SECRET}' if colon else ''}{at}{location}{question}{SECRET if question else ''}"
