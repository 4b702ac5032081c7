"""What a request tells: who asked, for what, as the part of which stream. Secrets go in, only keyed digests come out."""

import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Literal
from urllib.parse import parse_qsl, unquote

import msgspec

from streamgauge.core.body import BodyDecoder
from streamgauge.core.dialects import endpoint_of
from streamgauge.core.json_text import parse
from streamgauge.core.labels import label_code, label_id, whole_number
from streamgauge.core.segments import Opening, RequestFacts
from streamgauge.taps.messages import MAX_REQUEST_BODY, Opened, Sent
from streamgauge.taps.recording.budget import Budget, Gathered

# Digests are HMAC-SHA256 cut to this many hex digits: 128 bits collide nowhere, and fit a label and a column.
DIGEST_DIGITS = 32
# Retries that a client's library counts; more digits are no count.
_RETRIES = re.compile(r"[0-9]{1,6}")
_POSITION = re.compile(r"[0-9]{1,15}")
# W3C Trace Context, level 1, 3.2: version, trace-id, parent-id, flags; later versions may add fields after a dash.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
# Gemini and Vertex name the model in the path: .../models/NAME:streamGenerateContent.
_MODEL_IN_PATH = re.compile(r"/models/([^/:]+):[A-Za-z]+\Z")
# The headers that carry nothing but a key, in the order in which they are looked at.
_KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")


class CaptureSettings(msgspec.Struct, frozen=True):
    """How a recorder captures.

    `key`: the installation's own, 32 bytes, for digests. `tenants`: tenant by credential id, where no header says it.
    """

    capture: Literal["masked", "full"]
    tap_version: str
    key: bytes
    tenant_header: str | None = None
    tenants: dict[str, str] = {}


def opening_of(opened: Opened, settings: CaptureSettings) -> Opening:
    """What is known when the request begins."""
    headers = dict(reversed(opened.headers))  # of several the first counts
    path, _, query = opened.target.partition("?")
    parameters = dict(reversed(parse_qsl(query, keep_blank_values=True)))
    credential_id = _credential_id(headers, parameters, settings.key)
    tenant = label_id(headers.get((settings.tenant_header or "").lower()))
    resumed_from, resumed_after = _resumed(opened.method, path, headers, parameters)
    return Opening(
        tap=opened.tap,
        tap_version=settings.tap_version,
        capture=settings.capture,
        upstream=opened.upstream,
        path=endpoint_of(opened.method, opened.target),
        started_at_ns=opened.wall_ns,
        trace_id=_trace_id(headers.get("traceparent", "")),
        tenant=tenant or label_id(settings.tenants.get(credential_id or "")),
        credential_id=credential_id,
        attempt=_attempt(headers.get("x-stainless-retry-count", "")),
        resumed_from=resumed_from,
        resumed_after=resumed_after,
        dialect=opened.dialect,
    )


def digest(key: bytes, secret: bytes) -> str:
    """The keyed digest that stands for a credential or a body."""
    return hmac.new(key, secret, hashlib.sha256).hexdigest()[:DIGEST_DIGITS]


def _credential_id(headers: dict[str, str], parameters: dict[str, str], key: bytes) -> str | None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    bearer = value.strip() if scheme.lower() == "bearer" else ""
    candidates = (bearer, *(headers.get(name, "").strip() for name in _KEY_HEADERS), parameters.get("key", ""))
    credential = next((one for one in candidates if one), None)
    return None if credential is None else digest(key, _bytes(credential))


def _bytes(text: str) -> bytes:
    """A header's text as its bytes; a parameter's that has none in Latin-1 as UTF-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _trace_id(traceparent: str) -> str | None:
    found = _TRACEPARENT.fullmatch(traceparent.strip())
    if found is None or found[1] == "ff" or (found[1] == "00" and found[4]):
        return None
    return found[2] if found[2].strip("0") and found[3].strip("0") else None


def _attempt(retries: str) -> int | None:
    return int(retries) + 1 if _RETRIES.fullmatch(retries) else None


def _resumed(
    method: str, path: str, headers: dict[str, str], parameters: dict[str, str]
) -> tuple[str | None, int | None]:
    """From what a leg continues: an event id, or a response's id and the sequence number after which it goes on."""
    event_id = label_id(headers.get("last-event-id"))
    after = parameters.get("starting_after", "")
    if endpoint_of(method, path) != "/responses/{id}" or not _POSITION.fullmatch(after):
        return event_id, None
    return event_id or label_id(unquote(path.rsplit("/", 1)[1])), int(after)


class _Body(msgspec.Struct):
    """The members of a request's body that are looked at; all others are skipped unread."""

    model: object = None
    stream: object = None
    n: object = None
    max_tokens: object = None
    max_completion_tokens: object = None
    max_output_tokens: object = None
    generationConfig: object = None  # noqa: N815 - Gemini's name
    stream_options: object = None
    service_tier: object = None


_BODY = msgspec.json.Decoder(_Body)
_NO_BODY = _Body()


class RequestReader:
    """Gathers one request's body and tells its facts. Whatever is odd about a body makes its facts null."""

    def __init__(self, opened: Opened, key: bytes, budget: Budget) -> None:
        self._target = opened.target
        self._coding = ", ".join(value for name, value in opened.headers if name == "content-encoding")
        self._digest = hmac.new(key, digestmod=hashlib.sha256)
        self._gathered = Gathered(budget, MAX_REQUEST_BODY)
        self._empty = True

    def add(self, data: bytes) -> None:
        """Bytes of the body."""
        self._empty = self._empty and not data
        self._digest.update(data)
        self._gathered.add(data)

    @property
    def capped(self) -> bool:
        """Whether the body was too long to look into."""
        return self._gathered.capped

    def sent(self, sent: Sent, connect_ns: int | None, sent_ns: int | None) -> RequestFacts:
        """The facts, when the whole request has gone out; stamps are nanoseconds since the request began."""
        raw = self._gathered.take()
        whole = sent.whole and not self._empty
        return self._facts(
            _decoded(raw, self._coding) if whole and raw else _NO_BODY,
            body_bytes=sent.body_bytes,
            digest=self._digest.hexdigest()[:DIGEST_DIGITS] if whole else None,
            connect_ns=connect_ns,
            sent_ns=sent_ns,
        )

    def let_go(self) -> None:
        """Give back what is held of the budget."""
        self._gathered.drop()

    def unsent(self) -> RequestFacts | None:
        """What is known of a request that never went out whole; None if nothing."""
        self.let_go()
        facts = self._facts(_NO_BODY)
        return None if facts == RequestFacts() else facts

    def _facts(self, body: _Body, **sizes: int | str | None) -> RequestFacts:
        path, _, query = self._target.partition("?")
        in_path = _MODEL_IN_PATH.search(path)
        options, config = body.stream_options, body.generationConfig
        longest = (
            body.max_tokens,
            body.max_completion_tokens,
            body.max_output_tokens,
            _member(config, "maxOutputTokens"),
        )
        return msgspec.structs.replace(
            RequestFacts(
                model=_text(body.model, label_id) or (label_id(unquote(in_path[1])) if in_path else None),
                stream=_flag(body.stream, query),
                n=whole_number(body.n),
                max_tokens=next((known for one in longest if (known := whole_number(one)) is not None), None),
                include_usage=_bool(_member(options, "include_usage")),
                service_tier=_text(body.service_tier, label_code),
            ),
            **sizes,
        )


def _decoded(raw: bytes, coding: str) -> _Body:
    """The body's members; none for a body that is not a JSON object, or in a coding that cannot be undone."""
    decoder = BodyDecoder(coding=coding, max_decoded=MAX_REQUEST_BODY)
    text = decoder.feed(raw).decoded
    if not decoder.finish():
        return _NO_BODY
    try:
        return _BODY.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        members = parse(text)
    if not isinstance(members, dict):
        return _NO_BODY
    return _Body(**{name: members.get(name) for name in _Body.__struct_fields__})


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _flag(value: object, query: str) -> bool | None:
    """`stream`: the body's, else that of the query (a stored response that is read again)."""
    given = dict(parse_qsl(query)).get("stream")
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(given or "")


def _text(value: object, label: Callable[[object], str | None]) -> str | None:
    return label(value) if isinstance(value, str) else None
