"""All known dialects, and how the dialect of a stream is detected: the path gives a hint, the events decide.

contract.py   what a dialect is (`Dialect`), and what it calls (`Sink`)
deltas.py     declarations of plain deltas; typed_deltas.py: their types

A module for each format:

openai_chat.py openai_completions.py openai_responses.py openai_realtime.py   OpenAI's formats; openai_usage.py: their usage
openai_media.py   OpenAI's transcription, speech and images
openai_chat_tables.py   how servers of OpenAI chat differ
anthropic_messages.py anthropic_completions.py   Anthropic's
gemini.py gemini_interactions.py   Google's
cohere_v2.py watsonx.py tgi_native.py llama_cpp_native.py replicate.py ollama.py sourcegraph.py   formats of one server each
dashscope.py workers_ai.py triton.py   further formats of one server each
cohere_v1.py bedrock_converse.py bedrock_text.py   formats of Cohere's first API, and of Amazon Bedrock
"""

import re

from streamgauge.core.dialects.anthropic_completions import AnthropicCompletions
from streamgauge.core.dialects.anthropic_messages import AnthropicMessages
from streamgauge.core.dialects.bedrock_converse import BedrockConverse
from streamgauge.core.dialects.bedrock_text import BedrockText
from streamgauge.core.dialects.cohere_v1 import CohereV1
from streamgauge.core.dialects.cohere_v2 import CohereV2
from streamgauge.core.dialects.contract import (
    DONE,
    LIVE_MEMBERS,
    Data,
    Dialect,
    ErrorFacts,
    Sink,
    Source,
    error_in,
    is_realtime,
    looks_whole,
)
from streamgauge.core.dialects.dashscope import DashScope
from streamgauge.core.dialects.gemini import Gemini
from streamgauge.core.dialects.gemini_interactions import GeminiInteractions
from streamgauge.core.dialects.llama_cpp_native import LlamaCppNative
from streamgauge.core.dialects.ollama import Ollama
from streamgauge.core.dialects.openai_chat import OpenAIChat
from streamgauge.core.dialects.openai_completions import OpenAICompletions
from streamgauge.core.dialects.openai_media import OpenAIImages, OpenAISpeech, OpenAITranscription
from streamgauge.core.dialects.openai_realtime import OpenAIRealtime
from streamgauge.core.dialects.openai_responses import OpenAIResponses
from streamgauge.core.dialects.replicate import Replicate
from streamgauge.core.dialects.sourcegraph import Sourcegraph
from streamgauge.core.dialects.tgi_native import TGINative
from streamgauge.core.dialects.triton import Triton
from streamgauge.core.dialects.watsonx import Watsonx
from streamgauge.core.dialects.workers_ai import WorkersAI
from streamgauge.core.formats.sse import Event
from streamgauge.core.safe_values import safe_code, whole_number

# To add a dialect, add its module and a line here. The first dialect that recognises an event reads it.
DIALECTS: tuple[Dialect, ...] = (
    OpenAIChat(),
    OpenAICompletions(),
    OpenAIResponses(),
    AnthropicMessages(),
    Gemini(),
    GeminiInteractions(),
    AnthropicCompletions(),
    CohereV2(),
    Watsonx(),
    TGINative(),
    LlamaCppNative(),
    Replicate(),
    Ollama(),
    BedrockConverse(),
    BedrockText(),
    CohereV1(),
    Sourcegraph(),
    DashScope(),
    WorkersAI(),
    Triton(),
    OpenAIRealtime(),
    OpenAITranscription(),
    OpenAISpeech(),
    OpenAIImages(),
)

BY_NAME: dict[str, Dialect] = {dialect.name: dialect for dialect in DIALECTS}
_BY_ENDPOINT: dict[str, Dialect] = {path: dialect for dialect in DIALECTS for path in dialect.paths}
_BY_TEXT_EVENT: dict[str, Dialect] = {name: dialect for dialect in DIALECTS for name in dialect.text_events}

# The dialect name of a server-sent event stream that does not come from an LLM.
OTHER = "other"

# Event streams on the same connections that do not come from an LLM: a member, and the beginning of its value.
_NOT_LLM: tuple[tuple[str, str], ...] = (
    ("jsonrpc", ""),  # Model Context Protocol, streamable HTTP (JSON-RPC 2.0)
    ("object", "thread"),  # OpenAI assistants: thread, thread.run, thread.message.delta
)

# Members of messages of Gemini Live.
_LIVE = frozenset(LIVE_MEMBERS)

# Endpoints whose every response gets a record: the end of the path, its template, and the methods. GET is listed where
# a client can resume a stream: a stored response, and a stream that continues by Last-Event-ID. WEBSOCKET is the handshake
# of a WebSocket, each of whose responses gets a record.
_ENDPOINTS: tuple[tuple[re.Pattern[str], str, frozenset[str]], ...] = tuple(
    (re.compile(pattern + r"\Z"), template, frozenset(methods.split()))
    for pattern, template, methods in (
        (r"/chat/completions", "/chat/completions", "POST"),
        (r"/completions", "/completions", "POST"),
        (r"/completion", "/completion", "POST"),
        (r"/responses", "/responses", "POST WEBSOCKET"),
        (r"/realtime", "/realtime", "WEBSOCKET"),
        (r"/responses/[^/]+", "/responses/{id}", "GET"),
        (r"/messages", "/messages", "POST GET"),
        (r":generateContent", ":generateContent", "POST"),
        (r":streamGenerateContent", ":streamGenerateContent", "POST"),
        (r":rawPredict", ":rawPredict", "POST"),
        (r":streamRawPredict", ":streamRawPredict", "POST"),
        (r"/v2/chat", "/v2/chat", "POST"),
        (r"/interactions", "/interactions", "POST"),
        (r"/v2/models/[^/]+(?:/versions/[^/]+)?/generate_stream", "/v2/models/{model}/generate_stream", "POST"),
        (r"/v2/models/[^/]+(?:/versions/[^/]+)?/generate", "/v2/models/{model}/generate", "POST"),
        *[
            (rf"/services/aigc/{task}/generation", f"/services/aigc/{task}/generation", "POST")
            for task in ("text-generation", "multimodal-generation")
        ],
        (r"/generate_stream", "/generate_stream", "POST"),
        (r"/text/chat_stream", "/text/chat_stream", "POST"),
        (r"/api/chat", "/api/chat", "POST"),
        (r"/api/generate", "/api/generate", "POST"),
        (r"/v1/chat", "/v1/chat", "POST"),
        (r"/\.api/completions/stream", "/.api/completions/stream", "POST"),
        (r"/\.api/completions/code", "/.api/completions/code", "POST"),
        *[
            (rf"/model/.+/{operation}", f"/model/{{id}}/{operation}", "POST")
            for operation in ("converse-stream", "converse", "invoke-with-response-stream", "invoke")
        ],
    )
)


# The method in whose place the handshake of a WebSocket has this word: it is a GET, which may mean something else.
WEBSOCKET = "WEBSOCKET"


def endpoint_of(method: str, target: str) -> str | None:
    """The template of the LLM endpoint that a request's method and target name; None if they name none.

    A path with a slash at its end is the same endpoint: many servers accept both.
    """
    path = target.partition("?")[0].removesuffix("/")
    for pattern, template, methods in _ENDPOINTS:
        if method in methods and pattern.search(path):
            return template
    return None


# Endpoints whose response gets a record only if it is a stream of events, of which only the request names the model: OpenAI's
# speech and images, whose requests are JSON, and its transcriptions and edits of images, whose requests are forms with files.
_NAMES_MODEL = re.compile(r"/(?:audio/speech|images/generations)/?\Z")
_NAMES_MODEL_IN_FORM = re.compile(r"/(?:audio/(?:transcriptions|translations)|images/(?:edits|variations))/?\Z")
# A field of a form (RFC 7578, 4.2), bounded: what is searched may be the content of a file.
_MODEL_FIELD = re.compile(
    rb"(?i)\ncontent-disposition:[^\r\n]{0,80}; *name=\"?model\"? *\r\n"
    rb"(?:[^\r\n]{1,80}\r\n){0,4}\r\n([^\r\n]{1,200})\r\n"
)


def names_model_alone(method: str, target: str) -> bool:
    """Whether a request is to no LLM endpoint, but its body has the model of a stream that may be its response."""
    return method == "POST" and _NAMES_MODEL.search(target.partition("?")[0]) is not None


def names_model_in_form(method: str, target: str) -> bool:
    """As `names_model_alone`, if the request's body is a form."""
    return method == "POST" and _NAMES_MODEL_IN_FORM.search(target.partition("?")[0]) is not None


def model_in_form(begin: bytes) -> str | None:
    """The field `model` of a form (multipart/form-data), of which `begin` are the first bytes."""
    found = _MODEL_FIELD.search(begin)
    return None if found is None else found[1].decode("utf-8", "replace").strip()


def dialect_of_endpoint(endpoint: str | None) -> Dialect | None:
    """The dialect that an endpoint template hints at; None if it hints at none."""
    return None if endpoint is None else _BY_ENDPOINT.get(endpoint)


def dialect_of_error(data: object) -> str:
    """The name of the dialect that an error hints at, for a stream that shows nothing else.

    The default is OpenAI chat, which most servers implement.
    """
    error = data[0] if isinstance(data, list) and data else data
    inner = error.get("error") if isinstance(error, dict) else None
    if not isinstance(error, dict) or not isinstance(inner, dict):
        return OpenAIChat.name
    if error.get("type") == "error":
        return AnthropicMessages.name
    status = inner.get("status")
    # google.rpc.Status holds a number and the name of its code (https://ai.google.dev/gemini-api/docs/troubleshooting)
    google = isinstance(status, str) and status.isupper() and whole_number(inner.get("code")) is not None
    return Gemini.name if google else OpenAIChat.name


def recognised(event: str, data: object, known: Dialect | None = None) -> Dialect | None:
    """The dialect that an event shows by its content; None if no dialect recognises it.

    `known`: the dialect that the stream has shown so far; it is tried first.
    """
    if not data or not isinstance(data, dict):
        return None
    if known is not None and known.recognises(event, data):
        return known
    return next((dialect for dialect in DIALECTS if dialect.recognises(event, data)), None)


def is_foreign(data: object) -> bool:
    """Whether an event shows that its stream does not come from an LLM, or is one of a session of a realtime API."""
    if not isinstance(data, dict):
        return False
    return (
        not _LIVE.isdisjoint(data)
        or is_realtime(data)
        or any(
            isinstance(value := data.get(name), str) and (safe_code(value) or "").startswith(start)
            for name, start in _NOT_LLM
        )
    )


def dialect_of_text_event(event: str, shown: Dialect | None) -> Dialect | None:
    """The dialect of an event whose data is generated text, not JSON; None for all other events.

    `shown`: the dialect that the stream has shown so far.
    """
    dialect = _BY_TEXT_EVENT.get(event)
    return dialect if shown is None or shown is dialect else None


def is_whole(event: Event, shown: Dialect | None) -> bool:
    """Whether an event that was pending when the bytes ended lacks only its blank line.

    False for an event of plain text, because nothing marks the end of the text.
    """
    is_text = event.data is not None and dialect_of_text_event(event.name, shown) is not None
    return not is_text and looks_whole(event)


def recognised_body(data: object) -> Dialect | None:
    """The dialect that a whole response body shows by its content; None if no dialect recognises it."""
    if not isinstance(data, dict):
        return None
    return next((dialect for dialect in DIALECTS if dialect.recognises_body(data)), None)


__all__ = [
    "BY_NAME",
    "DIALECTS",
    "DONE",
    "OTHER",
    "WEBSOCKET",
    "Data",
    "Dialect",
    "ErrorFacts",
    "Sink",
    "Source",
    "dialect_of_endpoint",
    "dialect_of_error",
    "dialect_of_text_event",
    "endpoint_of",
    "error_in",
    "is_foreign",
    "is_whole",
    "model_in_form",
    "names_model_alone",
    "names_model_in_form",
    "recognised",
    "recognised_body",
]
