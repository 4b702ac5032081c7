"""NanoGPT: chat completions, messages and responses. A stream that breaks ends early, without a terminal.

Facts: the provider's documentation of streaming (named events on messages only, [DONE] also after responses, usage in chat
only on request, reasoning as `reasoning`, line ends LF or CRLF, data on several lines).
"""

from streamgauge_demo.building import answered, stalled, streamed
from streamgauge_demo.formats import messages, responses
from streamgauge_demo.formats.chat import CREATED, ChatFormat, chat_usage, whole_chat
from streamgauge_demo.frames import DONE, on_two_lines, with_crlf
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
from streamgauge_demo.texts import ARGUMENTS, BRIDGE, RIVER, SHORT, THOUGHT, fragments, words

GPT = "openai/gpt-5.2"
CLAUDE = "claude-sonnet-4-5-20250929"

_HEAD = {"id": "chatcmpl_nano", "object": "chat.completion.chunk", "created": CREATED, "model": GPT}
_CHAT = ChatFormat(head=_HEAD)

# Longer than 5 s, the default gap that counts as a stall (seconds).
STALL_S = 5.5

_RIVER, _BRIDGE, _THOUGHT, _CALL = words(RIVER), words(BRIDGE), words(THOUGHT), fragments(ARGUMENTS)


def _chat() -> tuple[Scenario, ...]:
    text_frames = [_CHAT.role(), *_CHAT.text(_RIVER)]
    stopped = [*text_frames, _CHAT.finish("stop"), DONE]
    good = Expected(outcome="completed", finish="stop", finish_raw="stop", response_model=GPT)
    reported_usage = chat_usage(41, len(_THOUGHT) + len(_BRIDGE), cached=16, reasoning=len(_THOUGHT))
    usage = UsageFacts(
        input=41,
        output=len(_THOUGHT) + len(_BRIDGE),
        total=41 + len(_THOUGHT) + len(_BRIDGE),
        cached=16,
        reasoning=len(_THOUGHT),
    )
    reasoning_frames = [
        _CHAT.role(),
        *_CHAT.reasoning(_THOUGHT),
        *_CHAT.text(_BRIDGE),
        _CHAT.finish("stop"),
        _CHAT.usage(reported_usage),
        DONE,
    ]
    tool_frames = [*_CHAT.call("call_1", "read_gauge", _CALL, opening=True), _CHAT.finish("tool_calls"), DONE]
    broken = Expected(outcome="truncated", response_model=GPT)
    asks_usage = {"stream_options": {"include_usage": True}}
    return (
        streamed("nanogpt/chat-stop", Endpoint.CHAT, "text, usage not asked for", stopped, good),
        streamed(
            "nanogpt/chat-reasoning",
            Endpoint.CHAT,
            "reasoning, then text, then usage on a chunk of its own",
            reasoning_frames,
            Expected(outcome="completed", finish="stop", finish_raw="stop", response_model=GPT, usage=usage),
            asks=asks_usage,
        ),
        streamed(
            "nanogpt/chat-tools",
            Endpoint.CHAT,
            "a tool call",
            tool_frames,
            Expected(outcome="completed", finish="tool_calls", finish_raw="tool_calls", response_model=GPT),
        ),
        streamed(
            "nanogpt/chat-crlf",
            Endpoint.CHAT,
            "CRLF line ends, JSON on two data lines",
            with_crlf([stopped[0], *(on_two_lines(frame) for frame in stopped[1:])]),
            good,
        ),
        _two_choices(),
        streamed(
            "nanogpt/chat-stall",
            Endpoint.CHAT,
            "stalls, then goes on",
            stopped,
            good,
            shape=lambda pieces: stalled(pieces, 12, STALL_S),
        ),
        streamed(
            "nanogpt/chat-truncated", Endpoint.CHAT, "ends early, without finish or [DONE]", text_frames[:20], broken
        ),
        streamed(
            "nanogpt/chat-abort",
            Endpoint.CHAT,
            "the client leaves",
            text_frames[:18],
            Expected(outcome="client_abort", client=ClientEnd.LEFT, response_model=GPT),
            answer=Answer(finale=Finale.COMMENTS),
            leave_after=18,
        ),
        answered(
            "nanogpt/chat-limited",
            Endpoint.CHAT,
            "429 before the stream",
            {
                "error": {
                    "message": "Too many requests.",
                    "type": "rate_limit_error",
                    "param": None,
                    "code": "rate_limited",
                }
            },
            Expected(
                outcome="http_error",
                client=ClientEnd.STATUS,
                status=429,
                error=ErrorFacts(phase="before_stream", type="rate_limit_error", code="rate_limited", status=429),
            ),
            headers={"retry-after": "7"},
        ),
        _whole_chat(),
    )


def _two_choices() -> Scenario:
    """With n = 2: each chunk holds one choice, interleaved, each with its own role and finish."""
    frames = [_CHAT.role(0), _CHAT.role(1)]
    for first, second in zip(_CHAT.text(_BRIDGE, 0), _CHAT.text(_BRIDGE, 1), strict=True):
        frames += [first, second]
    frames += [_CHAT.finish("stop", 0), _CHAT.finish("length", 1), DONE]
    good = Expected(outcome="completed", finish="stop", finish_raw="stop", response_model=GPT)
    return streamed("nanogpt/chat-two", Endpoint.CHAT, "two choices, interleaved", frames, good, asks={"n": 2})


def _whole_chat() -> Scenario:
    head = {"id": "chatcmpl_nano", "created": CREATED, "model": GPT}
    body = whole_chat(head, SHORT, "stop", chat_usage(12, 7))
    usage = UsageFacts(input=12, output=7, total=19)
    good = Expected(outcome="completed", finish="stop", finish_raw="stop", response_model=GPT, usage=usage)
    title = "one JSON answer, no stream"
    return answered("nanogpt/chat-whole", Endpoint.CHAT, title, body, good, text=SHORT, asks={"stream": False})


def _messages() -> tuple[Scenario, ...]:
    start = messages.start("msg_nano", CLAUDE, {"input_tokens": 25, "output_tokens": 1})
    text_frames = [start, *messages.text_block(0, _RIVER)]
    ended = [messages.finish("end_turn", {"input_tokens": 25, "output_tokens": len(_RIVER)}), messages.STOP]
    usage = UsageFacts(input=25, output=len(_RIVER), total=25 + len(_RIVER))
    good = Expected(outcome="completed", finish="stop", finish_raw="end_turn", response_model=CLAUDE, usage=usage)
    placeholder = UsageFacts(input=25, source="partial")
    return (
        streamed("nanogpt/messages-stop", Endpoint.MESSAGES, "text", [*text_frames, *ended], good),
        streamed(
            "nanogpt/messages-gzip",
            Endpoint.MESSAGES,
            "the same, compressed, flushed after each event",
            [*text_frames, *ended],
            good,
            answer=Answer(gzip=True),
        ),
        _thinking(),
        streamed(
            "nanogpt/messages-truncated",
            Endpoint.MESSAGES,
            "ends early, without message_stop",
            text_frames[:24],
            Expected(outcome="truncated", response_model=CLAUDE, usage=placeholder),
        ),
        streamed(
            "nanogpt/messages-abort",
            Endpoint.MESSAGES,
            "the client leaves while tokens flow",
            text_frames,
            Expected(
                outcome="client_abort", client=ClientEnd.LEFT, exact=False, response_model=CLAUDE, usage=placeholder
            ),
            answer=Answer(finale=Finale.COMMENTS),
            leave_after=14,
        ),
        answered(
            "nanogpt/messages-overloaded",
            Endpoint.MESSAGES,
            "529 before the stream",
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            Expected(
                outcome="http_error",
                client=ClientEnd.STATUS,
                status=529,
                error=ErrorFacts(phase="before_stream", type="overloaded_error", status=529),
            ),
        ),
    )


def _thinking() -> Scenario:
    """Thinking, text and a tool call, with prompt caching: input is reported in three parts."""
    start = messages.start("msg_nano", CLAUDE, {"input_tokens": 9, "output_tokens": 2})
    output_tokens = len(_THOUGHT) + len(_BRIDGE) + len(_CALL)
    reported_usage = {
        "input_tokens": 9,
        "cache_creation_input_tokens": 30,
        "cache_read_input_tokens": 200,
        "output_tokens": output_tokens,
    }
    frames = [
        start,
        messages.PING,
        *messages.thinking_block(0, _THOUGHT, "c2lnbmF0dXJl"),
        *messages.text_block(1, _BRIDGE),
        *messages.tool_block(2, "toolu_1", "read_gauge", ["", *_CALL]),
        messages.finish("tool_use", reported_usage),
        messages.STOP,
    ]
    usage = UsageFacts(input=239, output=output_tokens, total=239 + output_tokens, cached=200)
    good = Expected(outcome="completed", finish="tool_calls", finish_raw="tool_use", response_model=CLAUDE, usage=usage)
    title = "thinking, text, a tool call, a cached prompt"
    return streamed("nanogpt/messages-thinking", Endpoint.MESSAGES, title, frames, good)


def _responses() -> tuple[Scenario, ...]:
    builder = responses.ResponsesFormat("resp_nano", GPT)
    reported_usage = responses.responses_usage(30, 90, cached=8, reasoning=50)
    frames = [
        *builder.start(),
        *builder.reasoning(_THOUGHT),
        *builder.text(_RIVER),
        builder.end("completed", reported_usage),
        DONE,
    ]
    usage = UsageFacts(input=30, output=90, total=120, cached=8, reasoning=50)
    completed = Expected(outcome="completed", finish="stop", finish_raw="completed", response_model=GPT, usage=usage)
    return (
        streamed("nanogpt/responses-stop", Endpoint.RESPONSES, "reasoning summary, then text", frames, completed),
        _responses_tools(),
        _responses_incomplete(),
        _responses_failed(),
        streamed(
            "nanogpt/responses-truncated",
            Endpoint.RESPONSES,
            "ends early, without a terminal event",
            frames[:30],
            Expected(outcome="truncated", response_model=GPT),
        ),
        _whole_response(),
    )


def _responses_tools() -> Scenario:
    builder = responses.ResponsesFormat("resp_nano", GPT)
    reported_usage = responses.responses_usage(30, 22)
    frames = [
        *builder.start(),
        *builder.call("call_1", "read_gauge", _CALL),
        builder.end("completed", reported_usage),
        DONE,
    ]
    usage = UsageFacts(input=30, output=22, total=52, cached=0, reasoning=0)
    good = Expected(outcome="completed", finish="tool_calls", finish_raw="completed", response_model=GPT, usage=usage)
    return streamed("nanogpt/responses-tools", Endpoint.RESPONSES, "a function call", frames, good)


def _responses_incomplete() -> Scenario:
    builder = responses.ResponsesFormat("resp_nano", GPT)
    reported_usage = responses.responses_usage(30, 16)
    ended = builder.start(), builder.text(_RIVER[:16])
    last = builder.end("incomplete", reported_usage, incomplete_details={"reason": "max_output_tokens"})
    usage = UsageFacts(input=30, output=16, total=46, cached=0, reasoning=0)
    good = Expected(
        outcome="completed", finish="length", finish_raw="max_output_tokens", response_model=GPT, usage=usage
    )
    frames = [*ended[0], *ended[1], last, DONE]
    return streamed("nanogpt/responses-length", Endpoint.RESPONSES, "out of tokens: response.incomplete", frames, good)


def _responses_failed() -> Scenario:
    builder = responses.ResponsesFormat("resp_nano", GPT)
    begun = [*builder.start(), *builder.text(_RIVER)[:20]]
    last = builder.end("failed", None, error={"code": "server_error", "message": "The model failed."})
    failed = Expected(
        outcome="stream_error",
        finish="error",
        finish_raw="failed",
        response_model=GPT,
        error=ErrorFacts(phase="in_stream", type="failed", code="server_error"),
    )
    title = "fails in the middle: response.failed"
    return streamed("nanogpt/responses-failed", Endpoint.RESPONSES, title, [*begun, last, DONE], failed)


def _whole_response() -> Scenario:
    body = responses.whole_response("resp_nano", GPT, SHORT, responses.responses_usage(12, 7))
    usage = UsageFacts(input=12, output=7, total=19, cached=0, reasoning=0)
    good = Expected(outcome="completed", finish="stop", finish_raw="completed", response_model=GPT, usage=usage)
    title = "one JSON answer, no stream"
    return answered(
        "nanogpt/responses-whole", Endpoint.RESPONSES, title, body, good, text=SHORT, asks={"stream": False}
    )


SCENARIOS = (*_chat(), *_messages(), *_responses())
