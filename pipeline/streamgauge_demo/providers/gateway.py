"""An OpenAI-compatible gateway: chat completions. The faults here are those of the path: proxies that buffer, cut, close or
time out.

Facts: the gateway's documentation of streaming (model and time on the first chunk alone, no resuming, a dropped stream just
ends); keep-alive comments as OpenRouter sends them.
"""

from streamgauge_demo.building import Pace, answered, streamed, together
from streamgauge_demo.formats.chat import CREATED, ChatFormat, chat_usage
from streamgauge_demo.frames import DONE, Frame, block, comment, compact
from streamgauge_demo.scenario import (
    Answer,
    ClientEnd,
    Endpoint,
    ErrorFacts,
    Expected,
    Finale,
    Framing,
    Scenario,
    UsageFacts,
)
from streamgauge_demo.texts import ARGUMENTS, BRIDGE, RIVER, fragments, words

MODEL = "gpt-4o-mini"

# Size of slices (bytes): a prime number, so that cuts fall into chunk sizes, JSON and UTF-8 alike.
CUT_BYTES = 61

_HEAD = {"id": "chatcmpl-abc", "object": "chat.completion.chunk"}
_CHAT = ChatFormat(head=_HEAD, first={"created": CREATED, "model": MODEL})
_RIVER, _BRIDGE, _CALL = words(RIVER), words(BRIDGE), fragments(ARGUMENTS)
_SPOKEN = [_CHAT.role(), *_CHAT.text(_RIVER)]
_STOPPED = [*_SPOKEN, _CHAT.finish("stop"), DONE]
_GOOD = Expected(outcome="completed", finish="stop", finish_raw="stop", response_model=MODEL)
_RESET = ErrorFacts(phase="transport", code="reset")
_SILENT = ErrorFacts(phase="transport", code="idle_timeout")


def _good() -> tuple[Scenario, ...]:
    output_tokens = len(_BRIDGE)
    usage = UsageFacts(input=18, output=output_tokens, total=18 + output_tokens)
    usage_frames = [
        _CHAT.role(),
        *_CHAT.text(_BRIDGE),
        _CHAT.finish("stop"),
        _CHAT.usage(chat_usage(18, output_tokens)),
        DONE,
    ]
    comment_frames = [comment("PROCESSING"), comment("PROCESSING"), *_STOPPED]
    tool_frames = [*_CHAT.call("call_g", "read_gauge", _CALL, opening=True), _CHAT.finish("tool_calls"), DONE]
    return (
        streamed(
            "gateway/stop", Endpoint.CHAT, "text after keep-alive comments", comment_frames, _GOOD, pace=Pace(1.2, 0.02)
        ),
        streamed(
            "gateway/usage",
            Endpoint.CHAT,
            "usage, asked for",
            usage_frames,
            Expected(outcome="completed", finish="stop", finish_raw="stop", response_model=MODEL, usage=usage),
            asks={"stream_options": {"include_usage": True}},
        ),
        streamed(
            "gateway/tools",
            Endpoint.CHAT,
            "a tool call",
            tool_frames,
            Expected(outcome="completed", finish="tool_calls", finish_raw="tool_calls", response_model=MODEL),
        ),
        streamed(
            "gateway/length",
            Endpoint.CHAT,
            "out of tokens",
            [*_SPOKEN[:17], _CHAT.finish("length"), DONE],
            Expected(outcome="completed", finish="length", finish_raw="length", response_model=MODEL),
            asks={"max_tokens": 16},
        ),
        streamed(
            "gateway/filtered",
            Endpoint.CHAT,
            "cut by a content filter",
            [*_SPOKEN[:9], _CHAT.finish("content_filter"), DONE],
            Expected(outcome="completed", finish="content_filter", finish_raw="content_filter", response_model=MODEL),
        ),
        streamed(
            "gateway/split",
            Endpoint.CHAT,
            "cut anywhere: in characters, JSON and chunk sizes",
            _STOPPED,
            _GOOD,
            answer=Answer(cut=CUT_BYTES),
            pace=Pace(0.4, 0.02),
        ),
        streamed(
            "gateway/buffered",
            Endpoint.CHAT,
            "buffered by a proxy: all events arrive at once",
            _STOPPED,
            _GOOD,
            shape=lambda pieces: together(pieces, 1.5),
        ),
        streamed(
            "gateway/until-close",
            Endpoint.CHAT,
            "no framing: the body ends with the connection",
            _STOPPED,
            _GOOD,
            answer=Answer(framing=Framing.CLOSE),
        ),
    )


def _bad() -> tuple[Scenario, ...]:
    error = Frame(block(compact({"error": {"message": "Upstream failed.", "type": "server_error", "code": None}})))
    half = Frame(b'data: {"id":"chatcmpl-abc","object":"chat.completion.chunk","choi')
    page = "<!doctype html><title>502</title><h1>Bad Gateway</h1>"
    broken = Expected(outcome="truncated", response_model=MODEL)
    return (
        streamed(
            "gateway/error",
            Endpoint.CHAT,
            "fails in the middle: an error, then [DONE]",
            [*_SPOKEN[:12], error, DONE],
            Expected(
                outcome="stream_error",
                client=ClientEnd.ERROR,
                response_model=MODEL,
                error=ErrorFacts(phase="in_stream", type="server_error"),
            ),
        ),
        streamed(
            "gateway/dropped", Endpoint.CHAT, "ends early, in the middle of an event", [*_SPOKEN[:20], half], broken
        ),
        streamed(
            "gateway/reset",
            Endpoint.CHAT,
            "the connection is reset",
            _SPOKEN[:20],
            Expected(outcome="upstream_reset", client=ClientEnd.CONNECTION, response_model=MODEL, error=_RESET),
            answer=Answer(finale=Finale.RESET),
        ),
        streamed(
            "gateway/abort",
            Endpoint.CHAT,
            "the client leaves while tokens flow",
            _SPOKEN,
            Expected(outcome="client_abort", client=ClientEnd.LEFT, exact=False, response_model=MODEL),
            answer=Answer(finale=Finale.COMMENTS),
            leave_after=12,
        ),
        streamed(
            "gateway/silent",
            Endpoint.CHAT,
            "sends nothing more, until the tap's idle timeout",
            _SPOKEN[:10],
            Expected(outcome="timeout", client=ClientEnd.CONNECTION, response_model=MODEL, error=_SILENT),
            answer=Answer(finale=Finale.SILENT),
            tap_only=True,
        ),
        streamed(
            "gateway/no-head",
            Endpoint.CHAT,
            "the connection is reset before any answer: the tap says 502",
            [],
            Expected(outcome="upstream_reset", client=ClientEnd.STATUS, streaming=None, status=None, error=_RESET),
            answer=Answer(no_head=True, finale=Finale.RESET),
            tap_only=True,
        ),
        answered(
            "gateway/bad-page",
            Endpoint.CHAT,
            "502 with a page of HTML",
            page,
            Expected(
                outcome="http_error",
                client=ClientEnd.STATUS,
                status=502,
                error=ErrorFacts(phase="before_stream", status=502),
            ),
        ),
    )


SCENARIOS = (*_good(), *_bad())
