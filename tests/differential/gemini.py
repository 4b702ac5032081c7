"""The Google client: the chunks of `models.generate_content_stream`, put together by what its types say."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import httpx2
from google import genai
from google.genai import errors, types

from tests.differential.answer import UNREADABLE, Answer, Call, Ended, Said, Used
from tests.vectors.load import Vector

BROKEN = (httpx.TransportError, httpx2.TransportError)

# Nothing here is encrypted; without one of its own the client loads every certificate authority three times.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@contextmanager
def client(url: str) -> Iterator[genai.Client]:
    """A client whose world ends at `url`."""
    with httpx.Client(trust_env=False, verify=False) as world:
        options = types.HttpOptions(
            base_url=url,
            httpx_client=world,
            client_args={"verify": _NO_TLS},
            async_client_args={"verify": _NO_TLS, "ssl": _NO_TLS},
            retry_options=types.HttpRetryOptions(attempts=1),
        )
        asking = genai.Client(api_key="test", vertexai=False, http_options=options)
        yield asking
        asking.close()


def ended(error: Exception) -> Ended:
    """How the client says that a stream ended."""
    if isinstance(error, BROKEN):
        return "broken"
    return "error" if isinstance(error, errors.APIError) else "unreadable"


class Chunks:
    """The chunks as the client hands them out. What it says of thoughts lies outside of candidates."""

    name = "google-genai generate_content_stream"
    dialects = ("gemini",)
    blind = frozenset({"refusal"})

    def read(self, url: str, vector: Vector) -> Answer:
        answer = Answer()
        try:
            with client(url) as asking:
                for chunk in asking.models.generate_content_stream(model="m", contents="q"):
                    answer.usage = _used(chunk.usage_metadata) or answer.usage
                    _block(answer, chunk.prompt_feedback)
                    for position, candidate in enumerate(chunk.candidates or ()):
                        _add(answer.choice(position if candidate.index is None else candidate.index), candidate)
        except (errors.APIError, *BROKEN, *UNREADABLE) as error:
            answer.end(ended(error), error)
        return answer


def _block(answer: Answer, feedback: types.GenerateContentResponsePromptFeedback | None) -> None:
    if feedback is not None and feedback.block_reason is not None:
        answer.choice(0).finish = feedback.block_reason.value


def _add(said: Said, candidate: types.Candidate) -> None:
    if candidate.finish_reason is not None:
        said.finish = candidate.finish_reason.value
    for part in (candidate.content and candidate.content.parts) or ():
        if part.thought:
            said.reasoning += part.text or ""
        else:
            said.text += part.text or ""
        if part.tool_call is not None:
            kind = part.tool_call.tool_type
            said.calls.append(Call(kind.value if kind else None, part.tool_call.args or {}))
        if part.function_call is not None:
            _call(said, part.function_call)


def _call(said: Said, call: types.FunctionCall) -> None:
    """A call that names its function begins; one that does not goes on with the last one."""
    if call.name:
        said.calls.append(Call(call.name, call.args or {}))
    if not call.partial_args or not said.calls:
        return
    last = said.calls[-1]
    given = "" if last.arguments == {} else last.arguments
    last.arguments = f"{given}{''.join(_fragment(part) for part in call.partial_args)}"


def _fragment(part: types.PartialArg) -> str:
    """The value of a fragment as text: strings as they are, all else as JSON has it."""
    if part.string_value is not None:
        return part.string_value
    if part.bool_value is not None:
        return str(part.bool_value).lower()
    return "null" if part.number_value is None else f"{part.number_value:g}"


def _used(usage: Any) -> Used | None:
    if usage is None:
        return None
    prompt, tools = usage.prompt_token_count, usage.tool_use_prompt_token_count
    candidates, thoughts = usage.candidates_token_count, usage.thoughts_token_count
    return Used(
        input=None if prompt is None else prompt + (tools or 0),
        output=None if candidates is None and thoughts is None else (candidates or 0) + (thoughts or 0),
        total=usage.total_token_count,
        cached=usage.cached_content_token_count,
        reasoning_tokens=thoughts,
    )
