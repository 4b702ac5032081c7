"""All formats: each gives the record that the raw body gives, plus what only it contains; errors are always a sentence."""

import gzip
import io
import os
import threading
import zlib
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.taps.replay import files
from streamgauge.taps.replay.contract import BrokenRecording, Tally
from streamgauge.taps.replay.files import recordings_in
from streamgauge.taps.replay.formats import FIRST_BYTES
from tests.core.formats import aws_messages
from tests.each import check_each
from tests.taps.replay import recordings
from tests.taps.replay.recordings import SSE_HEADERS, WRITERS, Sample, plain, records_in
from tests.taps.talk import BODY
from tests.vectors.load import Vector, vectors

# What a container has and a raw body does not; `endpoint` and `request` come from the request.
KNOWN_MORE = (
    "stream_id", "upstream", "endpoint", "request", "request_model", "credential_id", "request_digest",
    "trace_id", "parent_span_id", "started_at", "status_code", "content_encoding", "timing", "service_tier", "attempt",
    "resumed_from", "response_id",
)  # fmt: skip
# Vectors in which a status, a header or the path changes more than that, or whose body is not what replay is given.
CONTAINED = [
    one
    for one in vectors()
    if one.status == 200
    and one.ending == "complete"
    and not (one.live_only or one.headers or one.name_dialect or one.replay_only)
]


def sample_of(vector: Vector) -> Sample:
    return Sample(
        vector.body,
        url=f"https://api.example.com{vector.target}",
        method=vector.method,
        headers=[("Content-Type", vector.content_type)],
        request_body=b"",
    )


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def told_by_both(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in KNOWN_MORE}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_format_gives_the_record_of_the_raw_body(writer: str, tmp_path: Path) -> None:
    """Each vector in one format, each format with a fifth of the vectors."""

    def gives_the_record(vector: Vector) -> None:
        [raw] = records_in(written(tmp_path, "raw.sse", vector.body))
        [contained] = records_in(written(tmp_path, "contained", WRITERS[writer](sample_of(vector))))
        assert told_by_both(plain(contained)) | {"tap": "replay"} == told_by_both(plain(raw))
        assert contained.status_code == 200
        assert contained.request is not None
        assert (contained.upstream, contained.request.host) == ("api.example.com", "api.example.com")
        assert (raw.upstream, raw.request) == (None, None)

    of_this_format = [vector for vector, other in zip(CONTAINED, cycle(WRITERS), strict=False) if other == writer]
    check_each(of_this_format, gives_the_record, lambda vector: f"{vector.dialect}/{vector.name}")


def test_a_binary_body_in_a_cassette_of_go_vcr(tmp_path: Path) -> None:
    """Go's YAML writes a body that is no UTF-8 as !!binary."""
    body = aws_messages.event("messageStart", b'{"role":"assistant"}') + aws_messages.event(
        "messageStop", b'{"stopReason":"end_turn"}'
    )
    url = "https://bedrock-runtime.us-east-1.amazonaws.com/model/us.amazon.nova-lite-v1%3A0/converse-stream"
    sample = Sample(body, url=url, request_body=b"", headers=[("Content-Type", "application/vnd.amazon.eventstream")])
    for writer in (recordings.go_vcr_1, recordings.go_vcr_4):
        content = writer(sample)
        assert b"!!binary" in content
        [record] = records_in(written(tmp_path, "x.yaml", content))
        assert (record.dialect, record.outcome, record.streaming) == ("bedrock-converse", "completed", True)
        assert record.request_model == "us.amazon.nova-lite-v1:0"


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("coding", CODINGS)
def test_an_encoded_body_is_decoded(writer: Callable[..., bytes], coding: str, tmp_path: Path) -> None:
    coded = CODINGS[coding](BODY)
    headers = [*SSE_HEADERS, ("content-encoding", coding)]
    [record] = records_in(written(tmp_path, "x", writer(Sample(coded, headers=headers))))
    assert (record.outcome, record.content_encoding, record.counts.bytes) == ("completed", coding, len(coded))
    assert record.integrity.complete


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_body_that_its_recorder_decoded_is_not_decoded_again(writer: Callable[..., bytes], tmp_path: Path) -> None:
    def check(case: tuple[str, bytes]) -> None:
        coding, body = case
        headers = [*SSE_HEADERS, ("Content-Encoding", coding)]
        [record] = records_in(written(tmp_path, "x", writer(Sample(body, headers=headers))))
        assert (record.content_encoding, record.counts.bytes) == (None, len(body))
        assert record.integrity.complete

    bodies = (BODY, b'{"id":"x","object":"chat.completion","choices":[]}', BODY * 500)
    check_each(product(CODINGS, bodies), check, lambda case: f"{case[0]}, {case[1][:20]!r}")


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("capture", ["masked", "full"])
def test_no_secret_reaches_a_record(writer: Callable[..., bytes], capture: str, tmp_path: Path) -> None:
    headers = [*SSE_HEADERS, ("Set-Cookie", "A SECRET"), ("X-Request-Id", "req_1")]
    sample = Sample(BODY, url=recordings.URL + "?key=A+SECRET&api-version=1", headers=headers)
    [record] = records_in(written(tmp_path, "x", writer(sample)), capture=capture)
    assert "SECRET" not in str(plain(record))
    assert (record.provider_request_id, record.request_model) == ("req_1", "m-1")
    assert record.credential_id is not None
    assert record.request is not None
    assert (record.request.stream, record.request.body_bytes) == (True, len(sample.request_body))


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_exchanges_that_live_taps_would_not_capture_are_skipped(writer: Callable[..., bytes], tmp_path: Path) -> None:
    others = [
        Sample(b"<html>", url="https://example.com/", method="GET", headers=[("content-type", "text/html")]),
        Sample(b"", method="OPTIONS", headers=[]),
        Sample(b'data: {"price":7}\n\n', url="https://example.com/ticker"),  # an event stream that is no LLM's
    ]
    tally = Tally()
    records = records_in(written(tmp_path, "x", writer(*others, Sample(BODY))), tally)
    assert [record.dialect for record in records] == ["openai-chat"]
    assert (tally.exchanges, tally.not_llm) == (4, 2)


def test_an_event_stream_is_captured_from_any_path(tmp_path: Path) -> None:
    [record] = records_in(written(tmp_path, "x", recordings.har(Sample(BODY, url="https://example.com/elsewhere"))))
    assert (record.dialect, record.outcome) == ("openai-chat", "completed")


def test_a_dialect_may_be_given_for_exchanges_too(tmp_path: Path) -> None:
    path = written(tmp_path, "x", recordings.har(Sample(b"data: {}\n\n", url="https://example.com/v1/messages")))
    assert [one.dialect for one in records_in(path)] == ["anthropic-messages"]
    assert [one.dialect for one in records_in(path, dialect="gemini")] == ["gemini"]


def test_a_body_in_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_bytes, args=(BODY * 2_000,))
    writing.start()
    [record] = records_in(pipe)
    writing.join()
    assert record.counts.bytes == len(BODY) * 2_000


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("x.har", b"", "its content is not that of a HAR file"),
        ("x.flow", b"data: x\n\n", "its content is not that of a flow file"),
        ("x.pcap", b"\0\0", "its content is not that of a packet capture"),
        ("x.har", b'{"log":{"entries":[{]}}', "not valid JSON"),
        ("x.har", b'{"log":{"entries":' + b"[" * 100_000, "not valid JSON"),
        ("x.har", b'{"log":{}}', "no list log.entries"),
        ("x", b'{"interactions":[{"a":1}', "not valid JSON"),
        ("x", b'{"http_interactions" : [],}', "not valid JSON"),
        ("x", b"interactions: [\n", "not valid YAML (line 2, column 1"),
        ("x", b"interactions:\n  a: 1\n", "no list of interactions"),
        ("x", b"interactions:\n- \xff\n", "not valid YAML (position"),
        ("x", b"interactions:\n- {a: *b}\n", None),
        ("x", b"5:1:a,", "flow 1, at byte 0, cannot be read"),
        ("x.db", b"SQLite format 3\0" + bytes(500), "not a spool"),
        ("spool.sqlite", b"SQLite format 3\0" + bytes(52) + b"SGSP" + bytes(500), "cannot be read as a spool"),
        ("x.zip", b"PK\x03\x04", "decompress it"),
    ],
)
def test_an_error_says_where_it_is_and_what_to_do(name: str, content: bytes, why: str | None, tmp_path: Path) -> None:
    path = written(tmp_path, name, content)
    if why is None:
        assert records_in(path) == []
        return
    with pytest.raises(BrokenRecording) as raised:
        records_in(path)
    assert why in str(raised.value)


def test_the_size_of_a_document_is_limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "MAX_DOCUMENT_BYTES", 1_000)
    for writer in (recordings.har, recordings.cassette_json, recordings.cassette_yaml):
        with pytest.raises(BrokenRecording, match="larger than 1000 bytes"):
            records_in(written(tmp_path, "x", writer(Sample(BODY * 10))))


def test_bodies_next_to_an_archive_are_read_and_no_other_files(tmp_path: Path) -> None:
    entries = []
    for name in ("body.txt", "../secret.txt", "gone.txt", "/etc/hostname"):
        one = recordings.entry(Sample(BODY))
        one["response"]["content"] = {"mimeType": "x", "size": 5, "_file": name}
        entries.append(one)
    (tmp_path / "har").mkdir()
    (tmp_path / "secret.txt").write_bytes(BODY)
    written(tmp_path / "har", "body.txt", BODY)
    tally = Tally()
    records = records_in(written(tmp_path / "har", "x.har", recordings.archive(*entries)), tally)
    assert [record.integrity.complete for record in records] == [True, False, False, False]
    assert tally.without_body == 3


GEMINI_ARRAY = b'[{"candidates":[{"content":{"parts":[{"text":"The"}]},"finishReason":"STOP","index":0}]}]'
OLLAMA_LINES = b"""{"model":"river-3","message":{"role":"assistant","content":"The"},"done":false}
{"model":"river-3","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}
"""
LONG_ELEMENT = GEMINI_ARRAY[1:-2] + b',"modelVersion":"' + b"x" * FIRST_BYTES


def test_files_of_a_directory_are_chosen_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    kept = {
        "a.sse": BODY, "b.HAR": recordings.har(), "c.yaml": recordings.cassette_yaml(), "deep/d.flow": b"",
        "deep/spool.sqlite": b"", "e.pcapng": b"", "f.yml": b"interactions: []\n", "g.ndjson": b"", "h.bin": b"\0",
        "i.json": recordings.cassette_json(Sample(BODY)), "j.json": GEMINI_ARRAY, "k.json": b'{"error":{"code":429}}',
        "l.json": OLLAMA_LINES, "m.json": b'\xef\xbb\xbf [' + LONG_ELEMENT, "n.JSON": b'{"error":"overloaded"}\n',
    }  # fmt: skip
    others = {
        "compose.yaml": b"services: {}\n", "notes.txt": BODY, "x.json": b"{}", "package.json": b'{"name":"river"}',
        "list.json": b'[{"name":"river"}]', "log.json": b'{"level":"info"}\n{"level":"info"}\n', "empty.json": b"",
        "numbers.json": b"[1]", "none.json": b"[]", "text.json": BODY, "cut.json": b'{"name":',
    }  # fmt: skip
    for name, content in {**kept, **others}.items():
        written(tmp_path, name, content)
    assert recordings_in(tmp_path) == sorted(tmp_path / name for name in kept)


# --- nothing raises ---------------------------------------------------------------------------------------------------

BEGINNINGS = [
    b"", b'{"log":{"entries":[', b'{"log":{"entries":[{"request":{"url":"http://a/v1/messages"},"response":{"status":200,',
    b'{"interactions":[{"request":', b"interactions:\n- request:\n    uri: ", b"version: 1\ninteractions: [", b"9:4:type,",
    b"SQLite format 3\0", b"\xd4\xc3\xb2\xa1\x02\0\x04\0" + bytes(12) + b"\1\0\0\0", b"\n\r\r\n\x1c\0\0\0\x4d\x3c\x2b\x1a",
]  # fmt: skip


@settings(max_examples=4 * settings().max_examples)
@given(beginning=st.sampled_from(BEGINNINGS), rest=st.binary(max_size=300))
def test_any_bytes_give_records_or_a_sentence(
    beginning: bytes, rest: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    attempt(beginning + rest, tmp_path_factory)


@settings(max_examples=4 * settings().max_examples)
@given(data=st.data())
def test_a_recording_that_was_damaged_gives_records_or_a_sentence(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    writer = data.draw(st.sampled_from([*WRITERS.values(), recordings.cassette_json]))
    content = bytearray(writer(Sample(BODY), Sample(BODY)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    attempt(bytes(content[: data.draw(st.integers(0, len(content)))]), tmp_path_factory)


def attempt(content: bytes, folders: pytest.TempPathFactory) -> None:
    path = written(folders.getbasetemp(), "drawn", content)
    try:
        for record in records_in(path):
            assert plain(record)["tap"] in ("replay", "exchange")
    except BrokenRecording as fault:
        assert str(fault)
        assert len(str(fault)) < 400
    for leftover in folders.getbasetemp().glob("drawn-*"):
        raise AssertionError(f"{leftover} was made")


def test_the_reader_gives_its_first_bytes_once_more() -> None:
    again = files._WithFirstBytes(b"abc", io.BytesIO(b"defg"))
    assert [again.read(size) for size in (1, 4, 0, 9, 9)] == [b"a", b"bcde", b"", b"fg", b""]
