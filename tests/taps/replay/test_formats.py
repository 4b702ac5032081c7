"""The format of a file is recognised by its content; a file of no known format is a raw body."""

import pytest

from streamgauge.taps.replay.formats import FIRST_BYTES, Format, format_of
from tests.each import each
from tests.taps.replay import recordings
from tests.taps.replay.recordings import Sample
from tests.vectors.load import Vector, vectors

SAMPLE = Sample(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (recordings.har(SAMPLE), Format.HAR),
        (b"\xef\xbb\xbf" + recordings.har(SAMPLE), Format.HAR),
        (b'\n {\n\t"log" : {"entries": [', Format.HAR),
        (recordings.cassette_json(SAMPLE), Format.CASSETTE_JSON),
        (b'{"interactions": [], "version": 1}', Format.CASSETTE_JSON),
        (b'{"http_interactions": [', Format.CASSETTE_JSON),
        (b'{"recorded_with": "betamax/0.9", "http_interactions": []}', Format.CASSETTE_JSON),
        (recordings.cassette_yaml(SAMPLE), Format.CASSETTE_YAML),
        (recordings.ruby_cassette(SAMPLE), Format.CASSETTE_YAML),
        (b"# by hand\n\n%YAML 1.1\n---\ninteractions:\n- request:", Format.CASSETTE_YAML),
        (b"interactions: []\nversion: 1\n", Format.CASSETTE_YAML),
        (b"interactions:", Format.CASSETTE_YAML),
        (b"version: 1\r\ninteractions:\r\n", Format.CASSETTE_YAML),
        (b"- request: !!python/object:vcr.request.Request\n    body: x\n", Format.CASSETTE_YAML),
        (recordings.flows(SAMPLE), Format.FLOWS),
        (recordings.old_flows(SAMPLE), Format.FLOWS),
        (b"\xd4\xc3\xb2\xa1\x02\x00", Format.CAPTURE),
        (b"\xa1\xb2\x3c\x4d\x00\x02", Format.CAPTURE),
        (b"\n\r\r\n\x1c\0\0\0\x4d\x3c\x2b\x1a", Format.CAPTURE),
        (b"SQLite format 3\0" + bytes(52) + b"SGSP", Format.SPOOL),
        (b"SQLite format 3\0" + bytes(84), Format.DATABASE),
    ],
)
def test_the_format_is_recognised_by_the_content(content: bytes, kind: Format) -> None:
    assert format_of(content[:FIRST_BYTES]) is kind


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n\r\r\n",
        b"\n\r\r\n\n\r\r\n\n\r\r\n",
        b"data: {}\n\n",
        b'{"error":{"message":"x"}}',
        b'{"log":"a member of an answer"}',
        b'{"version":"abc","id":"x","status":"succeeded"}',
        b"version: 1\n\ndata: x\n\n",
        b"interactions of many kinds",
        b"12: 3",
        b"\x1f\x8b\x08\0",
        b"<html>",
    ],
)
def test_everything_else_is_a_body(body: bytes) -> None:
    assert format_of(body) is Format.BODY


@each(vectors(), lambda vector: f"{vector.dialect}/{vector.name}")
def test_no_vector_is_taken_for_a_container(vector: Vector) -> None:
    assert format_of(vector.body[:FIRST_BYTES], ".sse") is Format.BODY


@pytest.mark.parametrize(
    ("content", "suffix", "kind"),
    [
        (b'{"comment":"x","log":{"entries":[]}}', ".har", Format.HAR),
        (b'{"comment":"x","log":{"entries":[]}}', "", Format.BODY),
        (b"PK\x03\x04", ".zip", Format.PACKED),
        (b"\x1f\x8b\x08", ".gz", Format.PACKED),
        (b"PK\x03\x04", ".sse", Format.BODY),
    ],
)
def test_a_name_decides_where_the_content_is_ambiguous(content: bytes, suffix: str, kind: Format) -> None:
    assert format_of(content, suffix) is kind
