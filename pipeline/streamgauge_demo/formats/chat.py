"""OpenAI chat completions as the five providers send them; they differ in their envelope and in the place of reasoning."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from streamgauge_demo.frames import Frame, block, compact

# One time for all responses (Unix seconds): equal requests get equal bytes, so two paths to the simulator can be
# compared.
CREATED = 1_760_000_000

ReasoningField = Literal["reasoning", "reasoning_content", "reasoning_details"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFormat:
    """A provider's envelope.

    `head`: members before `choices` on every chunk; `first`: additional members on the first chunk. `indexed`: choices have
    an index. `null_finish`: a chunk that does not finish has `"finish_reason": null`. `role_content`: what the first delta
    has besides the role. `ascii_only`: characters beyond ASCII are escaped.
    """

    head: Mapping[str, object] = field(default_factory=dict)
    first: Mapping[str, object] = field(default_factory=dict)
    indexed: bool = True
    null_finish: bool = True
    role_content: Mapping[str, object] = field(default_factory=lambda: {"content": ""})
    reasoning_field: ReasoningField = "reasoning"
    ascii_only: bool = False

    def role(self, index: int = 0) -> Frame:
        """The first chunk of a choice."""
        return self._frame({"role": "assistant", **self.role_content}, index, more=self.first)

    def text(self, pieces: Iterable[str], index: int = 0) -> list[Frame]:
        """One chunk for each piece of text."""
        return [self._frame({"content": piece}, index, text=piece) for piece in pieces]

    def reasoning(self, pieces: Iterable[str], index: int = 0) -> list[Frame]:
        """One chunk for each piece of reasoning, in `reasoning_field`."""
        return [self._frame({self.reasoning_field: self._thought(piece)}, index, reasoning=piece) for piece in pieces]

    def call(
        self, call_id: str, name: str, pieces: Iterable[str], *, opening: bool = False, number: int = 0
    ) -> list[Frame]:
        """A tool call: its name with empty arguments, then the arguments in pieces. `opening`: the name is on the first
        chunk.
        """
        function = {"name": name, "arguments": ""}
        head = {"tool_calls": [{"index": number, "id": call_id, "type": "function", "function": function}]}
        role = {"role": "assistant", "content": None} if opening else {}
        first = self._frame({**role, **head}, 0, token=True, more=self.first if opening else {})
        return [first, *(self._arguments(piece, number) for piece in pieces)]

    def finish(self, reason: str, index: int = 0, usage: Mapping[str, object] | None = None) -> Frame:
        """The last chunk of a choice, with the usage if it is given."""
        return self._frame({}, index, finish=reason, more={"usage": usage} if usage else {})

    def usage(self, usage: Mapping[str, object]) -> Frame:
        """Usage on a chunk of its own, without choices (`stream_options.include_usage`)."""
        return Frame(block(compact({**self.head, "choices": [], "usage": usage})))

    def _arguments(self, piece: str, number: int) -> Frame:
        delta = {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}
        return self._frame(delta, 0, arguments=piece)

    def _thought(self, piece: str) -> object:
        return [{"type": "reasoning.text", "text": piece}] if self.reasoning_field == "reasoning_details" else piece

    def _frame(
        self,
        delta: Mapping[str, object],
        index: int,
        *,
        finish: str | None = None,
        more: Mapping[str, object] | None = None,
        token: bool = False,
        text: str = "",
        reasoning: str = "",
        arguments: str = "",
    ) -> Frame:
        choice: dict[str, object] = {"index": index} if self.indexed else {}
        choice["delta"] = delta
        if finish or self.null_finish:
            choice["finish_reason"] = finish
        chunk = {**self.head, "choices": [choice], **(more or {})}
        data = block(compact(chunk, ascii_only=self.ascii_only))
        return Frame(data, token or bool(text or reasoning or arguments), text, reasoning, arguments)


def chat_usage(
    input_tokens: int, output_tokens: int, *, cached: int | None = None, reasoning: int | None = None
) -> dict[str, object]:
    """Usage with OpenAI's names (tokens); `output_tokens` includes `reasoning`, `input_tokens` includes `cached`."""
    usage: dict[str, object] = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    if reasoning is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return usage


def whole_chat(head: Mapping[str, object], text: str, finish: str, usage: Mapping[str, object]) -> dict[str, object]:
    """The response to a request without `stream`."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
