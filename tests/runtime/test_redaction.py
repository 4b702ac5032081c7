"""Possible passwords are hidden in values and sentences; the rest stays, so that the operator can identify the value."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamgauge.runtime.redaction import redacted_item, redacted_text, redacted_value
from tests.each import each

CANARY = "CANARY"

# Malformed values, and what is shown of them.
VALUES = {
    "http://user:CANARY@h/v1": "...@h/v1",
    "http:/user:CANARY@h": "...@h",
    "http:\\\\user:CANARY@h": "...@h",
    "//user:CANARY@h": "...@h",
    "http://user:CANARY/pw@h": "...@h",
    "http://user:pw/CANARY@h": "...@h",
    "http://us@er:CANARY@h": "...@h",
    "http://user:CANARY @h": "...@h",
    "a=http://user:CANARY=@h": "...@h",
    "http://user:pw?CANARY@h": "...",
    "http://user:pw#CANARY@h": "...",
    "http://h/?key=CANARY": "http://h/",
    "http://h/?key=pw@CANARY": "...",
    "http://h/#CANARY": "http://h/",
    "http://user:CANARY%40h": "...@h",
    "http://user:CANARY\uff20h": "...@h",
    "user:CANARY@h:9092": "...@h:9092",
    "user:pw@h:CANARY": "...@h:...",
    "http://h:CANARY/x": "http://h:...",
    "Authorization: Bearer CANARY": "Authorization:...",
    # What tells which value is meant is shown.
    "openai=api.openai.com": "openai=api.openai.com",
    "ftp://x": "ftp://x",
    "127.0.0.1": "127.0.0.1",
    "127.0.0.1:65536": "127.0.0.1:65536",
    "[::1:80": "[::1:80",
    "[fe80::1%eth0]:80": "[fe80::1%eth0]:80",
    "x/y": "x/y",
    "": "",
}


@each(VALUES)
def test_a_malformed_value_is_shown_without_what_may_be_a_password(value: str) -> None:
    assert redacted_value(value) == VALUES[value]


SENTENCES = {
    "there is no file /x/http:/user:CANARY@h/y": "there is no file ...@h/y",
    "invalid choice: 'http://user:CANARY@h' (choose from 'a', 'b')": "invalid choice: '...@h' (choose from 'a', 'b')",
    "there is no file http://h/x?key=CANARY&a=b": "there is no file http://h/x?...",
    "/x/-----BEGIN PRIVATE KEY-----\nCANARY\n cannot be read": "/x/-----BEGIN...",
    # Homes of a directory service have an @, and sentences have question marks.
    "the data directory /home/jo@corp.example/x: no": "the data directory /home/jo@corp.example/x: no",
    "HOST:PORT is missing: which broker? (or: up)": "HOST:PORT is missing: which broker? (or: up)",
    "two lines:\n  as they were\n": "two lines:\n  as they were\n",
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_keeps_all_but_what_looks_like_a_password(sentence: str) -> None:
    assert redacted_text(sentence) == SENTENCES[sentence]


def test_an_item_is_hidden_where_its_value_was_split_inside_a_password() -> None:
    assert redacted_item("h:1", "h:1,x:2") == "h:1"
    assert redacted_item("user:80/CANARY", "user:80/CANARY,x@h:1") == "...@h:1"


SIGNS = "http:/\\@?#=,%[]. \n"


@given(
    before=st.text(alphabet=SIGNS + "user1", max_size=12),
    inside=st.text(alphabet=SIGNS + "1", max_size=6),
    after=st.text(alphabet=SIGNS + "1", max_size=6),
    host=st.text(alphabet=string.ascii_lowercase + ":/.19", max_size=12),
)
@example("http:/", "", "", "h")
@example("", "?", "=@", "h")
def test_no_part_of_a_password_before_an_at_sign_is_shown(before: str, inside: str, after: str, host: str) -> None:
    assert CANARY not in redacted_value(f"{before}:{inside}{CANARY}{after}@{host}")


@pytest.mark.slow
def test_a_long_text_takes_no_longer_than_its_length() -> None:
    """Time that grew with the square of the length would be minutes here."""
    for word in (":", "@", ":@", "?", "?x", "%4", "-----BEGIN"[:-1]):
        assert len(redacted_text(word * 200_000)) > 0
        assert len(redacted_value("h" + word * 200_000)) > 0
