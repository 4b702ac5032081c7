"""A local llama server: chat and text completions. Its in-band error is an `event: error` without an `error` member.

Facts: the server's documentation of streaming (a role chunk without content, text completions that end with [DONE] alone,
tool chunks without id and index, a failed validation that ends the stream before its first chunk, log probabilities).
"""

from dataclasses import replace

from streamgauge_demo.building import Pace, answered, streamed
from streamgauge_demo.formats import completions
from streamgauge_demo.formats.chat import ChatFormat, chat_usage, whole_chat
from streamgauge_demo.frames import DONE, Frame, block
from streamgauge_demo.scenario import (
    Answer,
    ClientEnd,
    Endpoint,
    ErrorFacts,
    Expected,
    Finale,
    Scenario,
    UsageFacts,
)
from streamgauge_demo.texts import ARGUMENTS, BRIDGE, RIVER, SHORT, fragments, words

# A small model on a small machine (seconds).
_PACE = Pace(first_s=0.8, gap_s=0.06)

# Timeout of a client that does not wait for a cold model (seconds).
PATIENCE_S = 1.0

_HEAD = {"id": "chatcmpl-local", "object": "chat.completion.chunk"}
_CHAT = ChatFormat(head=_HEAD, null_finish=False, role_content={})
_TERSE = ChatFormat(indexed=False, null_finish=False, role_content={})
_RIVER, _BRIDGE, _CALL = words(RIVER), words(BRIDGE), fragments(ARGUMENTS)
_USAGE = UsageFacts(input=12, output=7, total=19)


def _failure(message: str) -> Frame:
    return Frame(block('{"message": "' + message + '", "type": "server_error"}', name="error"))


# The official client parses such an event as a chunk without choices: it raises nothing, and the stream just ends.
_FAILED = Expected(outcome="stream_error", error=ErrorFacts(phase="in_stream", type="server_error"))


def _chat() -> tuple[Scenario, ...]:
    text_frames = [_CHAT.role(), *_CHAT.text(_BRIDGE)]
    tool_frames = [_TERSE.role(), *_TERSE.call("call_weather", "read_gauge", _CALL), _TERSE.finish("tool_calls"), DONE]
    stopped = Expected(outcome="completed", finish="stop", finish_raw="stop")
    return (
        streamed(
            "local/chat-stop", Endpoint.CHAT, "text", [*text_frames, _CHAT.finish("stop"), DONE], stopped, pace=_PACE
        ),
        streamed(
            "local/chat-tools",
            Endpoint.CHAT,
            "a tool call, chunks without id and index",
            tool_frames,
            replace(stopped, finish="tool_calls", finish_raw="tool_calls"),
            pace=_PACE,
        ),
        streamed(
            "local/chat-error",
            Endpoint.CHAT,
            "fails in the middle: event: error",
            [*text_frames[:10], _failure("context overflow")],
            _FAILED,
            pace=_PACE,
        ),
        streamed(
            "local/chat-invalid",
            Endpoint.CHAT,
            "refused in band, before any chunk",
            [_failure("no such sampler")],
            _FAILED,
        ),
        streamed(
            "local/chat-abort",
            Endpoint.CHAT,
            "the client leaves",
            text_frames[:9],
            Expected(outcome="client_abort", client=ClientEnd.LEFT),
            answer=Answer(finale=Finale.COMMENTS),
            leave_after=9,
            pace=_PACE,
        ),
        Scenario(
            model="local/chat-impatient",
            endpoint=Endpoint.CHAT,
            title="the client times out before any response",
            answer=Answer(no_head=True, finale=Finale.SILENT),
            expected=Expected(outcome="client_abort", client=ClientEnd.TIMEOUT, streaming=None, status=None),
            timeout_s=PATIENCE_S,
        ),
        answered(
            "local/chat-whole",
            Endpoint.CHAT,
            "one JSON answer, no stream",
            whole_chat({"id": "chatcmpl-local"}, SHORT, "stop", chat_usage(12, 7)),
            replace(stopped, usage=_USAGE),
            text=SHORT,
            asks={"stream": False},
        ),
    )


def _completions() -> tuple[Scenario, ...]:
    text_frames = completions.text_chunks("cmpl-local", _RIVER)
    measured = completions.text_chunks("cmpl-local", _BRIDGE, logprobs=True)
    good = Expected(outcome="completed")
    body = completions.whole_text("cmpl-local", SHORT, "stop", chat_usage(12, 7))
    return (
        streamed(
            "local/text-stop", Endpoint.COMPLETIONS, "text, no finish reason", [*text_frames, DONE], good, pace=_PACE
        ),
        streamed(
            "local/text-logprobs",
            Endpoint.COMPLETIONS,
            "text with log probabilities",
            [*measured, DONE],
            good,
            pace=_PACE,
            asks={"logprobs": 1},
        ),
        streamed(
            "local/text-error",
            Endpoint.COMPLETIONS,
            "fails in the middle: event: error",
            [*text_frames[:10], _failure("context overflow")],
            _FAILED,
            pace=_PACE,
        ),
        streamed(
            "local/text-truncated",
            Endpoint.COMPLETIONS,
            "ends early, without [DONE]",
            text_frames[:12],
            Expected(outcome="truncated"),
            pace=_PACE,
        ),
        answered(
            "local/text-whole",
            Endpoint.COMPLETIONS,
            "one JSON answer, no stream",
            body,
            Expected(outcome="completed", finish="stop", finish_raw="stop", usage=_USAGE),
            text=SHORT,
            asks={"stream": False},
        ),
    )


SCENARIOS = (*_chat(), *_completions())
