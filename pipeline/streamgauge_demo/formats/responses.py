"""OpenAI responses: typed events with sequence numbers. This provider sends no `event:` line, and a [DONE] at the end."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from streamgauge_demo.formats.chat import CREATED
from streamgauge_demo.frames import Frame, block, compact

Payload = dict[str, object]


class ResponsesFormat:
    """Builds one response's events in order: each call takes the next sequence numbers, each item the next output index."""

    def __init__(self, response_id: str, model: str) -> None:
        self._response_id = response_id
        self._model = model
        self._sequence = 0
        self._output: list[Payload] = []

    def start(self) -> list[Frame]:
        """The events response.created and response.in_progress."""
        response = self.response("in_progress")
        return [self._event(f"response.{kind}", {"response": response}) for kind in ("created", "in_progress")]

    def text(self, pieces: Iterable[str]) -> list[Frame]:
        """A message with one part of text. Its closing events repeat the whole text, which does not count as generated
        again.
        """
        fragments = list(pieces)
        part = {"type": "output_text", "text": "".join(fragments), "annotations": []}
        position = {"item_id": f"msg_{len(self._output)}", "output_index": len(self._output), "content_index": 0}
        item = {
            "id": position["item_id"],
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        frames = [self._item("added", item)]
        frames.append(self._event("response.content_part.added", {**position, "part": {**part, "text": ""}}))
        for piece in fragments:
            delta = self._event("response.output_text.delta", {**position, "delta": piece})
            frames.append(replace(delta, token=True, text=piece))
        frames.append(self._event("response.output_text.done", {**position, "text": part["text"]}))
        frames.append(self._event("response.content_part.done", {**position, "part": part}))
        return [*frames, self._item("done", {**item, "status": "completed", "content": [part]})]

    def reasoning(self, pieces: Iterable[str]) -> list[Frame]:
        """A reasoning item with one part of summary."""
        fragments = list(pieces)
        position = {"item_id": f"rs_{len(self._output)}", "output_index": len(self._output), "summary_index": 0}
        item = {"id": position["item_id"], "type": "reasoning", "summary": []}
        frames = [self._item("added", item)]
        for piece in fragments:
            delta = self._event("response.reasoning_summary_text.delta", {**position, "delta": piece})
            frames.append(replace(delta, token=True, reasoning=piece))
        part = {"type": "summary_text", "text": "".join(fragments)}
        frames.append(self._event("response.reasoning_summary_text.done", {**position, "text": part["text"]}))
        return [*frames, self._item("done", {**item, "summary": [part]})]

    def call(self, call_id: str, name: str, pieces: Iterable[str]) -> list[Frame]:
        """A function call: its name is in the item, its arguments follow as deltas."""
        fragments = list(pieces)
        position = {"item_id": f"fc_{len(self._output)}", "output_index": len(self._output)}
        item = {"id": position["item_id"], "type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
        frames = [replace(self._item("added", item), token=True)]
        for piece in fragments:
            delta = self._event("response.function_call_arguments.delta", {**position, "delta": piece})
            frames.append(replace(delta, token=True, arguments=piece))
        whole = {"arguments": "".join(fragments)}
        frames.append(self._event("response.function_call_arguments.done", {**position, **whole}))
        return [*frames, self._item("done", {**item, **whole, "status": "completed"})]

    def end(self, status: str, usage: Mapping[str, object] | None, **facts: object) -> Frame:
        """The terminal: `response.<status>` with the whole response. `facts`: error or incomplete_details."""
        return self._event(f"response.{status}", {"response": {**self.response(status, usage), **facts}})

    def response(self, status: str, usage: Mapping[str, object] | None = None) -> Payload:
        """The response object, with all items that were sent so far."""
        return {
            "id": self._response_id,
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "model": self._model,
            "output": list(self._output),
            "error": None,
            "incomplete_details": None,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage,
        }

    def _item(self, step: str, item: Payload) -> Frame:
        index = len(self._output)
        if step == "done":
            self._output.append(item)
        return self._event(f"response.output_item.{step}", {"output_index": index, "item": item})

    def _event(self, kind: str, payload: Mapping[str, object]) -> Frame:
        event = {"type": kind, **payload, "sequence_number": self._sequence}
        self._sequence += 1
        return Frame(block(compact(event)))


def responses_usage(input_tokens: int, output_tokens: int, *, cached: int = 0, reasoning: int = 0) -> Payload:
    """Usage with the names of the Responses API (tokens). Input includes `cached`, output includes `reasoning`."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input_tokens + output_tokens,
    }


def whole_response(response_id: str, model: str, text: str, usage: Payload) -> Payload:
    """The response to a request without `stream`."""
    builder = ResponsesFormat(response_id, model)
    builder.text([text])
    return builder.response("completed", usage)
