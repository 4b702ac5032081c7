"""Recordings as their tools write them: the same exchange as a HAR, a cassette and a flow."""

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.record import Record, encode_record
from streamgauge.taps.replay.contract import Tally
from streamgauge.taps.replay.files import ReplaySettings, log_of
from tests.taps import talk

URL = "https://api.example.com/v1/chat/completions"
START = 1_700_000_000.25
SSE_HEADERS = [("Content-Type", "text/event-stream; charset=utf-8")]


class Sample(msgspec.Struct, frozen=True):
    """One exchange. `body` as received, in the coding that its headers name."""

    body: bytes
    url: str = URL
    method: str = "POST"
    request_body: bytes = b'{"model":"m-1","stream":true,"messages":[{"role":"user","content":"A SECRET"}]}'
    request_headers: Sequence[tuple[str, str]] = (("Authorization", "Bearer A SECRET"), ("Cookie", "A SECRET"))
    status: int = 200
    headers: Sequence[tuple[str, str]] = tuple(SSE_HEADERS)


# --- HAR --------------------------------------------------------------------------------------------------------------


def named(headers: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers]


def entry(sample: Sample, **more: Any) -> dict[str, Any]:
    """As a browser writes it, with text if the body is text."""
    try:
        content = {"size": len(sample.body), "mimeType": "x", "text": sample.body.decode()}
    except UnicodeDecodeError:
        content = {"size": len(sample.body), "text": base64.b64encode(sample.body).decode(), "encoding": "base64"}
    request = {"method": sample.method, "url": sample.url, "headers": named(sample.request_headers), "bodySize": -1}
    if sample.request_body:
        request["postData"] = {"mimeType": "application/json", "text": sample.request_body.decode()}
    response = {"status": sample.status, "headers": named(sample.headers), "content": content, "bodySize": -1}
    return {"startedDateTime": "2023-11-14T22:13:20.250Z", "request": request, "response": response, **more}


def archive(*entries: Any, **more: Any) -> bytes:
    return json.dumps({"log": {"version": "1.2", "creator": {"name": "x"}, "entries": entries, **more}}).encode()


def har(*samples: Sample) -> bytes:
    return archive(*map(entry, samples))


# --- cassettes --------------------------------------------------------------------------------------------------------


def interaction(sample: Sample, *, keep_bytes: bool = True) -> dict[str, Any]:
    """As vcrpy has it before it is written: text if it is valid UTF-8, otherwise bytes."""

    def stored(data: bytes) -> object:
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data if keep_bytes else data.decode("latin-1")

    return {
        "request": {
            "method": sample.method,
            "uri": sample.url,
            "body": stored(sample.request_body) if sample.request_body else None,
            "headers": {name: [value] for name, value in sample.request_headers},
        },
        "response": {
            "status": {"code": sample.status, "message": "OK"},
            "headers": {name: [value] for name, value in sample.headers},
            "body": {"string": stored(sample.body)},
        },
    }


def cassette_yaml(*samples: Sample) -> bytes:
    return yaml.dump({"version": 1, "interactions": [interaction(sample) for sample in samples]}).encode()


def cassette_json(*samples: Sample) -> bytes:
    return (
        json.dumps({"version": 1, "interactions": [interaction(sample) for sample in samples]}, indent=4) + "\n"
    ).encode()


def ruby_cassette(*samples: Sample) -> bytes:
    """As VCR writes it with preserve_exact_body_bytes; betamax has the same members, as JSON."""
    interactions = []
    for sample in samples:
        one = interaction(sample, keep_bytes=False)
        one["request"]["body"] = {"encoding": "UTF-8", "string": sample.request_body.decode()}
        body = {"encoding": "ASCII-8BIT", "base64_string": base64.encodebytes(sample.body).decode()}
        one["response"]["body"] = body
        interactions.append({**one, "recorded_at": "Tue, 14 Nov 2023 22:13:20 GMT"})
    document = {"http_interactions": interactions, "recorded_with": "VCR 6.2.0"}
    return b"---\n" + yaml.safe_dump(document, sort_keys=False).encode()


def _go_vcr(sample: Sample, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The members of request and response that all versions of go-vcr write. A body that is no UTF-8 becomes !!binary."""
    one = interaction(sample)
    bodies = one["request"]["body"] or "", one["response"]["body"]["string"]
    headers = [{name.title(): [value] for name, value in pairs} for pairs in (sample.request_headers, sample.headers)]
    request = {"body": bodies[0], "form": {}, "headers": headers[0], "url": sample.url, "method": sample.method}
    response = {"body": bodies[1], "headers": headers[1], "status": f"{sample.status} OK", "code": sample.status}
    return {**more, **request}, {**more, **response}


def go_vcr_1(*samples: Sample) -> bytes:
    """As go-vcr v1 and v2 write it (cassette/cassette.go)."""
    interactions = [
        {"request": request, "response": {**response, "duration": ""}} for request, response in map(_go_vcr, samples)
    ]
    return b"---\n" + yaml.dump({"version": 1, "interactions": interactions}, sort_keys=False).encode()


def go_vcr_4(*samples: Sample) -> bytes:
    """As go-vcr v3 and v4 write it (pkg/cassette/cassette.go); empty members are left out."""
    interactions: list[dict[str, Any]] = []
    for sample in samples:
        request, response = _go_vcr(sample, proto="HTTP/1.1", proto_major=1, proto_minor=1, content_length=-1)
        request.pop("form")
        request |= {"host": urlsplit(sample.url).hostname, "transfer_encoding": ["chunked"]}
        response |= {"uncompressed": True, "duration": "1.2345s"}
        kept = {name: value for name, value in request.items() if value not in ("", {})}
        interactions.append({"id": len(interactions), "request": kept, "response": response})
    return b"---\n" + yaml.dump({"version": 2, "interactions": interactions}, sort_keys=False).encode()


# --- mitmproxy --------------------------------------------------------------------------------------------------------


def netstring(value: object) -> bytes:
    """A typed netstring, as mitmproxy writes them."""
    data, kind = _typed(value)
    return b"%d:%b%b" % (len(data), data, kind)


def _typed(value: object) -> tuple[bytes, bytes]:
    match value:
        case None:
            return b"", b"~"
        case bool():
            return str(value).lower().encode(), b"!"
        case int():
            return b"%d" % value, b"#"
        case float():
            return repr(value).encode(), b"^"
        case bytes():
            return value, b","
        case str():
            return value.encode(), b";"
        case list() | tuple():
            return b"".join(map(netstring, value)), b"]"
        case dict():
            return b"".join(netstring(key) + netstring(item) for key, item in value.items()), b"}"
    raise TypeError(value)


def flow(sample: Sample, **more: Any) -> dict[str, Any]:
    """Version 21, with the members that are read, and some that are not."""
    parts = urlsplit(sample.url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    return {
        "version": 21,
        "type": "http",
        "id": "c5e6",
        "error": None,
        "websocket": None,
        "client_conn": {"peername": ["127.0.0.1", 5000], "timestamp_start": START - 1},
        "server_conn": {
            "timestamp_start": START + 0.01,
            "timestamp_tcp_setup": START + 0.02,
            "timestamp_tls_setup": None,
        },
        "request": {
            "method": sample.method.encode(),
            "scheme": parts.scheme.encode(),
            "host": parts.hostname,
            "port": 443,
            "path": target.encode(),
            "http_version": b"HTTP/1.1",
            "authority": b"",
            "headers": [[name.encode(), value.encode()] for name, value in sample.request_headers],
            "content": sample.request_body,
            "timestamp_start": START,
            "timestamp_end": START + 0.005,
        },
        "response": {
            "status_code": sample.status,
            "reason": b"OK",
            "headers": [[name.encode(), value.encode()] for name, value in sample.headers],
            "content": sample.body,
            "timestamp_start": START + 0.5,
            "timestamp_end": START + 2.0,
        },
        **more,
    }


def flows(*samples: Sample) -> bytes:
    return b"".join(netstring(flow(sample)) for sample in samples)


def old_flows(*samples: Sample) -> bytes:
    """Version 0.15: keys are bytes, a message's content is its body."""
    found = []
    for sample in samples:
        new = flow(sample, version=[0, 15])
        new["response"]["body"] = new["response"].pop("content")
        new["request"]["body"] = new["request"].pop("content")
        new["type"] = b"http"
        new["request"]["host"] = new["request"]["host"].encode()
        found.append(netstring(_with_bytes_keys(new)))
    return b"".join(found)


def _with_bytes_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key.encode(): _with_bytes_keys(item) for key, item in value.items()}
    return value


WRITERS: dict[str, Callable[..., bytes]] = {
    "har": har,
    "cassette-yaml": cassette_yaml,
    "cassette-ruby": ruby_cassette,
    "flows": flows,
    "old-flows": old_flows,
    "go-vcr-1": go_vcr_1,
    "go-vcr-4": go_vcr_4,
}

# --- and what becomes of them -----------------------------------------------------------------------------------------

INSTANCE = b"i" * 16


def records_in(path: Path, tally: Tally | None = None, capture: str = "full", **how: Any) -> list[Record]:
    """The records of a file, made like the command makes them."""
    assembler, records = Assembler(), []
    for offset, log_ms, bundle in log_of(
        path, ReplaySettings(talk.settings(capture), INSTANCE, **how), tally or Tally()
    ):
        records += assembler.apply(offset, log_ms, bundle)
    return records


def plain(record: Record) -> dict[str, Any]:
    """A record as JSON has it."""
    found: dict[str, Any] = json.loads(encode_record(record))
    return found
