"""Cassettes of all tools: the forms of bodies, headers and codes that their writers have used over the years."""

import json
from typing import Any

import pytest

from streamgauge.taps.replay import cassette
from streamgauge.taps.replay.cassette import exchanges, json_interactions
from streamgauge.taps.replay.contract import BrokenRecording, RecordedExchange, Tally, Times
from tests.taps.replay import recordings
from tests.taps.replay.recordings import Sample, interaction
from tests.taps.talk import BODY

SAMPLE = Sample(BODY)


def read(*interactions: Any, tally: Tally | None = None) -> list[RecordedExchange]:
    return list(exchanges(interactions, tally or Tally()))


def changed(part: str, **members: Any) -> dict[str, Any]:
    one = interaction(SAMPLE)
    return {**one, part: {**one[part], **members}}


def test_an_exchange() -> None:
    [one] = read(interaction(SAMPLE))
    assert (one.method, one.host, one.target) == ("POST", "api.example.com", "/v1/chat/completions")
    assert (one.request_body, one.body, one.status) == (SAMPLE.request_body, BODY, 200)
    assert one.request_headers == [("authorization", "Bearer A SECRET"), ("cookie", "A SECRET")]
    assert one.times == Times()


@pytest.mark.parametrize(
    ("stored", "body"),
    [
        ({"string": "gr\u00fcn"}, "gr\u00fcn".encode()),
        ({"string": b"\xff"}, b"\xff"),
        ({"string": None}, b""),
        ({"encoding": "ISO-8859-1", "string": "gr\u00fcn"}, b"gr\xfcn"),
        ({"encoding": "ISO-8859-1", "string": "\u6797"}, "\u6797".encode()),
        ({"encoding": "UTF-8", "string": "gr\u00fcn"}, "gr\u00fcn".encode()),
        ({"encoding": "no such thing", "string": "gr\u00fcn"}, "gr\u00fcn".encode()),
        ({"encoding": "zlib", "string": "x"}, b"x"),
        ({"encoding": "\0", "string": "x"}, b"x"),
        ({"encoding": "ASCII-8BIT", "base64_string": "/w==\n"}, b"\xff"),
        ({"string": "a\ud800b"}, b"a?b"),
        ("bare", b"bare"),
        (b"bare", b"bare"),
        (None, b""),
        ({"string": 5}, None),
        ({}, None),
        (7, None),
    ],
)
def test_forms_of_bodies(stored: object, body: bytes | None) -> None:
    [answer] = read(changed("response", body=stored))
    [request] = read(changed("request", body=stored))
    assert answer.body == request.request_body == body


def test_a_request_body_from_a_file_or_an_iterator() -> None:
    """As PyYAML writes io.BytesIO and iterators: vcr/serializers/yamlserializer.py reads them."""
    [file] = read(changed("request", body={"state": [b"abc", "0", None]}))
    [pieces] = read(changed("request", body={"args": [[b"ab", "c"]]}))
    [nothing] = read(changed("request", body={"state": []}))
    assert (file.request_body, pieces.request_body, nothing.request_body) == (b"abc", b"abc", None)


def test_what_vcrpy_stored_of_httpx_before_its_version_5() -> None:
    one = interaction(SAMPLE)
    one["response"] = {
        "http_version": "HTTP/1.1", "status_code": 200, "content": BODY.decode(),
        "headers": {"content-type": ["text/event-stream"], "content-encoding": ["gzip"]},
    }  # fmt: skip
    [exchange] = read(one)
    assert (exchange.status, exchange.body) == (200, BODY)


@pytest.mark.parametrize("code", ["200", 200, 200.0])
def test_a_code_may_be_text(code: object) -> None:
    [one] = read(changed("response", status={"code": code}))
    assert one.status == 200


@pytest.mark.parametrize("code", [None, 0, "0", "OK", True, 1_000, "200" * 99, float("nan")])
def test_an_invalid_code_is_none(code: object) -> None:
    [one] = read(changed("response", status={"code": code}))
    assert one.status is None


def test_a_header_has_one_value_or_several() -> None:
    [one] = read(changed("response", headers={"A": "1", "B": ["2", "3"], "C": None, "D": 4, ":path": "/"}))
    assert one.headers == [("a", "1"), ("b", "2"), ("b", "3")]


@pytest.mark.parametrize("uri", [None, "", "/v1/messages", "http://[", 5, "mailto:x"])
def test_interactions_without_a_url_are_counted_and_the_others_are_read(uri: object) -> None:
    tally = Tally()
    exchanges = read(interaction(SAMPLE), changed("request", uri=uri), interaction(SAMPLE), 5, None, tally=tally)
    assert len(exchanges) == 2
    assert (tally.broken_exchanges, tally.first_broken) == (3, "interactions[1]: its request has no URL")


def test_invalid_base64_breaks_only_its_own_exchange() -> None:
    tally = Tally()
    broken = changed("response", body={"base64_string": "%%%"})
    assert len(read(broken, interaction(SAMPLE), tally=tally)) == 1
    assert tally.first_broken == "interactions[0]: a body is not valid base64"


def test_aliases_expand_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cassette, "MAX_UNFOLDED_BYTES", 3 * (len(BODY) + len(SAMPLE.request_body)))
    one = interaction(SAMPLE)
    assert len(read(one, one, one)) == 3
    with pytest.raises(BrokenRecording, match="decoded bodies exceed"):
        read(one, one, one, one)


@pytest.mark.parametrize("name", ["interactions", "http_interactions"])
def test_json_may_have_the_list_under_either_name(name: str) -> None:
    document = json.dumps({"version": 1, name: [interaction(SAMPLE)]}).encode()
    [one] = exchanges(json_interactions(memoryview(document)), Tally())
    assert one.body == BODY


def test_slightly_invalid_json_is_read() -> None:
    document = recordings.cassette_json(SAMPLE).replace(b'"version": 1', b'"version": NaN')
    [one] = exchanges(json_interactions(memoryview(document)), Tally())
    assert one.body == BODY


@pytest.mark.parametrize("document", [b'{"interactions":{}}', b"[]", b"{}", b'{"interactions":null}'])
def test_json_without_a_list_is_not_a_cassette(document: bytes) -> None:
    with pytest.raises(BrokenRecording, match="no list of interactions"):
        json_interactions(memoryview(document))


@pytest.mark.parametrize(
    ("stored", "status"),
    [
        ({"status": "429 Too Many Requests", "code": "429"}, 429),  # go-vcr, whose YAML scalars are text here
        ({"status": "200 OK", "code": 200}, 200),
        ({"status": "503 Service Unavailable"}, 503),
        ({"status": "OK", "code": None}, None),
        ({"status": 201}, 201),
        ({"status": {"code": 202, "message": "Accepted"}, "code": 500}, 202),
        ({"status": {"message": "OK"}, "status_code": 203}, 203),
    ],
)
def test_the_status_code_in_the_forms_of_all_writers(stored: dict[str, Any], status: int | None) -> None:
    one = interaction(SAMPLE)
    kept = {key: value for key, value in one["response"].items() if key not in ("status", "status_code")}
    [exchange] = read({**one, "response": {**kept, **stored}})
    assert (exchange.status, exchange.body) == (status, BODY)
