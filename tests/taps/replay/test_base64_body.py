"""A binary event stream in base64, as some tools record it: its bytes come out, and no other base64 is touched."""

import base64

import pytest
from hypothesis import given

from streamgauge.taps.replay.body import without_base64
from streamgauge.taps.replay.cassette import exchanges
from streamgauge.taps.replay.contract import Tally
from tests.core.cuts import at, places
from tests.core.formats import aws_messages

STREAM = aws_messages.event("messageStart", b'{"role":"assistant"}') + aws_messages.chunk(b'{"a":1}') * 3
CODED = base64.b64encode(STREAM)


@given(places(len(CODED)))
def test_the_bytes_come_out_for_any_pieces(cut: list[int]) -> None:
    first, rest = CODED[:64], CODED[64:]
    assert b"".join(without_base64([first, *at(rest, cut)])) == STREAM


def test_line_ends_within_are_ignored() -> None:
    lines = b"\r\n".join(CODED[place : place + 76] for place in range(0, len(CODED), 76))
    assert b"".join(without_base64([lines])) == STREAM


@pytest.mark.parametrize(
    "body", [b"", STREAM, b"data: {}\n\n", base64.b64encode(b"data: {}\n\n" * 9), b"AAAAgQAA", b'{"a":1}', CODED[1:]]
)
def test_any_other_body_stays_as_it_is(body: bytes) -> None:
    assert b"".join(without_base64([body])) == body


def test_a_body_ends_where_it_is_no_base64() -> None:
    assert b"".join(without_base64([CODED[:-4], b"%%%%"])) == STREAM[: len(CODED[:-4]) // 4 * 3]


def test_a_cassette_may_hold_it_as_text() -> None:
    request = {"method": "POST", "uri": "https://bedrock-runtime.us-east-1.amazonaws.com/model/a/converse-stream"}
    response = {"status": {"code": 200}, "body": {"string": CODED.decode()}}
    (exchange,) = exchanges([{"request": request, "response": response}], Tally())
    assert exchange.body == STREAM
