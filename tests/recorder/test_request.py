"""What is read of a request: facts by an allowlist, digests instead of secrets, null for malformed values."""

import gzip
import hashlib
import hmac
import json
import random
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Opening, RequestFacts
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.protocol import MAX_REQUEST_BODY
from streamgauge.recorder.request import MAX_CODED_REQUEST, RequestReader, digest, opening_of
from streamgauge.recorder.stream_id import stream_id
from tests.each import each
from tests.taps import talk
from tests.taps.talk import KEY, opened

ROOM = 100_000_000


def facts(body: bytes, *headers: tuple[str, str], target: str = "/v1/chat/completions") -> RequestFacts:
    reader = RequestReader(opened(target, *headers), KEY, Budget(ROOM))
    reader.add(body[:7])
    reader.add(body[7:])
    return reader.sent_facts(talk.sent(len(body)), 1, 2)


def hmac_of(value: bytes) -> str:
    return hmac.new(KEY, value, hashlib.sha256).hexdigest()[:32]


def test_an_ordinary_request() -> None:
    body = json.dumps(
        {
            "model": "gpt-5.2",
            "stream": True,
            "n": 2,
            "max_completion_tokens": 512,
            "stream_options": {"include_usage": True},
            "service_tier": "flex",
            "messages": [{"role": "user", "content": "Hello"}],
        }
    ).encode()
    assert facts(body) == RequestFacts(len(body), "gpt-5.2", True, 2, 512, True, "flex", hmac_of(body), 1, 2)


@each(
    [
        ({"max_tokens": 5, "max_completion_tokens": 6}, {"max_tokens": 5}),
        ({"max_output_tokens": 7}, {"max_tokens": 7}),
        ({"generationConfig": {"maxOutputTokens": 8}}, {"max_tokens": 8}),
        ({"generationConfig": {"candidateCount": 3, "maxOutputTokens": 8}}, {"n": 3, "max_tokens": 8}),
        ({"generation_config": {"candidate_count": 3, "max_output_tokens": 8}}, {"n": 3, "max_tokens": 8}),
        ({"n": 2, "generationConfig": {"candidateCount": 3}}, {"n": 2}),
        ({"generationConfig": {"candidateCount": "3"}, "generation_config": [3]}, {}),
        ({"parameters": {"max_new_tokens": 20, "best_of": 2}}, {"max_tokens": 20}),
        ({"model_id": "ibm/granite", "parameters": {"max_new_tokens": 20}}, {"model": "ibm/granite", "max_tokens": 20}),
        ({"model": "", "model_id": "ibm/granite"}, {"model": "ibm/granite"}),
        ({"model": ["m"], "model_id": "модель"}, {"model": "masked"}),
        ({"prompt": "x", "n_predict": 64, "stream": True, "n_cmpl": 2}, {"max_tokens": 64, "stream": True, "n": 2}),
        ({"n_predict": -1}, {}),
        ({"model": "claude-2", "max_tokens_to_sample": 300}, {"model": "claude-2", "max_tokens": 300}),
        ({"prompt": "x", "best_of": 5, "n": 2}, {"n": 2}),
        ({"best_of": 5, "parameters": "max_new_tokens"}, {}),
        ({"max_tokens": "9", "max_output_tokens": 7}, {"max_tokens": 7}),
        ({"max_tokens": True, "n": 1.0, "stream": 1, "model": ["m"], "service_tier": 5}, {}),
        ({"max_tokens": -1, "n": 2**60, "stream": "true", "stream_options": [True]}, {}),
        ({"stream": False, "stream_options": {"include_usage": False}}, {"stream": False, "include_usage": False}),
        ({"stream_options": {"include_usage": 1}, "generationConfig": 5}, {}),
        ({"model": "модель"}, {"model": "masked"}),
        ({"model": "m" * 257, "service_tier": "a b"}, {"model": "masked", "service_tier": "masked"}),
        ({"model": "", "n": None}, {}),
        ([{"model": "m"}], {}),
        ("model", {}),
        (None, {}),
    ]
)
def test_facts_of_a_body(case: tuple[object, dict[str, object]]) -> None:
    body, known = case
    raw = json.dumps(body).encode()
    empty = RequestFacts(body_bytes=len(raw), digest=hmac_of(raw), connect_ns=1, sent_ns=2)
    request = facts(raw)
    assert {
        name: getattr(request, name)
        for name in request.__struct_fields__
        if getattr(request, name) != getattr(empty, name)
    } == known


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"model": "m"} x',
        b'{"model": "\xff"}',
        b'{"n": NaN, "model": "m"}',
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b', "model": "m"}',
        b'{"n": ' + b"9" * 100_000 + b"}",
        b"model=m",
        bytes(50),
    ],
)
def test_malformed_bodies_raise_nothing_and_have_a_size_and_a_digest(body: bytes) -> None:
    request = facts(body)
    assert (request.body_bytes, request.digest, request.n) == (len(body), hmac_of(body), None)


def test_lone_surrogates_and_duplicate_keys_are_read() -> None:
    assert facts(b'{"model":"a","x":"\\ud800","model":"b"}').model == "b"


@given(st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(repr).map(str.encode))
def test_no_body_raises(body: bytes) -> None:
    assert facts(body).body_bytes == len(body)


def test_a_compressed_body() -> None:
    raw = gzip.compress(b'{"model":"m","n":3}', mtime=0)
    request = facts(raw, ("content-encoding", "gzip"))
    assert (request.model, request.n, request.digest) == ("m", 3, hmac_of(raw))
    assert facts(raw).model is None
    assert facts(raw[:-9], ("content-encoding", "gzip")).model is None
    assert facts(raw, ("content-encoding", "x-unknown")).model is None
    bomb = gzip.compress(b'{"model":"m","x":"' + bytes(MAX_REQUEST_BODY) + b'"}', mtime=0)
    assert facts(bomb, ("content-encoding", "gzip")).model is None


def test_a_compressed_body_is_decoded_up_to_a_size_of_its_own() -> None:
    for size, model in ((MAX_CODED_REQUEST - 100_000, "m"), (MAX_CODED_REQUEST, None)):
        stored = gzip.compress(b'{"model":"m","x":"' + b"x" * size + b'"}', 0)
        reader = RequestReader(opened("/v1/messages", ("content-encoding", "gzip")), KEY, Budget(ROOM))
        reader.add(stored)
        assert reader.capped is (model is None)
        assert reader.sent_facts(talk.sent(len(stored)), None, None).model == model


def test_a_body_that_was_compressed_twice_is_not_decoded() -> None:
    raw = gzip.compress(gzip.compress(b'{"model":"m"}', mtime=0), mtime=0)
    request = facts(raw, ("content-encoding", "gzip"), ("content-encoding", "gzip"))
    assert (request.model, request.digest) == (None, hmac_of(raw))


def test_a_body_that_is_not_complete_has_no_digest_and_no_facts() -> None:
    reader = RequestReader(opened(), KEY, Budget(ROOM))
    reader.add(b'{"model":"m"}')
    request = reader.sent_facts(talk.sent(100, whole=False), None, 2)
    assert request == RequestFacts(body_bytes=100, sent_ns=2, capped=True)


def test_a_body_over_the_budget_has_a_digest_and_no_facts() -> None:
    budget = Budget(20)
    reader = RequestReader(opened(), KEY, budget)
    body = b'{"model":"m"}' + b" " * 20
    for at in range(0, len(body), 5):
        reader.add(body[at : at + 5])
    request = reader.sent_facts(talk.sent(len(body)), None, 2)
    assert (request.model, request.digest, request.capped, reader.capped) == (None, hmac_of(body), True, True)
    assert budget.take(15)


def test_no_body_has_no_digest() -> None:
    assert facts(b"") == RequestFacts(body_bytes=0, connect_ns=1, sent_ns=2)


@each(
    [
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "gemini-2.5-pro", None),
        ("/v1/projects/p/locations/l/publishers/google/models/a%20b:generateContent", "a b", None),
        ("/v1/models/%D0%BC:generateContent", "masked", None),
        ("/v1/models/x/y:generateContent", None, None),
        ("/v1/responses/resp_1?stream=true", None, True),
        ("/v1/responses/resp_1?stream=false&stream_options=1", None, False),
        ("/v1/responses/resp_1?stream=1", None, None),
    ]
)
def test_facts_of_the_target(case: tuple[str, str | None, bool | None]) -> None:
    target, model, stream = case
    request = facts(b"", target=target)
    assert (request.model, request.stream) == (model, stream)


def opening(
    target: str = "/v1/chat/completions", *headers: tuple[str, str], method: str = "POST", **more: object
) -> Opening:
    return opening_of(opened(target, *headers, method=method), talk.settings(**more), "full")  # type: ignore[arg-type]


AWS_KEY = "AKIAIOSFODNN7EXAMPLE"


@pytest.mark.parametrize(
    ("headers", "query", "credential"),
    [
        ([("authorization", "Bearer sk-1"), ("x-api-key", "sk-2")], "", b"sk-1"),
        ([("authorization", "bearer   sk-1 ")], "", b"sk-1"),
        ([("authorization", "Basic abc"), ("api-key", "sk-3")], "", b"sk-3"),
        ([("x-api-key", "sk-2"), ("api-key", "sk-3")], "?key=sk-5", b"sk-2"),
        ([("x-goog-api-key", "sk-4")], "?key=sk-5", b"sk-4"),
        (
            [
                (
                    "authorization",
                    f"AWS4-HMAC-SHA256 Credential={AWS_KEY}/20261201/eu-west-1/bedrock/aws4_request, "
                    "SignedHeaders=host;x-amz-date, Signature=ab12",
                )
            ],
            "",
            AWS_KEY.encode(),
        ),
        ([("authorization", "AWS4-HMAC-SHA256 Credential=short/20261201, Signature=ab12")], "", None),
        ([("authorization", f"Basic Credential={AWS_KEY}/20261201")], "", None),
        ([], "?alt=sse&key=sk%2D5", b"sk-5"),
        ([("x-api-key", "sk-\xe9")], "", b"sk-\xe9"),
        ([], "?key=%D0%BC", "м".encode()),
        ([("x-api-key", "first"), ("x-api-key", "second")], "", b"first"),
        ([("authorization", "Bearer ")], "?key=", None),
        ([], "", None),
    ],
)
def test_the_credential_is_a_digest(headers: list[tuple[str, str]], query: str, credential: bytes | None) -> None:
    credential_id = opening(f"/v1/messages{query}", *headers).credential_id
    assert credential_id == (None if credential is None else hmac_of(credential))
    assert credential_id is None or credential_id == digest(KEY, credential or b"")


def test_the_tenant_comes_from_the_header_or_the_credential() -> None:
    tenants: dict[str, Any] = {"tenants": {digest(KEY, b"sk-1"): "acme"}, "tenant_header": "X-Tenant"}
    key = ("authorization", "Bearer sk-1")
    assert opening("/x", key, **tenants).tenant == "acme"
    assert opening("/x", ("authorization", "Bearer sk-2"), ("x-tenant", "other"), **tenants).tenant == "other"
    assert opening("/x", ("x-tenant", "ünknown"), **tenants).tenant == "masked"
    assert opening("/x", ("authorization", "Bearer sk-2"), **tenants).tenant is None
    assert opening("/x", key, ("x-tenant", "other")).tenant is None


def test_a_header_cannot_replace_the_tenant_of_a_credential() -> None:
    """Any client can write any header."""
    tenants: dict[str, Any] = {"tenants": {digest(KEY, b"sk-1"): "acme"}, "tenant_header": "X-Tenant"}
    known, unknown = ("authorization", "Bearer sk-1"), ("authorization", "Bearer sk-2")
    header = ("x-tenant", "other")
    expected = {
        ("credential", "header"): ("acme", "other"),
        ("header", "credential"): ("other", "other"),
        ("credential",): ("acme", None),
        ("header",): ("other", "other"),
    }
    assert opening("/x", known, header, **tenants).tenant == "acme", "the default"
    for source, of_both in expected.items():
        seen = [opening("/x", key, header, **tenants, tenant_source=source).tenant for key in (known, unknown)]
        assert tuple(seen) == of_both, source


def test_the_name_of_an_authenticated_client_may_be_the_tenant() -> None:
    started = msgspec.structs.replace(opened("/x", ("x-tenant", "other")), client_name="search")
    expected = {
        ("client", "header"): "search",
        ("header", "client"): "other",
        ("credential", "header"): "other",
        ("client",): "search",
    }
    for source, tenant in expected.items():
        settings = talk.settings(tenant_header="X-Tenant", tenant_source=source)
        assert opening_of(started, settings, "masked").tenant == tenant, source
    nameless = opening_of(opened("/x"), talk.settings(tenant_source=("client",)), "masked")
    assert nameless.tenant is None


def test_after_a_rotation_entries_under_the_previous_key_count() -> None:
    previous = bytes(reversed(KEY))
    old, new = digest(previous, b"sk-1"), digest(KEY, b"sk-1")
    rotated: dict[str, Any] = {"tenants": {old: "acme"}, "previous_key": previous}
    key = ("authorization", "Bearer sk-1")
    seen = opening("/x", key, **rotated)
    assert (seen.tenant, seen.credential_id) == ("acme", new)
    assert opening("/x", key, tenants={old: "acme"}).tenant is None, "without the previous key"
    assert opening("/x", key, tenants={old: "acme", new: "acme-2"}, previous_key=previous).tenant == "acme-2"


def attributes_of(*pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    started = msgspec.structs.replace(opened("/v1/messages"), attributes=list(pairs))
    return opening_of(started, talk.settings("masked"), "masked").attributes


def test_attributes_are_safe_and_bounded() -> None:
    pairs = [
        ("agent", " planner\t"),
        ("agent", "second"),
        ("b", "ünsafe"),
        ("c", "x" * 257),
        ("d", ""),
        ("E", "x"),
        ("", "x"),
    ]
    assert attributes_of(*pairs) == (("agent", "planner"), ("b", "masked"), ("c", "masked"))
    assert attributes_of(*[(f"a{number}", "x") for number in range(20)]) == tuple((f"a{n}", "x") for n in range(8))
    assert attributes_of() == ()


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=300))))
def test_any_attributes_can_be_decoded_by_a_worker(pairs: list[tuple[str, str]]) -> None:
    opening = Opening("proxy", "1", "masked", attributes=attributes_of(*pairs))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(opening), type=Opening) == opening


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("traceparent", "trace_id"),
    [
        (f"00-{TRACE}-{PARENT}-01", TRACE),
        (f" 00-{TRACE}-{PARENT}-00 ", TRACE),
        (f"cc-{TRACE}-{PARENT}-01-what-comes", TRACE),
        (f"00-{TRACE}-{PARENT}-01-what-comes", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{TRACE[1:]}-{PARENT}-01", None),
        (f"00-{TRACE}-{PARENT}", None),
        ("", None),
    ],
)
def test_the_trace(traceparent: str, trace_id: str | None) -> None:
    made = opening("/x", ("traceparent", traceparent))
    assert (made.trace_id, made.parent_span_id) == (trace_id, trace_id and PARENT)


@pytest.mark.parametrize(
    ("retries", "attempt"), [("0", 1), ("2", 3), ("", None), ("-1", None), ("1.0", None), ("٢", None), ("9" * 50, None)]
)
def test_the_attempt(retries: str, attempt: int | None) -> None:
    assert opening("/x", ("x-stainless-retry-count", retries)).attempt == attempt
    assert opening("/x").attempt is None


@pytest.mark.parametrize(
    ("given", "attempt"),
    [
        ("attempt=1; max=5", 1), ("ttl=20261201T120000Z; attempt=3; max=5", 3), ("attempt=2", 2), ("", None),
        ("attempt=0", None), ("attempt=-1", None), ("reattempt=2", None), ("attempt=" + "9" * 50, None), ("attempt=2x", None),
    ],
)  # fmt: skip
def test_the_attempt_of_an_aws_client(given: str, attempt: int | None) -> None:
    assert opening("/x", ("amz-sdk-request", given)).attempt == attempt
    assert opening("/x", ("amz-sdk-request", given), ("x-stainless-retry-count", "6")).attempt == 7


EVENT = ("last-event-id", "17")


@pytest.mark.parametrize(
    ("method", "target", "headers", "leg"),
    [
        ("GET", "/v1/responses/resp_1?stream=true&starting_after=42", [], ("42", 42, "resp_1")),
        ("GET", "/v1/responses/resp_1?starting_after=0", [], ("0", 0, "resp_1")),
        ("GET", "/v1/responses/resp%C3%A9?starting_after=1", [], ("1", 1, "masked")),
        ("GET", "/v1/responses/resp_1?starting_after=4", [EVENT], ("4", 4, "resp_1")),
        ("GET", "/v1/responses/resp_1?stream=true", [], ("start", None, "resp_1")),
        ("GET", "/v1/responses/resp_1?stream=true", [("last-event-id", "")], ("start", None, "resp_1")),
        ("GET", "/v1/responses/resp_1?stream=true&starting_after=", [], ("start", None, "resp_1")),
        ("GET", "/v1/responses/resp_1?include[]=a&stream=true", [], ("start", None, "resp_1")),
        ("GET", "/v1beta/interactions/int_1?stream=true", [], ("start", None, "int_1")),
        ("GET", "/v1beta/interactions/int_1?stream=true&last_event_id=", [], ("start", None, "int_1")),
        ("GET", "/v1beta1/projects/p/locations/l/interactions/int_1:stream", [], ("start", None, "int_1")),
        ("GET", "/v1/responses/resp_1?stream=true", [EVENT], ("17", None, "resp_1")),
        ("GET", "/v1/responses/resp_1?starting_after=x", [EVENT], ("17", None, "resp_1")),
        ("GET", "/v1beta/interactions/int_1?stream=true&last_event_id=evt%2F7", [], ("evt/7", None, "int_1")),
        ("GET", "/v1beta/interactions/int_1?last_event_id=e", [EVENT], ("e", None, "int_1")),
        ("GET", "/v1beta/interactions/int_1?last_event_id=%C3%A9", [EVENT], ("masked", None, "int_1")),
        ("GET", "/v1beta/interactions/int_1?last_event_id=", [EVENT], ("17", None, "int_1")),
        ("GET", "/v1beta1/projects/p/locations/l/interactions/int_1:stream?lastEventId=e", [], ("e", None, "int_1")),
        ("GET", "/v1beta1/projects/p/locations/l/interactions/int_1:stream", [EVENT], ("17", None, "int_1")),
        ("POST", "/v1/chat/completions?starting_after=4", [EVENT], ("17", None, None)),
        ("POST", "/v1/responses/resp_1?starting_after=4", [EVENT], ("17", None, None)),
        ("GET", "/v1/messages", [EVENT], ("17", None, None)),
    ],
)
def test_a_resumption_names_a_position_and_maybe_a_stored_response(
    method: str, target: str, headers: list[tuple[str, str]], leg: tuple[str, int | None, str | None]
) -> None:
    begin = opening(target, *headers, method=method)
    assert (begin.resumed_from, begin.resumed_after, begin.continues) == leg


@each(
    product(
        [
            ("GET", "/v1/responses/resp_1"),
            ("GET", "/v1/responses/resp_1?stream=false"),
            ("GET", "/v1/responses/resp_1/input_items?stream=true"),
            ("POST", "/v1/responses/resp_1?stream=true"),
            ("POST", "/v1/responses?stream=true"),
            ("GET", "/v1/responses/resp_1?starting_after=x"),
            ("GET", "/v1/responses/resp_1?starting_after="),
            ("GET", "/v1/responses/resp_1?last_event_id=e"),
            ("GET", "/v1/responses/resp_1/input_items?starting_after=4"),
            ("POST", "/v1/responses?starting_after=4"),
            ("POST", "/v1/responses/resp_1?starting_after=4"),
            ("GET", "/v1beta/interactions/int_1"),
            ("GET", "/v1beta/interactions/int_1?starting_after=3"),
            ("POST", "/v1beta/interactions?last_event_id=e"),
        ],
        [[], [("last-event-id", "")]],
    )
)
def test_without_a_position_it_is_not_a_resumption(case: tuple[tuple[str, str], list[tuple[str, str]]]) -> None:
    (method, target), headers = case
    begin = opening(target, *headers, method=method)
    assert (begin.resumed_from, begin.resumed_after, begin.continues) == (None, None, None)


def test_a_path_that_is_not_an_llms_is_not_kept() -> None:
    assert opening("/secret/path?x=1").path is None
    assert opening("/secret/v1/messages?x=1").path == "/messages"
    assert opening("/v1/chat/completions/?x=1").path == "/chat/completions"


# --- sampling -----------------------------------------------------------------------------------------------------------


def test_a_share_of_the_streams_is_captured_in_full_by_their_ids() -> None:
    chance = random.Random(3)
    ids = [stream_id(1_700_000_000_000_000_000, chance.getrandbits(74)) for _ in range(4_000)]
    kept = {
        share: {one for one in ids if talk.settings(full_share=share).capture_of(one) == "full"}
        for share in (0.0, 0.1, 0.5, 1.0)
    }
    assert [len(kept[share]) for share in (0.0, 1.0)] == [0, 4_000]
    assert 300 < len(kept[0.1]) < 500
    assert 1_850 < len(kept[0.5]) < 2_150
    assert kept[0.1] < kept[0.5], "a larger share adds streams, and takes none away"
    assert kept[0.1] == {one for one in ids if talk.settings(full_share=0.1).capture_of(one) == "full"}


def test_a_share_changes_nothing_where_all_streams_are_masked() -> None:
    chosen = {talk.settings("masked", full_share=share).capture_of(bytes(16)) for share in (0.0, 0.5, 1.0)}
    assert chosen == {"masked"}
