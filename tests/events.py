"""Events of small streams of each dialect, as a provider sends them."""

import json
from collections.abc import Iterable, Mapping

PATHS = {
    "openai-chat": "/v1/chat/completions",
    "openai-completions": "/v1/completions",
    "anthropic-messages": "/v1/messages",
    "openai-responses": "/v1/responses",
}


def data(value: object, name: str = "", end: str = "\n") -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    line = f"event: {name}{end}" if name else ""
    return f"{line}data: {text}{end}{end}".encode()


DONE = b"data: [DONE]\n\n"


def chat_chunk(case: str, index: int = 0, finish: str | None = None, **delta: object) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return data({"id": f"c-{case}", "object": "chat.completion.chunk", "model": "gpt-x", "choices": [choice]})


def chat_usage(case: str, prompt: int = 11, completion: int = 7) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return data({"id": f"c-{case}", "object": "chat.completion.chunk", "model": "gpt-x", "choices": [], "usage": usage})


def chat(case: str, texts: Iterable[str] = ("Hé", "llo", " wörld")) -> list[bytes]:
    return [
        chat_chunk(case, role="assistant", content=""),
        *[chat_chunk(case, content=text) for text in texts],
        chat_chunk(case, finish="stop"),
        chat_usage(case),
        DONE,
    ]


def chat_tools(case: str) -> list[bytes]:
    def call(**function: str) -> list[dict[str, object]]:
        return [{"index": 0, "function": function}]

    return [
        chat_chunk(case, role="assistant", content=None),
        chat_chunk(case, reasoning_content="think 1"),
        chat_chunk(case, reasoning_content=" think"),
        chat_chunk(case, content="ok"),
        chat_chunk(case, tool_calls=[{"index": 0, "id": "call_1", "function": {"name": "look", "arguments": ""}}]),
        chat_chunk(case, tool_calls=call(arguments='{"a":')),
        chat_chunk(case, tool_calls=call(arguments="1}")),
        chat_chunk(case, finish="tool_calls"),
        chat_usage(case),
        DONE,
    ]


def chat_many(case: str) -> list[bytes]:
    return [
        chat_chunk(case, 0, role="assistant", content=""),
        chat_chunk(case, 1, role="assistant", content=""),
        chat_chunk(case, 0, content="a"),
        chat_chunk(case, 1, content="bb"),
        chat_chunk(case, 0, finish="stop"),
        chat_chunk(case, 1, content="cc"),
        chat_chunk(case, 1, finish="length"),
        chat_usage(case),
        DONE,
    ]


def completions(case: str) -> list[bytes]:
    def one(text: str, finish: str | None = None) -> bytes:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
        return data({"id": f"c-{case}", "object": "text_completion", "model": "gpt-x", "choices": [choice]})

    return [one("a"), one("bc"), one("", "stop"), DONE]


def named(value: Mapping[str, object]) -> bytes:
    return data(value, str(value["type"]))


def anthropic(case: str, tool: bool = True) -> list[bytes]:
    usage = {"input_tokens": 9, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 2, "output_tokens": 1}
    message: dict[str, object] = {
        "id": f"c-{case}", "type": "message", "role": "assistant", "content": [], "model": "claude-x",
        "stop_reason": None, "usage": usage,
    }  # fmt: skip

    def delta(index: int, **of: object) -> bytes:
        return named({"type": "content_block_delta", "index": index, "delta": of})

    def start(index: int, **block: object) -> bytes:
        return named({"type": "content_block_start", "index": index, "content_block": block})

    def stop(index: int) -> bytes:
        return named({"type": "content_block_stop", "index": index})

    ending = {"stop_reason": "tool_use" if tool else "end_turn"}
    calls = [
        start(2, type="tool_use", id="toolu_1", name="look", input={}),
        delta(2, type="input_json_delta", partial_json=""),
        delta(2, type="input_json_delta", partial_json='{"a":1}'),
        stop(2),
    ]
    return [
        named({"type": "message_start", "message": message}),
        start(0, type="thinking", thinking=""),
        named({"type": "ping"}),
        delta(0, type="thinking_delta", thinking="hm"),
        delta(0, type="signature_delta", signature="c2ln"),
        stop(0),
        start(1, type="text", text=""),
        delta(1, type="text_delta", text="Hé"),
        delta(1, type="text_delta", text="llo"),
        stop(1),
        *(calls if tool else []),
        named({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 21}}),
        named({"type": "message_stop"}),
    ]


def responses(case: str, ending: str = "response.completed") -> list[bytes]:
    number = iter(range(100))

    def event(kind: str, **more: object) -> bytes:
        return named({"type": kind, "sequence_number": next(number), **more})

    base = {"id": f"c-{case}", "object": "response", "model": "gpt-x", "status": "in_progress", "usage": None}
    usage = {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 12,
             "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 42}  # fmt: skip
    item = {"id": "fc_1", "type": "function_call", "name": "look", "arguments": "", "call_id": "call_1"}
    return [
        event("response.created", response=base),
        event("response.in_progress", response=base),
        event("response.output_item.added", output_index=0, item={"id": "msg_1", "type": "message", "content": []}),
        event("response.output_text.delta", output_index=0, content_index=0, item_id="msg_1", delta="Hé"),
        event("response.output_text.delta", output_index=0, content_index=0, item_id="msg_1", delta="llo"),
        event("response.output_text.done", output_index=0, content_index=0, item_id="msg_1", text="Héllo"),
        event("response.output_item.added", output_index=1, item=item),
        event("response.function_call_arguments.delta", output_index=1, item_id="fc_1", delta='{"a":1}'),
        event("response.function_call_arguments.done", output_index=1, item_id="fc_1", arguments='{"a":1}'),
        event("response.output_item.done", output_index=1, item={**item, "arguments": '{"a":1}'}),
        event(ending, response={**base, "status": ending.rpartition(".")[2], "usage": usage}),
    ]


STREAMS = {
    "openai-chat": chat,
    "openai-completions": completions,
    "anthropic-messages": anthropic,
    "openai-responses": responses,
}
