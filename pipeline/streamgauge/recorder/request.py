"""The facts of a request: credential, parameters, and the stream that it continues. Secrets become keyed digests."""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from streamgauge.core.capture.segments import Opening, RequestFacts
from streamgauge.core.dialects import endpoint_of
from streamgauge.core.formats.json_text import parse
from streamgauge.core.http1.body import BodyDecoder
from streamgauge.core.limits import MAX_ATTRIBUTES
from streamgauge.core.resumption import resumption_of
from streamgauge.core.safe_values import is_attribute_name, safe_code, safe_id, whole_number
from streamgauge.recorder.budget import BodyBuffer, Budget
from streamgauge.recorder.protocol import KEY_IN_PROTOCOLS, MAX_REQUEST_BODY, RequestSent, RequestStarted
from streamgauge.settings.declarations import SamplingSettings

# Digests are HMAC-SHA256 cut to this many hex digits: 128 bits collide nowhere, and fit a label and a column.
DIGEST_DIGITS = 32
# A body with a content coding is read up to this size (bytes, coded): it is decoded in one step, which takes at worst
# 0.2 s a MiB and delays all other recording.
MAX_CODED_REQUEST = 4 * 1024 * 1024
# The retry count of a client's library; more digits are no count.
_RETRIES = re.compile(r"[0-9]{1,6}")
_AWS_ATTEMPT = re.compile(r"(?:\A|;) *attempt=([1-9][0-9]{0,5}) *(?:;|\Z)")
# Credential=ID/DATE/REGION/SERVICE/aws4_request, SignedHeaders=..., Signature=...
_AWS_KEY_ID = re.compile(r"(?:\A|[ ,])Credential=([A-Za-z0-9]{16,128})/")
# W3C Trace Context, level 1, 3.2: version, trace-id, parent-id, flags; later versions may add fields after a dash.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
# Gemini and Vertex name the model in the path: .../models/NAME:streamGenerateContent. So does Amazon Bedrock, by the name or
# the ARN of a model or an inference profile: /model/NAME/converse-stream. Triton: /v2/models/NAME/generate_stream. Cloudflare
# Workers AI: /ai/run/@NAME, and /workers-ai/@NAME through its gateway.
_MODEL_IN_PATH = re.compile(
    r"/models/(?P<google>[^/:]+):[A-Za-z]+\Z"
    r"|/model/(?P<bedrock>.+)/(?:converse|invoke)[a-z-]*/?\Z"
    r"|/v2/models/(?P<triton>[^/]+)(?:/versions/[^/]+)?/generate(?:_stream)?/?\Z"
    r"|/(?:ai/run|workers-ai)/(?P<cloudflare>@.+)\Z"
)
# The headers that carry nothing but a key, in the order in which they are checked.
_KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")
# The parameters with a key: Gemini's, and that of Azure's WebSockets
# (https://learn.microsoft.com/azure/ai-foundry/openai/how-to/realtime-audio-websockets).
_KEY_PARAMETERS = ("key", "api-key")


# Each path: the name of the body's member, and the names within it.
_Paths = tuple[tuple[str, tuple[str, ...]], ...]


def _paths(*dotted: str) -> _Paths:
    return tuple((first, tuple(rest)) for first, *rest in (path.split(".") for path in dotted))


# Where a request's body has each fact: paths with dots, in the order in which they are checked; the first value of the
# right type counts. best_of (TGI, legacy completions) is no n: choices beyond n are never sent.
_MODEL = _paths(
    "model",
    "model_id",  # watsonx: https://cloud.ibm.com/apidocs/watsonx-ai#text-generation-stream
)
_N = _paths(
    "n",
    "generationConfig.candidateCount",  # Gemini: https://ai.google.dev/api/generate-content#GenerationConfig
    "generation_config.candidate_count",  # the same, by its .proto names: https://protobuf.dev/programming-guides/json
    "n_cmpl",  # llama.cpp, tools/server/README.md: POST /completion
)
_MAX_TOKENS = _paths(
    "max_tokens",
    "max_completion_tokens",  # OpenAI chat: https://platform.openai.com/docs/api-reference/chat/create
    "response.max_output_tokens",  # OpenAI Realtime: types/realtime/response_create_event.py
    "max_output_tokens",  # OpenAI Responses: https://platform.openai.com/docs/api-reference/responses/create
    "generationConfig.maxOutputTokens",  # Gemini, as above
    "generation_config.max_output_tokens",  # Gemini, as above, and Interactions: https://ai.google.dev/api/interactions-api
    "parameters.max_new_tokens",  # TGI, watsonx: https://huggingface.github.io/text-generation-inference
    "n_predict",  # llama.cpp, as above; its -1 means no limit, and is no number of tokens
    "inferenceConfig.maxTokens",  # Bedrock's Converse: https://docs.aws.amazon.com/bedrock/latest/APIReference
    "inferenceConfig.max_new_tokens",  # Amazon Nova's own API: .../nova/latest/userguide/complete-request-schema.html
    "textGenerationConfig.maxTokenCount",  # Amazon Titan, on Bedrock
    "max_gen_len",  # Meta Llama, on Bedrock
    "options.num_predict",  # Ollama, docs/api.md; -1 means no limit, and is no number of tokens
    "max_tokens_to_sample",  # Anthropic's completions: https://docs.anthropic.com/en/api/complete
)
_STREAM = _paths("stream")
_INCLUDE_USAGE = _paths("stream_options.include_usage")  # OpenAI chat, as above
_SERVICE_TIER = _paths("service_tier", "serviceTier.type")  # the latter: Bedrock
_MEMBERS = dict.fromkeys(
    path[0] for paths in (_MODEL, _N, _MAX_TOKENS, _STREAM, _INCLUDE_USAGE, _SERVICE_TIER) for path in paths
)


class CaptureSettings(msgspec.Struct, frozen=True):
    """The settings of capture.

    `key`: the installation's own, 32 bytes, for digests. `tenants`: tenant by credential id. `full_share`: the part of the
    streams (0 to 1) that `capture` = full applies to; the others are masked. `tenant_source`: the order in which the name of
    the authenticated client (`client`), the credential's entry in `tenants` (`credential`) and the tenant header (`header`)
    are read for the tenant. `previous_key`: the key before a rotation; an entry of `tenants` may have the credential's id
    under it.
    """

    capture: Literal["masked", "full"]
    tap_version: str
    key: bytes
    tenant_header: str | None = None
    tenants: dict[str, str] = {}
    full_share: float = SamplingSettings.full_share
    tenant_source: tuple[str, ...] = SamplingSettings.tenant_source
    previous_key: bytes | None = None

    def capture_of(self, stream: bytes) -> Literal["masked", "full"]:
        """The capture of a stream, by its id (16 bytes): always the same for the same id and share.

        A stream that is captured in full with a share is captured in full with every larger share.
        """
        if self.capture == "full" and int.from_bytes(stream[-_CHOSEN_BYTES:]) >= self.full_share * 256**_CHOSEN_BYTES:
            return "masked"
        return self.capture


# The end of an id is random, or a digest. Its beginning is a time, and would choose streams by their start.
_CHOSEN_BYTES = 4


def opening_of(opened: RequestStarted, settings: CaptureSettings, capture: Literal["masked", "full"]) -> Opening:
    """The facts that are known when the request begins. `capture`: of this stream."""
    # If a name occurs twice, the first one counts. Blanks around a value are not part of it (RFC 9110, 5.5).
    headers = {name: value.strip(" \t") for name, value in reversed(opened.headers)}
    path, _, query = opened.target.partition("?")
    parameters = dict(reversed(parse_qsl(query, keep_blank_values=True))) if query else {}
    credential = _credential(headers, parameters)
    credential_id = None if credential is None else _credential_digest(settings.key, credential)
    trace_id, parent_span_id = _trace_of(headers.get("traceparent", ""))
    resumption = resumption_of(opened.method, path, headers, parameters)
    return Opening(
        tap=opened.tap,
        tap_version=settings.tap_version,
        capture=capture,
        upstream=opened.upstream,
        path=endpoint_of(opened.method, opened.target),
        started_at_ns=opened.wall_ns,
        trace_id=trace_id,
        tenant=_tenant(opened, headers, credential, settings),
        credential_id=credential_id,
        attempt=_attempt(headers),
        resumed_from=resumption.resumed_from,
        resumed_after=resumption.resumed_after,
        dialect=opened.dialect,
        continues=resumption.continues,
        attributes=_attributes(opened.attributes),
        parent_span_id=parent_span_id,
        host=safe_id(opened.host),
    )


def _attributes(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The attributes with valid names and with values, at most MAX_ATTRIBUTES; of a name that occurs twice the first."""
    known: dict[str, str] = {}
    for name, value in pairs:
        safe = safe_id(value.strip(" \t"))
        if is_attribute_name(name) and safe is not None and len(known) < MAX_ATTRIBUTES:
            known.setdefault(name, safe)
    return tuple(known.items())


def digest(key: bytes, secret: bytes) -> str:
    """The keyed digest of a credential or a body: HMAC-SHA256, cut to DIGEST_DIGITS hex digits."""
    return hmac.digest(key, secret, "sha256").hex()[:DIGEST_DIGITS]


@lru_cache(1)
def _keyed(key: bytes) -> hmac.HMAC:
    """The initial state of a digest with this key. The caller must copy it."""
    return hmac.new(key, digestmod=hashlib.sha256)


def _tenant(
    opened: RequestStarted, headers: dict[str, str], credential: str | None, settings: CaptureSettings
) -> str | None:
    """The tenant of a request, of the first source that names one."""
    for source in settings.tenant_source:
        match source:
            case "client":
                named = opened.client_name
            case "credential":
                named = _tenant_of(credential, settings)
            case _:
                named = headers.get((settings.tenant_header or "").lower())
        if tenant := safe_id(named):
            return tenant
    return None


def _tenant_of(credential: str | None, settings: CaptureSettings) -> str | None:
    """The entry of a credential in `tenants`, under the present key or the previous key."""
    if credential is None or not settings.tenants:
        return None
    keys = (settings.key, settings.previous_key)
    named = (settings.tenants.get(_credential_digest(key, credential)) for key in keys if key is not None)
    return next(filter(None, named), None)


def _credential(headers: dict[str, str], parameters: dict[str, str]) -> str | None:
    """The API key of a request; of a signature of AWS (SigV4) the id of the access key."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    bearer = value.strip() if scheme.lower() == "bearer" else ""
    protocols = (offer.strip() for offer in headers.get("sec-websocket-protocol", "").split(","))
    in_protocols = next((offer for offer in protocols if offer.startswith(KEY_IN_PROTOCOLS)), "")
    signed = _AWS_KEY_ID.search(value) if scheme.upper() == "AWS4-HMAC-SHA256" else None
    candidates = (
        bearer,
        signed[1] if signed else "",
        *(headers.get(name, "").strip() for name in _KEY_HEADERS),
        in_protocols.removeprefix(KEY_IN_PROTOCOLS),
        *(parameters.get(name, "") for name in _KEY_PARAMETERS),
    )
    return next((candidate for candidate in candidates if candidate), None)


@lru_cache(256)
def _credential_digest(key: bytes, credential: str) -> str:
    """The digest of a credential. The last 256 are cached: a client sends many requests."""
    return digest(key, _bytes(credential))


def _bytes(text: str) -> bytes:
    """The bytes of a header or parameter: Latin-1, or UTF-8 for text that Latin-1 cannot encode."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _trace_of(traceparent: str) -> tuple[str | None, str | None]:
    """The trace and the caller's span that the header names; None for both if it is not valid."""
    match = _TRACEPARENT.fullmatch(traceparent.strip())
    if match is None or match[1] == "ff" or (match[1] == "00" and match[4]):
        return None, None
    return (match[2], match[3]) if match[2].strip("0") and match[3].strip("0") else (None, None)


def _attempt(headers: Mapping[str, str]) -> int | None:
    """The number of the attempt, from 1: by the official clients' count of retries, or by AWS's own (`attempt=2; max=5`)."""
    retries = headers.get("x-stainless-retry-count", "")
    if _RETRIES.fullmatch(retries):
        return int(retries) + 1
    attempt = _AWS_ATTEMPT.search(headers.get("amz-sdk-request", ""))
    return int(attempt[1]) if attempt else None


# Decodes only the members of a request's body that are needed; it skips all others.
_BODY = msgspec.json.Decoder(msgspec.defstruct("_Body", [(member, object, None) for member in _MEMBERS]))


class RequestReader:
    """Buffers one request's body and returns its facts. A fact that the body does not have in the right form is None."""

    def __init__(self, opened: RequestStarted, key: bytes, budget: Budget) -> None:
        self._method, self._target = opened.method, opened.target
        self._form_model = safe_id(opened.form_model)
        self._coding = ", ".join(value for name, value in opened.headers if name == "content-encoding")
        self._digest = _keyed(key).copy()
        self._gathered = BodyBuffer(budget, MAX_CODED_REQUEST if self._coding else MAX_REQUEST_BODY)
        self._empty = True

    def add(self, data: bytes) -> None:
        """Add bytes of the body."""
        self._empty = self._empty and not data
        self._digest.update(data)
        self._gathered.add(data)

    @property
    def capped(self) -> bool:
        """Whether the body was discarded: it was too long, or the budget had no space."""
        return self._gathered.capped

    def sent_facts(self, sent: RequestSent, connect_ns: int | None, sent_ns: int | None) -> RequestFacts:
        """The facts of a request that was sent whole; stamps are nanoseconds since the request began."""
        raw = self._gathered.take()
        whole = sent.whole and not self._empty
        return self._facts(
            _decoded(raw, self._coding) if whole and raw else {},
            body_bytes=sent.body_bytes,
            digest=self._digest.hexdigest()[:DIGEST_DIGITS] if whole else None,
            connect_ns=connect_ns,
            sent_ns=sent_ns,
            capped=self.capped or (not sent.whole and sent.body_bytes > 0 and self._is_wanted()),
        )

    def _is_wanted(self) -> bool:
        """Whether the tap sends this request's body: only on the paths of LLM endpoints."""
        return endpoint_of(self._method, self._target) is not None

    def release(self) -> None:
        """Discard the body, and return its bytes to the budget."""
        self._gathered.drop()

    def unsent_facts(self) -> RequestFacts | None:
        """The facts of a request that was never sent whole; None if there are none."""
        self.release()
        facts = self._facts({}, capped=self.capped)
        return None if facts == RequestFacts() else facts

    def _facts(self, body: Mapping[str, object], **sizes: Any) -> RequestFacts:
        path, _, query = self._target.partition("?")
        in_path = _MODEL_IN_PATH.search(path)
        model = _first(body, _MODEL, _id)
        stream = _first(body, _STREAM, _bool)
        return RequestFacts(
            model=model
            or self._form_model
            or (safe_id(unquote(in_path[in_path.lastindex or 0])) if in_path else _model_in_query(query)),
            stream=_stream_in_query(query) if stream is None else stream,
            n=_first(body, _N, whole_number),
            max_tokens=_first(body, _MAX_TOKENS, whole_number),
            include_usage=_first(body, _INCLUDE_USAGE, _bool),
            service_tier=_first(body, _SERVICE_TIER, _code),
            **sizes,
        )


def _decoded(raw: bytes, coding: str) -> Mapping[str, object]:
    """The body's members; none if it is not a JSON object, or its coding cannot be decoded.

    A body with several codings is not decoded: no client compresses twice, and each coding could multiply the work of the
    next.
    """
    text = raw
    if "," in coding:
        return {}
    if coding:
        decoder = BodyDecoder(coding=coding, max_decoded=MAX_REQUEST_BODY)
        text = decoder.feed(raw).decoded
        if not decoder.finish():
            return {}
    try:
        known = _BODY.decode(text)
        return {member: value for member in _MEMBERS if (value := getattr(known, member)) is not None}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        members = parse(text)
    return members if isinstance(members, dict) else {}


_Fact = TypeVar("_Fact")


def _first(body: Mapping[str, object], paths: _Paths, read: Callable[[object], _Fact | None]) -> _Fact | None:
    """The first fact of the right type, in the order of the paths; None if there is none."""
    for first, rest in paths:
        if first not in body:
            continue
        value = body[first]
        for name in rest:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None and (fact := read(value)) is not None:
            return fact
    return None


def _bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _stream_in_query(query: str) -> bool | None:
    """`stream` of the query, which requests for a stored response have."""
    return {"true": True, "false": False}.get(dict(parse_qsl(query)).get("stream", "")) if query else None


def _model_in_query(query: str) -> str | None:
    """`model` of the query, where OpenAI's Realtime API has it (resources/realtime/realtime.py)."""
    return safe_id(dict(parse_qsl(query)).get("model")) if query else None


def _id(value: object) -> str | None:
    return safe_id(value) if isinstance(value, str) else None


def _code(value: object) -> str | None:
    return safe_code(value) if isinstance(value, str) else None
