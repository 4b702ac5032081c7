"""HTTP Archives as browsers and proxies write them: bodies, sizes, and the end of an exchange."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.taps.replay.contract import BrokenRecording, RecordedExchange, Tally
from streamgauge.taps.replay.har import exchanges
from tests.taps.replay import recordings
from tests.taps.replay.recordings import Sample, archive, entry
from tests.taps.talk import BODY

SAMPLE = Sample(BODY)


def nothing_beside(name: str) -> None:
    return None


def read(document: bytes, tally: Tally | None = None) -> list[RecordedExchange]:
    return list(exchanges(memoryview(document), nothing_beside, tally or Tally()))


def one_of(entry: dict[str, Any]) -> RecordedExchange:
    [one] = read(archive(entry))
    return one


def changed(part: str, **members: Any) -> dict[str, Any]:
    one = entry(SAMPLE)
    return {**one, part: {**one[part], **members}}


def test_an_exchange() -> None:
    one = one_of(entry(Sample(BODY, url=recordings.URL + "?a=1#here")))
    assert (one.method, one.host, one.target) == ("POST", "api.example.com", "/v1/chat/completions?a=1")
    assert (one.request_body, one.body, one.status) == (SAMPLE.request_body, BODY, 200)
    assert one.request_headers == [("authorization", "Bearer A SECRET"), ("cookie", "A SECRET")]


@pytest.mark.parametrize(
    ("content", "body"),
    [
        ({"text": "gr\u00fcn"}, "gr\u00fcn".encode()),
        ({"text": base64.b64encode(b"\xff").decode(), "encoding": "base64"}, b"\xff"),
        ({"text": ""}, b""),
        ({"text": "x", "encoding": "quoted-printable"}, b"x"),
        ({"size": 5}, None),  # a browser that has discarded it
        ({"size": 0}, None),
        ({"size": -1}, None),
        ({}, None),
        (None, None),
        ("x", None),
        ({"text": 5}, None),
    ],
)
def test_bodies_and_missing_bodies(content: object, body: bytes | None) -> None:
    assert one_of(changed("response", content=content)).body == body


def test_a_response_to_head_has_no_body() -> None:
    assert one_of(changed("response", content={"size": 0}, bodySize=0)).body == b""


@pytest.mark.parametrize(
    ("request_", "body", "size"),
    [
        ({"postData": {"text": "abc"}, "bodySize": 7}, b"abc", 7),
        ({"postData": {"text": "YWJj", "encoding": "base64"}}, b"abc", None),  # HAR 1.3
        ({"postData": {"params": [{"name": "a"}]}, "bodySize": 9}, None, 9),
        ({"postData": None, "bodySize": 0}, b"", 0),
        ({"postData": None, "bodySize": -1}, None, None),
        ({"postData": None, "bodySize": 9}, None, 9),
        ({"postData": None, "method": "GET"}, b"", None),
    ],
)
def test_requests_and_their_sizes(request_: dict[str, Any], body: bytes | None, size: int | None) -> None:
    one = one_of(
        changed("request", bodySize=-1) | {"request": {**entry(SAMPLE)["request"], "bodySize": -1, **request_}}
    )
    assert (one.request_body, one.request_bytes) == (body, size)


@pytest.mark.parametrize(
    ("status", "said", "ending"),
    [
        (200, {}, Ending.COMPLETE),
        (200, {"_error": None}, Ending.COMPLETE),
        (200, {"_error": ""}, Ending.COMPLETE),
        (200, {"_error": "net::ERR_ABORTED"}, Ending.CLIENT),
        (0, {"_error": "net::ERR_ABORTED"}, Ending.CLIENT),
        (0, {"_failureText": "NS_BINDING_ABORTED"}, Ending.CLIENT),
        (200, {"_error": "Client disconnected."}, Ending.CLIENT),
        (200, {"_error": "net::ERR_INCOMPLETE_CHUNKED_ENCODING"}, Ending.RESET),
        (0, {"_error": "net::ERR_CONNECTION_REFUSED"}, Ending.RESET),
        (0, {"_error": "net::ERR_TIMED_OUT"}, Ending.TIMEOUT),
        (0, {}, Ending.CUT),
        (-1, {}, Ending.CUT),
    ],
)
def test_how_it_ended(status: int, said: dict[str, Any], ending: Ending) -> None:
    one = one_of(changed("response", status=status, **said))
    assert one.ending is ending
    assert (one.status is None) == (status <= 0)


def test_a_request_aborted_by_playwright_was_left_by_its_client() -> None:
    assert one_of({**entry(SAMPLE), "_wasAborted": True}).ending is Ending.CLIENT


@pytest.mark.parametrize("wrong", [None, 5, "x", [], {}, {"request": {"url": "/v1"}}, {"request": {"url": ["x"]}}])
def test_malformed_entries_are_counted_and_the_others_are_read(wrong: object) -> None:
    tally = Tally()
    assert len(read(archive(wrong, entry(SAMPLE), wrong), tally)) == 1
    assert (tally.broken_exchanges, tally.first_broken) == (2, "log.entries[0]: its request has no URL")


def test_invalid_base64_breaks_only_its_own_entry() -> None:
    tally = Tally()
    wrong = changed("response", content={"text": "%%%", "encoding": "base64"})
    assert len(read(archive(entry(SAMPLE), wrong), tally)) == 1
    assert tally.first_broken == "log.entries[1]: a body is not valid base64"


def test_slightly_invalid_entries_are_read() -> None:
    document = recordings.har(SAMPLE, SAMPLE).replace(b'"bodySize": -1', b'"bodySize": NaN', 1)
    assert [one.body for one in read(document)] == [BODY, BODY]
    lone = json.dumps({"log": {"entries": [entry(SAMPLE)]}}).replace('"text": "data', '"text": "\\ud83d data')
    [one] = read(lone.encode())
    assert one.body is not None
    assert one.body.endswith(BODY[4:])


def test_an_entry_that_is_nested_too_deep_breaks_only_itself() -> None:
    tally = Tally()
    deep = json.dumps(entry(SAMPLE))[:-1] + ', "x":' + "[" * 600 + "]" * 600 + "}"
    document = archive(entry(SAMPLE), "HERE").replace(b'"HERE"', deep.encode())
    assert len(read(document, tally)) == 1
    assert tally.broken_exchanges == 1


@pytest.mark.parametrize(
    "document",
    [b'{"log":{"entries":{}}}', b'{"log":[]}', b'{"log":{"version":"1.2"}}', b"{}", b"[]", b'{"log":{"entries":null}}'],
)
def test_without_entries_it_is_no_har(document: bytes) -> None:
    with pytest.raises(BrokenRecording, match=r"no list log\.entries"):
        read(document)


def test_only_the_current_entry_is_decoded(tmp_path: Path) -> None:
    """A broken entry is reported when it is reached: those before it have been given."""
    whole = recordings.har(SAMPLE, SAMPLE)
    reading = exchanges(memoryview(whole), nothing_beside, Tally())
    assert next(reading).body == BODY
