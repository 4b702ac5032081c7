"""Nimbus: chat completions and messages. If its upstream fails, the last event is `event: error` in either format.

Facts: the provider's documentation of streaming (usage on chat's finish chunk, an `id:` line on every event of messages,
`ping` events, resuming by Last-Event-ID, refused with 400 resume_not_supported where the upstream cannot).
"""

from dataclasses import replace

from streamgauge_demo.building import Pace, answered, streamed
from streamgauge_demo.formats import messages
from streamgauge_demo.formats.chat import CREATED, ChatFormat, chat_usage
from streamgauge_demo.frames import DONE, Frame, block, compact, with_ids
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

GPT = "openai/gpt-5.1"
CLAUDE = "anthropic/claude-opus-4.5"

_HEAD = {"id": "chatcmpl_01H8", "object": "chat.completion.chunk", "created": CREATED, "model": GPT}
_CHAT = ChatFormat(head=_HEAD, ascii_only=True)
_RIVER, _BRIDGE, _CALL = words(RIVER), words(BRIDGE), fragments(ARGUMENTS)

_FAILURE = {
    "type": "upstream_error",
    "message": "The upstream disconnected.",
    "code": "upstream_disconnect",
    "request_id": "req_01H9",
}
_IN_STREAM = ErrorFacts(phase="in_stream", type="upstream_error", code="upstream_disconnect")

# The event id after which a client resumes: it has received this event and those before it.
RESUMED_AFTER = 9


def _chat() -> tuple[Scenario, ...]:
    output_tokens = len(_RIVER)
    usage = UsageFacts(input=12, output=output_tokens, total=12 + output_tokens)
    text_frames = [_CHAT.role(), *_CHAT.text(_RIVER)]
    finish = _CHAT.finish("stop", usage=chat_usage(12, output_tokens))
    good = Expected(outcome="completed", finish="stop", finish_raw="stop", response_model=GPT, usage=usage)
    error = Frame(block(compact({"type": "error", "error": _FAILURE}), name="error"))
    return (
        streamed(
            "nimbus/chat-stop", Endpoint.CHAT, "text, usage on the finish chunk", [*text_frames, finish, DONE], good
        ),
        _tools(),
        streamed(
            "nimbus/chat-error",
            Endpoint.CHAT,
            "fails in the middle: event: error, no [DONE]",
            [*text_frames[:16], error],
            Expected(outcome="stream_error", client=ClientEnd.ERROR, response_model=GPT, error=_IN_STREAM),
        ),
        streamed(
            "nimbus/chat-enough",
            Endpoint.CHAT,
            "the client leaves at the finish reason, before [DONE]",
            [*text_frames, finish],
            replace(good, client=ClientEnd.LEFT),
            answer=Answer(finale=Finale.COMMENTS),
            leave_after=len(text_frames) + 1,
        ),
        answered(
            "nimbus/chat-resume",
            Endpoint.CHAT,
            "resuming is refused: 400 before the stream",
            {
                "type": "error",
                "error": {"type": "invalid_request", "message": "No resume.", "code": "resume_not_supported"},
            },
            Expected(
                outcome="http_error",
                client=ClientEnd.STATUS,
                status=400,
                error=ErrorFacts(
                    phase="before_stream", type="invalid_request", code="resume_not_supported", status=400
                ),
            ),
            asks={"extra_headers": {"Last-Event-ID": str(RESUMED_AFTER)}},
        ),
    )


def _tools() -> Scenario:
    usage = UsageFacts(input=60, output=31, total=91)
    call_frames = _CHAT.call("call_abc", "read_gauge", _CALL, opening=True)
    frames = [*call_frames, _CHAT.finish("tool_calls", usage=chat_usage(60, 31)), DONE]
    good = Expected(outcome="completed", finish="tool_calls", finish_raw="tool_calls", response_model=GPT, usage=usage)
    return streamed("nimbus/chat-tools", Endpoint.CHAT, "a tool call", frames, good)


def _messages() -> tuple[Scenario, ...]:
    start = messages.start("msg_01H8", CLAUDE, {"input_tokens": 41, "output_tokens": 0})
    text_frames = [start, messages.PING, *messages.text_block(0, _RIVER)]
    ended = [messages.finish("end_turn", {"output_tokens": len(_RIVER)}), messages.STOP]
    usage = UsageFacts(input=41, output=len(_RIVER), total=41 + len(_RIVER))
    good = Expected(outcome="completed", finish="stop", finish_raw="end_turn", response_model=CLAUDE, usage=usage)
    whole = with_ids([*text_frames, *ended])
    begun = UsageFacts(input=41, source="partial")
    return (
        streamed("nimbus/messages-stop", Endpoint.MESSAGES, "text, ids and a ping", whole, good),
        _tool_use(),
        streamed(
            "nimbus/messages-resumed",
            Endpoint.MESSAGES,
            "goes on after the last event that the client saw",
            whole[RESUMED_AFTER:],
            # The envelope with input was in the origin: the resumed stream has the output tokens, and no model.
            replace(good, response_model=None, usage=UsageFacts(output=len(_RIVER))),
            asks={"extra_headers": {"Last-Event-ID": str(RESUMED_AFTER)}},
        ),
        streamed(
            "nimbus/messages-error",
            Endpoint.MESSAGES,
            "fails in the middle: event: error",
            with_ids([*text_frames[:20], messages.failure(_FAILURE)]),
            Expected(
                outcome="stream_error", client=ClientEnd.ERROR, response_model=CLAUDE, error=_IN_STREAM, usage=begun
            ),
        ),
        streamed(
            "nimbus/messages-reset",
            Endpoint.MESSAGES,
            "the connection is reset",
            with_ids(text_frames[:20]),
            Expected(
                outcome="upstream_reset",
                client=ClientEnd.CONNECTION,
                response_model=CLAUDE,
                error=ErrorFacts(phase="transport", code="reset"),
                usage=begun,
            ),
            answer=Answer(finale=Finale.RESET),
        ),
        answered(
            "nimbus/messages-unavailable",
            Endpoint.MESSAGES,
            "503 before the stream",
            {"type": "error", "error": {"type": "upstream_error", "message": "Try later.", "code": "no_upstream"}},
            Expected(
                outcome="http_error",
                client=ClientEnd.STATUS,
                status=503,
                error=ErrorFacts(phase="before_stream", type="upstream_error", code="no_upstream", status=503),
            ),
            headers={"retry-after": "2"},
        ),
        _whole_message(),
    )


def _tool_use() -> Scenario:
    """As documented, this message_delta has no usage: the number of output tokens stays unknown."""
    start = messages.start("msg_01H8", CLAUDE, {"input_tokens": 41, "output_tokens": 0})
    block_ = messages.tool_block(0, "toolu_01A", "read_gauge", _CALL)
    frames = with_ids([start, *block_, messages.finish("tool_use"), messages.STOP])
    usage = UsageFacts(input=41, source="partial")
    good = Expected(outcome="completed", finish="tool_calls", finish_raw="tool_use", response_model=CLAUDE, usage=usage)
    title = "a tool call, no final usage"
    return streamed("nimbus/messages-tools", Endpoint.MESSAGES, title, frames, good, pace=Pace(0.7, 0.05))


def _whole_message() -> Scenario:
    body = messages.whole_message("msg_01H8", CLAUDE, SHORT, "end_turn", {"input_tokens": 12, "output_tokens": 7})
    usage = UsageFacts(input=12, output=7, total=19)
    good = Expected(outcome="completed", finish="stop", finish_raw="end_turn", response_model=CLAUDE, usage=usage)
    title = "one JSON answer, no stream"
    return answered("nimbus/messages-whole", Endpoint.MESSAGES, title, body, good, text=SHORT, asks={"stream": False})


SCENARIOS = (*_chat(), *_messages())
