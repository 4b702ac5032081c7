"""The page of an audit: a text from an invoice or the ledger is text, in the order in which it is written."""

from streamgauge.audit.page import escape


def test_texts_of_others_are_shown_and_not_obeyed() -> None:
    assert escape("<b>\u202etxt\x1b[2J\u2066 é 日本") == r"&lt;b&gt;\u202etxt\u001b[2J\u2066 é 日本"
