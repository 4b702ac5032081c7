"""Anthropic messages: named events whose JSON repeats the name, ended by message_stop, without [DONE]."""

from collections.abc import Iterable, Mapping

from streamgauge_demo.frames import Frame, block, compact

PING = Frame(block('{"type":"ping"}', name="ping"))
STOP = Frame(block('{"type":"message_stop"}', name="message_stop"))


def start(message_id: str, model: str, usage: Mapping[str, object]) -> Frame:
    """The envelope. The output tokens in this `usage` are a placeholder."""
    unknown: dict[str, object] = {"content": [], "stop_reason": None, "stop_sequence": None}
    return _frame("message_start", {"message": {**_head(message_id, model), **unknown, "usage": usage}})


def text_block(index: int, pieces: Iterable[str]) -> list[Frame]:
    """The frames of one text block."""
    deltas = [_delta(index, "text_delta", "text", piece, text=piece) for piece in pieces]
    return _block(index, {"type": "text", "text": ""}, deltas)


def thinking_block(index: int, pieces: Iterable[str], signature: str) -> list[Frame]:
    """Thinking, then its signature, which is not generated output."""
    deltas = [_delta(index, "thinking_delta", "thinking", piece, reasoning=piece) for piece in pieces]
    signed = _delta(index, "signature_delta", "signature", signature)
    return _block(index, {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed])


def tool_block(index: int, call_id: str, name: str, pieces: Iterable[str]) -> list[Frame]:
    """A tool call: its name is in the block's start, its input follows as fragments of JSON (the first may be empty)."""
    deltas = [_delta(index, "input_json_delta", "partial_json", piece, arguments=piece) for piece in pieces]
    return _block(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas, token=True)


def finish(reason: str, usage: Mapping[str, object] | None = None) -> Frame:
    """message_delta: the stop reason, and usage if the provider sends it here (running totals, not increments)."""
    delta = {"delta": {"stop_reason": reason, "stop_sequence": None}}
    return _frame("message_delta", {**delta, "usage": usage} if usage else delta)


def failure(error: Mapping[str, object]) -> Frame:
    """The in-band error; nothing follows it."""
    return _frame("error", {"error": error})


def whole_message(
    message_id: str, model: str, text: str, reason: str, usage: Mapping[str, object]
) -> dict[str, object]:
    """The response to a request without `stream`."""
    members = {"content": [{"type": "text", "text": text}], "stop_reason": reason, "stop_sequence": None}
    return {**_head(message_id, model), **members, "usage": usage}


def _head(message_id: str, model: str) -> dict[str, object]:
    return {"id": message_id, "type": "message", "role": "assistant", "model": model}


def _block(index: int, opening: Mapping[str, object], deltas: list[Frame], *, token: bool = False) -> list[Frame]:
    started = _frame("content_block_start", {"index": index, "content_block": opening}, token=token)
    return [started, *deltas, _frame("content_block_stop", {"index": index})]


def _delta(
    index: int, kind: str, member: str, piece: str, *, text: str = "", reasoning: str = "", arguments: str = ""
) -> Frame:
    payload = {"index": index, "delta": {"type": kind, member: piece}}
    return _frame("content_block_delta", payload, text=text, reasoning=reasoning, arguments=arguments)


def _frame(
    kind: str,
    payload: Mapping[str, object],
    *,
    token: bool = False,
    text: str = "",
    reasoning: str = "",
    arguments: str = "",
) -> Frame:
    data = block(compact({"type": kind, **payload}), name=kind)
    return Frame(data, token or bool(text or reasoning or arguments), text, reasoning, arguments)
