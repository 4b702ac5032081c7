"""The generated text of open streams, gathered until its tokens are counted: an assembler whose streams pass it on."""

from collections.abc import Callable, Hashable
from uuid import UUID

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.assembly.event_sink import StreamEventSink, compact_json
from streamgauge.core.assembly.repeated_output import MEDIA, REASONING, TEXT, TOOL
from streamgauge.core.assembly.state import StreamState, ToolState
from streamgauge.core.assembly.stream import Stream
from streamgauge.core.dialects import Dialect, Source
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record
from streamgauge.recount.tokenizer import Tokenizer, without_surrogates

# Gives the tokenizer of a model; None: it has no public one, or its vocabulary is missing.
TokenizerOf = Callable[[str | None], Tokenizer | None]

# Ends the id of the text that is the name of a call; a name may come in fragments.
NAME = "name"

# The most text of one stream (bytes of UTF-8), in all of its texts: of longer output only the characters are known. The
# longest answers of today's models have 128,000 tokens, about half a MiB.
MAX_TEXT = 1024 * 1024
# The most text of all open streams: the text of a stream that would exceed it is dropped, as if it were too long.
MAX_GATHERED = 256 * 1024 * 1024
# The most texts of one stream that are gathered at once: answers, reasoning, arguments of calls. For a further one the
# oldest ends; if more of it comes, a token may be split. Recorded streams hold at most 16 items, of which 3 are open.
MAX_TEXTS = 64


class Memory:
    """The bytes that all open streams together may still gather."""

    def __init__(self) -> None:
        self.left = MAX_GATHERED


class Output:
    """The output of one stream. `model`: the one that decided the tokenizer. `is_split`: a text was counted in two parts.
    `is_too_long`: its text exceeds a bound, and is not counted.
    """

    def __init__(self, state: StreamState, tokenizer_of: TokenizerOf, memory: Memory) -> None:
        self._state, self._tokenizer_of, self._memory = state, tokenizer_of, memory
        self._tokens = {False: 0, True: 0}  # of ended texts: of the answer, and of reasoning
        self._open: dict[Hashable, tuple[bool, bytearray]] = {}
        # Texts by id of which it is not known yet whether each is new, or all text so far; None once it is known.
        self.undecided: dict[Hashable, list[str] | None] = {}
        self._size = 0
        self._is_begun = False
        self.tokenizer: Tokenizer | None = None
        self.model: str | None = None
        self.has_media = self.is_split = self.is_too_long = False

    def add(self, text_id: Hashable, text: str, *, reasoning: bool = False) -> None:
        """Append text to the text with this id."""
        self._begin()
        if self.tokenizer is None or self.is_too_long:
            return
        data = text.encode("utf-8", "surrogatepass")
        self._size += len(data)
        if self._size > MAX_TEXT or len(data) > self._memory.left:
            self.is_too_long = True
            self.release()
            self._open.clear()
            return
        if text_id not in self._open:
            if len(self._open) >= MAX_TEXTS:
                self.is_split = True
                self._end(next(iter(self._open)))
            self._open[text_id] = reasoning, bytearray()
        self._open[text_id][1].extend(data)
        self._memory.left -= len(data)

    def replace(self, text_id: Hashable, text: str, *, reasoning: bool = False) -> None:
        """Set the text with this id, of which nothing has ended."""
        if text_id in self._open:
            size = len(self._open.pop(text_id)[1])
            self._size -= size
            self._memory.left += size
        self.add(text_id, text, reasoning=reasoning)

    def end(self, text_id: Hashable) -> None:
        """End the text with this id, if it is open."""
        if text_id in self._open:
            self._end(text_id)

    def _begin(self) -> None:
        """Choose the tokenizer, by the first model that is known when text comes. Masked text has no tokens."""
        if self._is_begun:
            return
        state, self._is_begun = self._state, True
        self.model = state.identity.response_model or (state.request.model if state.request else None)
        if state.opening is not None and state.opening.capture == "full":
            self.tokenizer = self._tokenizer_of(self.model)

    def _end(self, text_id: Hashable) -> None:
        reasoning, data = self._open.pop(text_id)
        self._memory.left += len(data)
        text = without_surrogates(data.decode("utf-8", "surrogatepass"))
        tokens = self.tokenizer.count(text) if self.tokenizer is not None and not self.is_too_long else None
        self.is_too_long = self.is_too_long or tokens is None
        self._tokens[reasoning] += tokens or 0

    def tokens(self, *, reasoning: bool) -> int | None:
        """The tokens of the answer with its tool calls, or of reasoning; None if they are not counted. Ends these texts."""
        for text_id in [text_id for text_id, (is_reasoning, _) in self._open.items() if is_reasoning == reasoning]:
            self._end(text_id)
        return None if self.is_too_long else self._tokens[reasoning]

    def release(self) -> None:
        """Give back the memory of open streams that its text takes: the stream has ended, or its text is dropped."""
        self._memory.left += sum(len(data) for _, data in self._open.values())
        self._memory = Memory()


class Outputs:
    """The outputs of streams that have no record yet."""

    def __init__(self, tokenizer_of: TokenizerOf) -> None:
        self._tokenizer_of = tokenizer_of
        self._of_stream: dict[bytes, Output] = {}
        self._memory = Memory()

    def assembler(self, limits: Limits) -> Assembler:
        """An assembler that passes the output of its streams on to here. Those of an earlier assembler are forgotten."""
        self._of_stream.clear()
        self._memory = Memory()
        return Assembler(limits, self._stream)

    def _stream(self, state: StreamState, stall_ns: int) -> Stream:
        output = self._of_stream[state.stream] = Output(state, self._tokenizer_of, self._memory)
        return _OutputStream(state, stall_ns, output)

    def take(self, record: Record) -> Output | None:
        """The output of the stream of this record; None if no segment of it was applied."""
        output = self._of_stream.pop(UUID(record.stream_id).bytes, None)
        if output is not None:
            output.release()
        return output


class _OutputStream(Stream):
    """A stream that reads each event on its own, and passes its output on."""

    def __init__(self, state: StreamState, stall_ns: int, output: Output) -> None:
        super().__init__(state, stall_ns)
        self._output = output

    def _may_batch(self) -> bool:
        return False

    def _new_sink(self) -> StreamEventSink:
        self._sink = _OutputSink(self.state, self._stall_ns, self._output)
        return self._sink


class _OutputSink(StreamEventSink):
    """Passes on the output that counts: what is repeated does not."""

    def __init__(self, state: StreamState, stall_ns: int, output: Output) -> None:
        super().__init__(state, stall_ns)
        self._output = output
        self._item: int | None = None

    def begin(self, dialect: Dialect | None, stamp: int | None, repeated: bool = False, timed: bool = True) -> None:
        self._item = None
        super().begin(dialect, stamp, repeated, timed)

    def part(self, item: int | None, source: Source) -> None:
        self._item = item
        super().part(item, source)

    def text_or_so_far(self, choice: int, value: object, *, reasoning: bool = False, may_repeat: bool = False) -> None:
        """Also gives the output the beginnings of earlier texts, once the lengths show that each text is new."""
        super().text_or_so_far(choice, value, reasoning=reasoning, may_repeat=may_repeat)
        state, text_id = self.choice(choice), (choice, REASONING if reasoning else TEXT, self._item)
        texts = self._output.undecided.setdefault(text_id, [])
        if state is None or texts is None or not isinstance(value, str):
            return
        texts.append(value)
        known = state.texts[reasoning]
        if known.in_pieces:
            self._output.replace(text_id, "".join(texts), reasoning=reasoning)
        if known.in_pieces or known.is_surely_so_far:
            self._output.undecided[text_id] = None

    def _add_name(self, choice: int, tool: ToolState, name: object) -> None:
        super()._add_name(choice, tool, name)
        if isinstance(name, str) and name and not self._repeated:
            self._output.add((*self._call(choice, tool), NAME), name)

    def _add_arguments(self, choice: int, tool: ToolState | None, value: object) -> None:
        super()._add_arguments(choice, tool, value)
        if value is None or value == "":
            return
        call = self._call(choice, tool)
        self._output.end((*call, NAME))
        self._output.add(call, value if isinstance(value, str) else compact_json(value))

    def _call(self, choice: int, tool: ToolState | None) -> tuple[int, int, int]:
        """The id of the text of a call's arguments; its last number is -1 for a call that has no state."""
        state = self.choice(choice)
        number = next((at for at, known in enumerate(state.tools if state else ()) if known is tool), -1)
        return choice, TOOL, number

    def _generate(self, choice: int, value: object, kind: int) -> int:
        size = super()._generate(choice, value, kind)
        if size and isinstance(value, str):
            if kind == MEDIA:
                self._output.has_media = True
            else:
                self._output.add((choice, kind, self._item), value, reasoning=kind == REASONING)
        return size
