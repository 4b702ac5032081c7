"""Bodies that parsers fear, through `streamgauge up`: clients get each byte, analysis has its limits, memory stays flat."""

import gzip
import json
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import brotli
import pytest
import zstandard

from streamgauge_demo.provider import Provider, Script, answer
from tests.blackbox.test_secrets import bare
from tests.client import Received
from tests.faults.lengths import length
from tests.faults.scripted import (
    DONE,
    HEAD,
    MIB,
    ORDINARY,
    UNFRAMED,
    ask,
    event,
    in_parallel,
    judge,
    repeated,
    same_bytes,
    whole,
    with_records,
)
from tests.running import Running, start_up

# By how much the peaks of all processes of a tap may grow (bytes): several times their buffers, and far below the bodies.
MEMORY_BYTES = 96 * MIB
# A line without an end: this long in the ordinary run, and a GiB in the full one.
ENDLESS_BYTES = length(48, 1024) * MIB
# Between two pieces of 64 KiB of a long body (seconds).
PAUSE_S = 0.01
# A record within this time (seconds) was not held up by what the others sent.
IN_TIME_S = 60.0


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def run(up: Running, provider: Provider, *names: str) -> dict[str, Received]:
    """Each script once (or those of these names), and then its record; the client got the provider's bytes."""
    asked: dict[str, Received] = {}

    def one(name: str) -> None:
        asked[name] = ask(up, name)

    in_parallel(partial(one, name) for name in names or provider.scripts)
    with_records(up, asked.values())
    assert [name for name, received in asked.items() if not same_bytes(received, provider, name)] == []
    return asked


def long_event() -> Iterator[bytes]:
    """50 MB of text in one event, between ordinary ones."""
    yield UNFRAMED + event("one")
    before, after = event("@").split(b"@")
    yield before
    yield from repeated(b"a long text ", 50_000_000)
    yield after + event(" two") + event(finish="stop") + DONE


def endless_line() -> Iterator[bytes]:
    yield UNFRAMED + event("one") + b"data: "
    yield from repeated(b"x", ENDLESS_BYTES)


@pytest.mark.timeout(length(180, 900))
def test_p1_an_event_of_50_mb_and_a_line_that_never_ends(data_dir: Path) -> None:
    """At 6 MB/s a stream the recorder reads all of it. A GB/s is more than it can read: reads are dropped and counted."""
    scripts = {
        "ordinary": whole(ORDINARY),
        "long": answer(more=long_event, pause_s=PAUSE_S, end="close"),
        "endless": answer(more=endless_line, pause_s=PAUSE_S, end="close"),
        "flood": answer(more=endless_line, end="close"),
    }
    with Provider(scripts) as provider, start_up(provider.url, data_dir) as up:
        with_records(up, [ask(up, "ordinary")])
        before = up.peak_memory()
        asked = run(up, provider, "ordinary", "long", "endless")
        assert up.peak_memory() - before < MEMORY_BYTES
        long, endless = asked["long"].record, asked["endless"].record
        assert (long["outcome"], endless["outcome"]) == ("completed", "truncated")
        for record in (long, endless):
            assert record["integrity"] == {
                **record["integrity"], "complete": False, "reasons": ["oversized_event"], "oversized_events": 1,
            }  # fmt: skip
        assert long["counts"]["text_chars"] == len("one two")
        assert asked["ordinary"].record["integrity"]["complete"] is True
        judge(up)
        flood = run(up, provider, "flood")["flood"].record
        assert up.peak_memory() - before < MEMORY_BYTES
        reasons = {*flood["integrity"]["reasons"]}
        unknown = "dropped_reads" in reasons  # they may have held the terminal
        assert (flood["outcome"], flood["integrity"]["complete"]) == ("abandoned" if unknown else "truncated", False)
        assert reasons <= {"oversized_event", "dropped_reads"}
        judge(up, drops=True)
        assert up.stop() == 0, up.log


# Each odd thing that bytes of an event stream may be: a byte order mark, code points of two and four bytes, bytes that are
# no UTF-8, a NUL, a surrogate alone, comments, and CR, LF and CR LF as line ends in one stream.
ODD = b"".join(
    (
        b"\xef\xbb\xbf",
        event("é😀").removesuffix(b"\n\n") + b"\r\n\r\n",
        event("@@").replace(b"@@", b"\xff\xfe").removesuffix(b"\n\n") + b"\r\r",
        b": \x00\xc3\r",
        event("\0").removesuffix(b"\n\n") + b"\n\r\n",
        event("@").replace(b"@", b"\\ud83d").removesuffix(b"\n\n") + b"\r\n\n",
        b"data\r\ndata: \x00\xf0\x9f\n\r",
        event(finish="stop").removesuffix(b"\n\n") + b"\r\r\n",
        b"data: [DONE]\r\n\r",
    )
)


@pytest.mark.timeout(length(180, 900))
def test_p2_odd_bytes_give_one_record_whatever_the_split(data_dir: Path) -> None:
    """Each split in two, on real sockets."""

    def split(at: int) -> Script:
        return answer(UNFRAMED + ODD[:at], ODD[at:], pause_s=0.01, end="close")

    places = range(1, len(ODD), length(3, 1))
    with Provider({f"at-{at}": split(at) for at in places}) as provider, start_up(provider.url, data_dir) as up:
        asked = run(up, provider)
        records = {json.dumps(bare(received.record), sort_keys=True) for received in asked.values()}
        assert len(records) == 1, records
        (record,) = map(json.loads, records)
        assert record["outcome"] == "completed"
        assert record["counts"]["text_chars"] == len("é😀") + len("��") + len("\0") + 1
        judge(up)
        assert up.stop() == 0, up.log


DEPTH, DIGITS = 100_000, 100_000
HOSTILE_JSON = {
    "lists": b'{"choices":[{"index":0,"delta":{"content":' + b"[" * DEPTH + b"]" * DEPTH + b"}}]}",
    "objects": b'{"usage":' * DEPTH + b"1" + b"}" * DEPTH,
    "open-lists": b"[" * DEPTH,
    "digits": b'{"usage":{"prompt_tokens":' + b"9" * DIGITS + b',"completion_tokens":1}}',
    "exponent": b'{"usage":{"prompt_tokens":1e' + b"9" * DIGITS + b"}}",
    "fraction": b'{"usage":{"prompt_tokens":0.' + b"1" * DIGITS + b"}}",
    "duplicates": b'{"model":"a","model":"b",' + b'"choices":[],' * 10_000 + b'"model":"c"}',
    "many-keys": b"{" + b",".join(b'"k%d":%d' % (number, number) for number in range(20_000)) + b"}",
    "no-number": b'{"usage":{"prompt_tokens":NaN,"completion_tokens":Infinity,"total_tokens":-Infinity}}',
    "escapes": b'{"choices":[{"index":0,"delta":{"content":"' + b"\\u0000\\ud800" * 20_000 + b'"}}]}',
}


def test_p3_json_that_is_deep_long_or_no_json_neither_raises_nor_stalls(data_dir: Path) -> None:
    """Each as an event, as a whole response, as an error, and as a request."""
    as_json = b"Content-Type: application/json\r\nConnection: close\r\n\r\n"
    scripts = {"ordinary": whole(ORDINARY)}
    for name, value in HOSTILE_JSON.items():
        scripts[f"event-{name}"] = whole(event("one") + b"data: " + value + b"\n\n" + event(finish="stop") + DONE)
        scripts[f"answer-{name}"] = whole(value, b"HTTP/1.1 200 OK\r\n" + as_json)
        scripts[f"error-{name}"] = whole(value, b"HTTP/1.1 400 Bad Request\r\n" + as_json)
    with Provider(scripts) as provider, start_up(provider.url, data_dir) as up:
        with_records(up, [ask(up, "ordinary")])
        before = up.peak_memory()
        began = time.monotonic()
        asked = run(up, provider)
        requests = [ask(up, "ordinary", body=value) for value in HOSTILE_JSON.values()]
        with_records(up, requests)
        assert time.monotonic() - began < IN_TIME_S
        assert up.peak_memory() - before < MEMORY_BYTES
        for name, received in asked.items():
            kind = name.partition("-")[0]
            outcomes = {"error": {"http_error"}, "answer": {"truncated", "completed"}}.get(kind, {"completed"})
            assert received.record["outcome"] in outcomes, name
        assert {received.record["outcome"] for received in requests} == {"completed"}
        judge(up)
        assert up.stop() == 0, up.log


def bomb(coding: Callable[[bytes], bytes], members: int = 1) -> bytes:
    """An event that never ends, of 64 MiB of one byte in each member: a thousandth of that or less when coded."""
    return coding(b"data: " + b"x" * 64 * MIB) * members


def deflated(data: bytes) -> bytes:
    return zlib.compress(data)


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": partial(gzip.compress, compresslevel=6),
    "deflate": deflated,
    "br": partial(brotli.compress, quality=3),
    "zstd": zstandard.ZstdCompressor().compress,
}


def coded(coding: str, body: bytes) -> Script:
    return whole(body, HEAD + f"Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n".encode())


def test_p4_compressed_bodies_pass_untouched_and_bombs_are_not_inflated(data_dir: Path) -> None:
    half = len(ORDINARY) // 2
    members = gzip.compress(ORDINARY[:half]) + gzip.compress(b"") + gzip.compress(ORDINARY[half:])
    good = {name: coded(name, make(ORDINARY)) for name, make in CODINGS.items()}
    good |= {"members": coded("gzip", members), "x-gzip": coded("x-gzip", gzip.compress(ORDINARY))}
    bombs = {f"bomb-{name}": coded(name, bomb(make)) for name, make in CODINGS.items()}
    bombs |= {"bomb-members": coded("gzip", bomb(CODINGS["gzip"], 4))}
    twice = gzip.compress(gzip.compress(b"x" * 64 * MIB, 9), 9)
    bombs |= {"bomb-twice": coded("gzip, gzip", twice)}
    wrong = {
        "plain-as-gzip": coded("gzip", ORDINARY),
        "gzip-as-br": coded("br", gzip.compress(ORDINARY)),
        "cut": coded("gzip", gzip.compress(ORDINARY)[:-9]),
        "unknown": coded("lzma", ORDINARY),
        "three": coded("gzip, gzip, gzip", gzip.compress(ORDINARY)),
    }
    with Provider({**good, **bombs, **wrong}) as provider, start_up(provider.url, data_dir) as up:
        with_records(up, [ask(up, "gzip")])
        before = up.peak_memory()
        asked = run(up, provider)
        assert up.peak_memory() - before < MEMORY_BYTES
        errors = {name: received.record["integrity"]["decode_error"] for name, received in asked.items()}
        assert {name: errors[name] for name in good} == dict.fromkeys(good)
        assert {asked[name].record["counts"]["text_chars"] for name in good} == {len("one two")}
        assert {name: errors[name] for name in bombs} == dict.fromkeys(bombs, "bomb")
        assert {name: errors[name] for name in wrong} == {
            "plain-as-gzip": "corrupt",
            "gzip-as-br": "corrupt",
            "cut": "incomplete",
            "unknown": "unknown_coding",
            "three": "too_many_codings",
        }
        assert not any(asked[name].record["integrity"]["complete"] for name in (*bombs, *wrong))
        judge(up)
        assert up.stop() == 0, up.log
