"""Synthetic streams for benchmarks, in the form of providers: in each dialect a beginning, any number of deltas, an end.

Texts are random with a fixed seed. They have about four characters; one in twenty has an escape.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

_WORDS = (" the", " of", " stream", "ing", ",", " and", " gauge", " a", " water", "s", " ré", "ly", " 7", " to", ".")
_ESCAPED = (' "so', "\n", "\n\n", "\t", "\\")
_SEED = 20_240_501


@dataclass(frozen=True)
class Wire:
    """The events of one stream, each with its blank line. `ids`: the parts of events that are different in each stream."""

    dialect: str
    path: str
    events: list[bytes]
    ids: tuple[bytes, ...] = ()

    def of_stream(self, content: bytes, number: int) -> bytes:
        """The same content in another stream: with ids of the same length."""
        for stream_id in self.ids:
            content = content.replace(stream_id, b"%0*d" % (len(stream_id), number % 10 ** len(stream_id)))
        return content


def _event(value: object, name: str = "", event_id: str = "") -> bytes:
    lines = [f"event: {name}"] if name else []
    lines += [f"id: {event_id}"] if event_id else []
    data = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return "\n".join([*lines, f"data: {data}", "", ""]).encode()


def _texts(count: int) -> list[str]:
    chance = random.Random(_SEED)
    return [chance.choice(_ESCAPED if chance.random() < 0.05 else _WORDS) for _ in range(count)]


def _chat(texts: list[str]) -> list[bytes]:
    head = {
        "id": "chatcmpl-9xKq2",
        "object": "chat.completion.chunk",
        "created": 1714521600,
        "model": "gpt-4.1-mini-2025-04-14",
    }
    head |= {"service_tier": "default", "system_fingerprint": "fp_38647f5e19"}

    def chunk(delta: object, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event({**head, "choices": [choice], "usage": None})

    usage = {"prompt_tokens": 12, "completion_tokens": len(texts), "total_tokens": 12 + len(texts)}
    ends = [chunk({}, "stop"), _event({**head, "choices": [], "usage": usage}), b"data: [DONE]\n\n"]
    return [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        *(chunk({"content": text}) for text in texts),
        *ends,
    ]


def _completions(texts: list[str]) -> list[bytes]:
    head = {"id": "cmpl-7iA", "object": "text_completion", "created": 1714521600, "model": "gpt-3.5-turbo-instruct"}

    def chunk(text: str, finish: str | None = None) -> bytes:
        return _event({**head, "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": finish}]})

    return [*(chunk(text) for text in texts), chunk("", "stop"), b"data: [DONE]\n\n"]


def _responses(texts: list[str]) -> list[bytes]:
    item = "msg_68a0c2d7f2b48191a7d0"
    response = {
        "id": "resp_68a0c2d6",
        "object": "response",
        "model": "gpt-4.1-mini-2025-04-14",
        "status": "in_progress",
    }
    usage = {"input_tokens": 12, "output_tokens": len(texts), "total_tokens": 12 + len(texts)}

    def event(kind: str, number: int, **members: object) -> bytes:
        return _event({"type": f"response.{kind}", "sequence_number": number, **members}, f"response.{kind}")

    place = {"item_id": item, "output_index": 0, "content_index": 0}
    deltas = [
        event("output_text.delta", 3 + number, **place, delta=text, logprobs=[], obfuscation="aGk3xQ"[: 1 + number % 6])
        for number, text in enumerate(texts)
    ]
    last = event("completed", 3 + len(texts), response={**response, "status": "completed", "usage": usage})
    begin = [event("created", 0, response=response), event("in_progress", 1, response=response)]
    added = event("output_item.added", 2, output_index=0, item={"id": item, "type": "message", "content": []})
    return [*begin, added, *deltas, last]


def _realtime(texts: list[str]) -> list[bytes]:
    def event(kind: str, number: int, **members: object) -> bytes:
        return _event({"type": f"response.{kind}", "event_id": f"event_{number:08}", **members})

    response = {"object": "realtime.response", "id": "resp_68a0c2d6", "status": "in_progress", "output": []}
    usage = {"input_tokens": 12, "output_tokens": len(texts), "total_tokens": 12 + len(texts)}
    place = {"response_id": "resp_68a0c2d6", "item_id": "item_1", "output_index": 0, "content_index": 0}
    deltas = [event("output_text.delta", number, **place, delta=text) for number, text in enumerate(texts, 1)]
    last = event("done", len(texts) + 1, response={**response, "status": "completed", "usage": usage})
    return [event("created", 0, response=response), *deltas, last]


def _anthropic(texts: list[str]) -> list[bytes]:
    def event(kind: str, **members: object) -> bytes:
        return _event({"type": kind, **members}, kind)

    message = {"id": "msg_01Xq", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": []}
    start = event("message_start", message={**message, "usage": {"input_tokens": 12, "output_tokens": 1}})
    block = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    deltas = [event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}) for text in texts]
    stop = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": len(texts)})
    return [start, block, *deltas, event("content_block_stop", index=0), stop, event("message_stop")]


def _gemini(texts: list[str]) -> list[bytes]:
    def chunk(number: int, text: str, **more: object) -> bytes:
        candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0, **more}
        usage = {"promptTokenCount": 9, "candidatesTokenCount": number, "totalTokenCount": 9 + number}
        usage |= {"promptTokensDetails": [{"modality": "TEXT", "tokenCount": 9}]}  # type: ignore[dict-item]
        return _event(
            {
                "candidates": [candidate],
                "usageMetadata": usage,
                "modelVersion": "gemini-2.5-flash",
                "responseId": "a1b2",
            }
        )

    chunks = [chunk(number, text) for number, text in enumerate(texts, 1)]
    return [*chunks, chunk(len(texts), "", finishReason="STOP")]


def _interactions(texts: list[str]) -> list[bytes]:
    def event(kind: str, **members: object) -> bytes:
        return _event({"event_type": kind, **members}, kind)

    interaction = {"id": "v1_abc", "model": "gemini-2.5-flash", "object": "interaction", "status": "in_progress"}
    usage = {"total_input_tokens": 9, "total_output_tokens": len(texts), "total_tokens": 9 + len(texts)}
    deltas = [event("step.delta", index=0, delta={"type": "text", "text": text}) for text in texts]
    done = event("interaction.completed", interaction={**interaction, "status": "completed", "usage": usage})
    start = event("step.start", index=0, step={"type": "model_output"})
    return [event("interaction.created", interaction=interaction), start, *deltas, done, b"data: [DONE]\n\n"]


def _cohere(texts: list[str]) -> list[bytes]:
    def event(kind: str, **members: object) -> bytes:
        return _event({"type": kind, **members}, kind)

    start = event("message-start", id="29f14a5a", delta={"message": {"role": "assistant", "content": []}})
    block = event("content-start", index=0, delta={"message": {"content": {"type": "text", "text": ""}}})
    deltas = [event("content-delta", index=0, delta={"message": {"content": {"text": text}}}) for text in texts]
    tokens = {"input_tokens": 12, "output_tokens": len(texts)}
    end = event("message-end", delta={"finish_reason": "COMPLETE", "usage": {"billed_units": tokens, "tokens": tokens}})
    return [start, block, *deltas, event("content-end", index=0), end, b"data: [DONE]\n\n"]


def _watsonx(texts: list[str]) -> list[bytes]:
    def chunk(number: int, text: str, stop: str) -> bytes:
        result = {"generated_text": text, "generated_token_count": number, "input_token_count": 0, "stop_reason": stop}
        value = {
            "model_id": "ibm/granite-13b",
            "created_at": f"2024-05-01T00:00:0{number % 10}.{number:03}Z",
            "results": [result],
        }
        return _event(value, "message", str(number))

    chunks = [chunk(number, text, "not_finished") for number, text in enumerate(texts, 1)]
    return [*chunks, chunk(len(texts) + 1, "", "eos_token")]


def _tgi(texts: list[str]) -> list[bytes]:
    def chunk(number: int, text: str, whole: str | None = None, details: object = None) -> bytes:
        token = {"id": 1000 + number * 7, "text": text, "logprob": -0.125 * (number % 9), "special": False}
        return _event({"index": number, "token": token, "generated_text": whole, "details": details})

    details = {"finish_reason": "length", "generated_tokens": len(texts), "seed": None}
    chunks = [chunk(number, text) for number, text in enumerate(texts, 1)]
    return [*chunks, chunk(len(texts) + 1, "!", "".join(texts), details)]


def _llama_cpp(texts: list[str]) -> list[bytes]:
    def chunk(number: int, text: str, **more: object) -> bytes:
        counts = {"tokens_predicted": number, "tokens_evaluated": 12}
        return _event(
            {"index": 0, "content": text, "tokens": [1000 + number], "stop": False, "id_slot": -1, **counts, **more}
        )

    chunks = [chunk(number, text) for number, text in enumerate(texts, 1)]
    return [*chunks, chunk(len(texts), "", stop=True, stop_type="eos", stopping_word="")]


def _replicate(texts: list[str]) -> list[bytes]:
    lines = [text.replace("\n", " ") for text in texts]
    events = [f"event: output\nid: 1714521600:{place}\ndata: {text}\n\n".encode() for place, text in enumerate(lines)]
    return [*events, b"event: done\nid: 1714521700:0\ndata: {}\n\n"]


def _ollama(texts: list[str]) -> list[bytes]:
    """As server-sent events: the bench measures what follows the framing."""

    def line(text: str, **more: object) -> bytes:
        message = {"role": "assistant", "content": text}
        return _event(
            {"model": "llama3.2", "created_at": "2026-05-01T00:00:00.1Z", "message": message, "done": False, **more}
        )

    counts = {"total_duration": 5043500667, "load_duration": 5025959, "prompt_eval_count": 26, "eval_count": len(texts)}
    return [*map(line, texts), line("", done=True, done_reason="stop", **counts)]


def _converse(texts: list[str]) -> list[bytes]:
    def delta(text: str) -> bytes:
        return _event({"contentBlockIndex": 0, "delta": {"text": text}, "p": "abcdefghij"}, "contentBlockDelta")

    usage = {"inputTokens": 26, "outputTokens": len(texts), "totalTokens": 26 + len(texts)}
    return [
        _event({"p": "abc", "role": "assistant"}, "messageStart"),
        *map(delta, texts),
        _event({"contentBlockIndex": 0, "p": "abcd"}, "contentBlockStop"),
        _event({"p": "ab", "stopReason": "end_turn"}, "messageStop"),
        _event({"metrics": {"latencyMs": 850}, "p": "abcdef", "usage": usage}, "metadata"),
    ]


def _bedrock_text(texts: list[str]) -> list[bytes]:
    def piece(number: int, text: str, reason: str | None = None) -> bytes:
        prompt = 23 if number == 1 else None
        counts = {"prompt_token_count": prompt, "generation_token_count": number}
        return _event({"generation": text, **counts, "stop_reason": reason})

    return [*(piece(number, text) for number, text in enumerate(texts, 1)), piece(len(texts), "", "stop")]


def _cohere_v1(texts: list[str]) -> list[bytes]:
    def event(kind: str, finished: bool = False, **more: object) -> bytes:
        return _event({"is_finished": finished, "event_type": kind, **more})

    meta = {"tokens": {"input_tokens": 71, "output_tokens": len(texts)}}
    answer = {"response_id": "r", "text": "".join(texts), "generation_id": "29f14a5a", "meta": meta}
    return [
        event("stream-start", generation_id="29f14a5a"),
        *(event("text-generation", text=text) for text in texts),
        event("stream-end", True, finish_reason="COMPLETE", response=answer),
    ]


def _sourcegraph(texts: list[str]) -> list[bytes]:
    events = [_event({"deltaText": text}, "completion") for text in texts]
    return [*events, _event({"deltaText": "", "stopReason": "end_turn"}, "completion"), _event({}, "done")]


def _dashscope(texts: list[str]) -> list[bytes]:
    """With incremental_output: new text in each event."""

    def event(number: int, text: str, reason: str = "null") -> bytes:
        choices = [{"message": {"content": text, "role": "assistant"}, "finish_reason": reason}]
        usage = {"total_tokens": 22 + number, "input_tokens": 22, "output_tokens": number}
        data = {"output": {"choices": choices}, "usage": usage, "request_id": "5a0d1ef6-22aa-9d5f-8f3a-0c4e1d2b3a40"}
        return b"id:%d\nevent:result\n:HTTP_STATUS/200\ndata:%b\n\n" % (number, json.dumps(data).encode())

    return [*(event(number, text) for number, text in enumerate(texts, 1)), event(len(texts) + 1, "", "stop")]


def _workers_ai(texts: list[str]) -> list[bytes]:
    usage = {"prompt_tokens": 22, "completion_tokens": len(texts), "total_tokens": 22 + len(texts)}
    pieces = [_event({"response": text, "p": "abdefghijk"}) for text in texts]
    return [*pieces, _event({"response": "", "usage": usage}), b"data: [DONE]\n\n"]


def _triton(texts: list[str]) -> list[bytes]:
    sequence = {"sequence_end": False, "sequence_id": 0, "sequence_start": False}
    named = {"model_name": "ensemble", "model_version": "1"}
    return [_event({**named, **sequence, "text_output": text}) for text in texts]


def _transcription(texts: list[str]) -> list[bytes]:
    usage = {"type": "tokens", "input_tokens": 71, "output_tokens": len(texts), "total_tokens": 71 + len(texts)}
    done = {"type": "transcript.text.done", "text": "".join(texts), "usage": usage}
    return [*(_event({"type": "transcript.text.delta", "delta": text}) for text in texts), _event(done)]


def _speech(texts: list[str]) -> list[bytes]:
    usage = {"input_tokens": 71, "output_tokens": len(texts), "total_tokens": 71 + len(texts)}
    pieces = [_event({"type": "speech.audio.delta", "audio": text}) for text in texts]
    return [*pieces, _event({"type": "speech.audio.done", "usage": usage})]


def _images(texts: list[str]) -> list[bytes]:
    kind = "image_generation"
    usage = {"input_tokens": 71, "output_tokens": len(texts), "total_tokens": 71 + len(texts)}
    pieces = [_event({"type": f"{kind}.partial_image", "b64_json": text, "partial_image_index": 0}) for text in texts]
    return [*pieces, _event({"type": f"{kind}.completed", "b64_json": "aGk=", "usage": usage})]


def _anthropic_completions(texts: list[str]) -> list[bytes]:
    def event(text: str, stop: str | None = None) -> bytes:
        more = {"stop": None, "log_id": "compl_01a", "model": "claude-2.1"}
        return _event({"type": "completion", "completion": text, "stop_reason": stop, **more}, "completion")

    return [*(event(text) for text in texts), event("", "stop_sequence")]


_MAKERS: dict[str, tuple[str, Callable[[list[str]], list[bytes]], tuple[bytes, ...]]] = {
    "openai-chat": ("/chat/completions", _chat, (b"9xKq2",)),
    "openai-completions": ("/completions", _completions, (b"7iA",)),
    "openai-responses": ("/responses", _responses, (b"68a0c2d7f2b48191a7d0", b"68a0c2d6")),
    "openai-realtime": ("/realtime", _realtime, (b"68a0c2d6",)),
    "anthropic-messages": ("/messages", _anthropic, (b"01Xq",)),
    "anthropic-completions": ("", _anthropic_completions, (b"01a",)),
    "gemini": (":streamGenerateContent", _gemini, (b"a1b2",)),
    "gemini-interactions": ("/interactions", _interactions, (b"v1_abc",)),
    "cohere-v2": ("/v2/chat", _cohere, (b"29f14a5a",)),
    "watsonx": ("", _watsonx, ()),
    "tgi-native": ("/generate_stream", _tgi, ()),
    "llama-cpp-native": ("/completion", _llama_cpp, ()),
    "replicate": ("", _replicate, (b"1714521",)),
    "ollama": ("/api/chat", _ollama, ()),
    "bedrock-converse": ("/model/{id}/converse-stream", _converse, ()),
    "bedrock-text": ("/model/{id}/invoke-with-response-stream", _bedrock_text, ()),
    "sourcegraph": ("/.api/completions/stream", _sourcegraph, ()),
    "cohere-v1": ("/v1/chat", _cohere_v1, (b"29f14a5a",)),
    "dashscope": ("/services/aigc/text-generation/generation", _dashscope, (b"5a0d1ef6",)),
    "workers-ai": ("", _workers_ai, ()),
    "triton": ("/v2/models/{model}/generate_stream", _triton, ()),
    "openai-transcription": ("", _transcription, ()),
    "openai-speech": ("", _speech, ()),
    "openai-images": ("", _images, ()),
}


def wire(dialect: str, deltas: int) -> Wire:
    """A stream of a dialect with this many deltas. Raises KeyError for an unknown dialect."""
    path, make, ids = _MAKERS[dialect]
    return Wire(dialect, path, make(_texts(deltas)), ids)
