"""The Google client: the chunks of `models.generate_content_stream`, joined according to its types."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import httpx2
from google import genai
from google.genai import errors, types

from tests.differential.reading import Call, ErrorTypes, Output, Reading, TokenUsage

BROKEN: ErrorTypes = (httpx.TransportError, httpx2.TransportError)

# No connection here uses TLS. Without a context given, the client loads all certificate authorities three times.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@contextmanager
def make_client(url: str) -> Iterator[genai.Client]:
    """A client that sends to `url` only, without retries."""
    with httpx.Client(trust_env=False, verify=False) as http_client:
        options = types.HttpOptions(
            base_url=url,
            httpx_client=http_client,
            client_args={"verify": _NO_TLS},
            async_client_args={"verify": _NO_TLS, "ssl": _NO_TLS},
            retry_options=types.HttpRetryOptions(attempts=1),
        )
        client = genai.Client(api_key="test", vertexai=False, http_options=options)
        yield client
        client.close()


class Chunks:
    """The chunks as the client returns them. Its output count excludes thoughts."""

    name = "google-genai generate_content_stream"
    dialect = "gemini"
    unsupported = frozenset({"refusal"})
    broken: ErrorTypes = BROKEN
    reported: ErrorTypes = (errors.APIError,)
    unreadable: ErrorTypes = ()

    def read(self, url: str, reading: Reading) -> None:
        with make_client(url) as client:
            for chunk in client.models.generate_content_stream(model="m", contents="q"):
                reading.usage = _usage_of(chunk.usage_metadata) or reading.usage
                _add_block_reason(reading, chunk.prompt_feedback)
                for position, candidate in enumerate(chunk.candidates or ()):
                    _add(reading.choice(position if candidate.index is None else candidate.index), candidate)


def _add_block_reason(reading: Reading, feedback: types.GenerateContentResponsePromptFeedback | None) -> None:
    if feedback is not None and feedback.block_reason is not None:
        reading.choice(0).finish = feedback.block_reason.value


def _add(output: Output, candidate: types.Candidate) -> None:
    if candidate.finish_reason is not None:
        output.finish = candidate.finish_reason.value
    for part in (candidate.content and candidate.content.parts) or ():
        if part.thought:
            output.reasoning += part.text or ""
        else:
            output.text += part.text or ""
        if part.tool_call is not None:
            kind = part.tool_call.tool_type
            output.calls.append(Call(kind.value if kind else None, part.tool_call.args or {}))
        if part.function_call is not None:
            _add_call(output, part.function_call)


def _add_call(output: Output, call: types.FunctionCall) -> None:
    """Begins a call if the function is named, otherwise continues the last call."""
    if call.name:
        output.calls.append(Call(call.name, call.args or {}))
    if not call.partial_args or not output.calls:
        return
    last = output.calls[-1]
    before = "" if last.arguments == {} else last.arguments
    last.arguments = f"{before}{''.join(_fragment(part) for part in call.partial_args)}"


def _fragment(part: types.PartialArg) -> str:
    """The value of a fragment as text: strings as they are, other values as JSON."""
    if part.string_value is not None:
        return part.string_value
    if part.bool_value is not None:
        return str(part.bool_value).lower()
    return "null" if part.number_value is None else f"{part.number_value:g}"


def _usage_of(usage: Any) -> TokenUsage | None:
    if usage is None:
        return None
    prompt, tools = usage.prompt_token_count, usage.tool_use_prompt_token_count
    candidates, thoughts = usage.candidates_token_count, usage.thoughts_token_count
    return TokenUsage(
        input=None if prompt is None else prompt + (tools or 0),
        output=None if candidates is None and thoughts is None else (candidates or 0) + (thoughts or 0),
        total=usage.total_token_count,
        cached=usage.cached_content_token_count,
        reasoning_tokens=thoughts,
    )
