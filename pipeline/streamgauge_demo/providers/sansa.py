"""Sansa: chat completions, with a router that names the chosen model on the first chunk.

Facts: the provider's documentation of streaming (usage always on the last chunk, `sansa` on the first, reasoning as
`reasoning_details`, an in-band error with finish reason `error` and a [DONE] after it, errors with a code and no type).
"""

from dataclasses import replace

from streamgauge_demo.building import answered, streamed
from streamgauge_demo.formats.chat import CREATED, ChatFormat, chat_usage, whole_chat
from streamgauge_demo.frames import DONE, Frame, block, compact
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

MODEL = "openai/gpt-5.4-mini"

_ROUTED = {"sansa": {"routed": True, "routed_model": MODEL, "routing_latency_ms": 287}}
_HEAD = {"id": "gen_sansa", "object": "chat.completion.chunk", "created": CREATED, "model": MODEL}
_DIRECT = ChatFormat(head=_HEAD, role_content={}, reasoning_field="reasoning_details")
_AUTO = replace(_DIRECT, first=_ROUTED)
_RIVER, _BRIDGE, _THOUGHT, _CALL = words(RIVER), words(BRIDGE), words(THOUGHT), fragments(ARGUMENTS)


def _scenarios() -> tuple[Scenario, ...]:
    output_tokens = len(_RIVER)
    usage = UsageFacts(input=12, output=output_tokens, total=12 + output_tokens)
    ended = [_AUTO.finish("stop", usage=chat_usage(12, output_tokens)), DONE]
    text_frames = [_AUTO.role(), *_AUTO.text(_RIVER)]
    routed = Expected(
        outcome="completed", finish="stop", finish_raw="stop", response_model=MODEL, routed_model=MODEL, usage=usage
    )
    broken = replace(routed, outcome="truncated", finish=None, finish_raw=None, usage=Expected(outcome="").usage)
    return (
        streamed("sansa/auto-stop", Endpoint.CHAT, "routed, text, usage", [*text_frames, *ended], routed),
        _reasoning(),
        _tools(),
        streamed(
            "sansa/error-mid-stream",
            Endpoint.CHAT,
            "fails in the middle: an error with finish reason error, then [DONE]",
            [*text_frames[:16], _failure(), DONE],
            replace(
                broken,
                outcome="stream_error",
                client=ClientEnd.ERROR,
                finish="error",
                finish_raw="error",
                error=ErrorFacts(phase="in_stream", type="error", code="provider_error"),
            ),
        ),
        streamed(
            "sansa/auto-truncated", Endpoint.CHAT, "ends early, without finish or [DONE]", text_frames[:20], broken
        ),
        streamed(
            "sansa/auto-cut",
            Endpoint.CHAT,
            "the connection is closed in the middle of the framing",
            text_frames[:20],
            replace(
                broken,
                outcome="upstream_reset",
                client=ClientEnd.CONNECTION,
                error=ErrorFacts(phase="transport", code="closed"),
            ),
            answer=Answer(finale=Finale.EARLY_FIN),
        ),
        answered(
            "sansa/no-credits",
            Endpoint.CHAT,
            "402 before the stream",
            {"error": {"code": "insufficient_credits", "message": "Insufficient credits. Please add credits."}},
            Expected(
                outcome="http_error",
                client=ClientEnd.STATUS,
                status=402,
                error=ErrorFacts(phase="before_stream", code="insufficient_credits", status=402),
            ),
        ),
        _whole(),
    )


def _failure() -> Frame:
    error = {"code": "provider_error", "message": "Provider disconnected"}
    return Frame(block(compact({"error": error, "choices": [{"finish_reason": "error"}]})))


def _reasoning() -> Scenario:
    output_tokens = len(_THOUGHT) + len(_BRIDGE)
    usage = UsageFacts(input=20, output=output_tokens, total=20 + output_tokens)
    frames = [
        _DIRECT.role(),
        *_DIRECT.reasoning(_THOUGHT),
        *_DIRECT.text(_BRIDGE),
        _DIRECT.finish("stop", usage=chat_usage(20, output_tokens)),
        DONE,
    ]
    good = Expected(outcome="completed", finish="stop", finish_raw="stop", response_model=MODEL, usage=usage)
    return streamed("sansa/reasoning", Endpoint.CHAT, "reasoning details, then text", frames, good)


def _tools() -> Scenario:
    usage = UsageFacts(input=60, output=31, total=91)
    call_frames = [_AUTO.role(), *_AUTO.call("call_s", "read_gauge", _CALL)]
    frames = [*call_frames, _AUTO.finish("tool_calls", usage=chat_usage(60, 31)), DONE]
    good = Expected(
        outcome="completed",
        finish="tool_calls",
        finish_raw="tool_calls",
        response_model=MODEL,
        routed_model=MODEL,
        usage=usage,
    )
    return streamed("sansa/auto-tools", Endpoint.CHAT, "routed, a tool call", frames, good)


def _whole() -> Scenario:
    body = whole_chat({"id": "gen_sansa", "created": CREATED, "model": MODEL}, SHORT, "stop", chat_usage(12, 7))
    usage = UsageFacts(input=12, output=7, total=19)
    good = Expected(
        outcome="completed", finish="stop", finish_raw="stop", response_model=MODEL, routed_model=MODEL, usage=usage
    )
    title = "one JSON answer, no stream"
    return answered("sansa/whole", Endpoint.CHAT, title, {**body, **_ROUTED}, good, text=SHORT, asks={"stream": False})


SCENARIOS = _scenarios()
