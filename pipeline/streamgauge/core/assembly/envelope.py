"""The learned envelope: within one stream nearly all deltas are the same bytes around another text.

An envelope is literals, and holes between them. An event that consists of these literals to the letter, with something in
each hole that fits it, says what the events said from which it was learnt (`learning.py`), with its own text, and nobody
needs to decode it. What does not fit is read in the ordinary way: an envelope changes how fast a stream is read, and
nothing else.
"""

import bisect
from collections.abc import Sequence
from itertools import accumulate, chain, zip_longest

import msgspec

from streamgauge.core.assembly.forms import BLANK, Hole, Lines, Path, Run, Texts, Values, is_plain, split_at_blanks
from streamgauge.core.formats.sse import MAX_EVENT_BYTES, Event

# Where Gemini's Interactions put an event's id, instead of into its `id` field.
EVENT_ID = "event_id"


class Delta(msgspec.Struct, frozen=True, gc=False):
    """An event that told one piece of output.

    `kind`, `choice`, `key`: as what it was told. `usage`: where in the event the usage stands that was told, and `given`
    that usage. `raw`: the data is the text itself, no JSON. `is_numbered`, `is_named`: its JSON holds a sequence number,
    an id.
    """

    event: Event
    kind: int
    choice: int
    key: int | None
    text: str
    usage: Path | None = None
    given: object = None
    raw: bool = False
    is_numbered: bool = False
    is_named: bool = False

    @property
    def sign(self) -> tuple[object, ...]:
        """What two events have in common that say the same but for their text."""
        of_event = self.event.name, self.event.id is None, self.is_numbered, self.is_named
        return self.kind, self.choice, self.key, self.usage, self.raw, *of_event


class Envelope:
    """Literals with holes between them. `delta`: an event that said what all of them say, text aside.

    Values are cut out by the literals' lengths, and put between the literals again: only if that gives the very bytes
    they are the event's. (So streams whose ids have one length share a pattern, and the compiler's cache has it.)
    """

    def __init__(self, delta: Delta, literals: Sequence[bytes], holes: Sequence[tuple[Hole, Path]]) -> None:
        self.delta = delta
        self.counted = [path for kind, path in holes if kind is Hole.USAGE]
        self.before, self._after = literals[0], literals[-1]
        self.only_text = [kind for kind, _ in holes] == [Hole.TEXT]
        self.literals, self.holes = literals, holes
        self._form = self._form_of(literals)
        self._bare: Texts | Values | None = None

    def _form_of(self, literals: Sequence[bytes]) -> Texts | Values:
        if self.only_text:
            return Texts(literals[0], literals[-1])
        of_lines = [kind for kind, _ in self.holes] == [Hole.ID, Hole.LINE]
        return (Lines if of_lines else Values)(literals, self.holes)

    def literals_in(self, content: bytes) -> list[bytes] | None:
        """What stands around the holes of one event whose literals are as long as these; None if there is none such."""
        values = self._form.values(content)
        if values is None:
            return None
        literals, at = [], 0
        for literal, value in zip_longest(self.literals, values, fillvalue=b""):
            literals.append(content[at : at + len(literal)])
            at += len(literal) + len(value)
        return literals if at == len(content) else None

    def plain_text(self, content: bytes) -> str | None:
        """The text of a content that is one event of text alone, without an escape in it; else None."""
        text = content[len(self.before) : -len(self._after)]
        if not (content.endswith(self._after) and text.isascii() and is_plain(text)) or len(content) > MAX_EVENT_BYTES:
            return None
        return text.decode() if content.startswith(self.before) else None

    def run(self, contents: Sequence[bytes]) -> Run | None:
        """What reads' contents say, each of whole events, up to one that is not all of this envelope; None if none is."""
        first = contents[0]
        if first.find(BLANK) + len(BLANK) == len(first):
            return self._form.read(contents)
        return self._several(contents)

    def _several(self, contents: Sequence[bytes]) -> Run | None:
        """The same, if some hold several events."""
        if not contents[0].startswith(self.before):
            return None
        # Values hold no blank line: where each content ends with one, no event lies across two of them.
        parts = [split_at_blanks(content) for content in contents]
        whole = next((at for at, part in enumerate(parts) if part.pop() or not part), len(parts))
        events = [len(part) for part in parts[:whole]]
        blocks = list(chain.from_iterable(parts[:whole]))
        ends = list(accumulate(events))  # reads that are not all of this envelope are not taken
        found = self.blocks(blocks, ends) if blocks else None
        if found is not None and found.reads not in ends:
            events = events[: bisect.bisect_right(ends, found.reads)]
            found = self.blocks(blocks[: sum(events)]) if events else None
        if found is not None:
            reads = bisect.bisect_right(ends, found.reads)
            found.reads, found.events = reads, events[:reads]
        return found

    def blocks(self, blocks: Sequence[bytes], ends: Sequence[int] = ()) -> Run | None:
        """What events say that were split at their blank lines, as `Texts.read` does."""
        if self._bare is None:
            self._bare = self._form_of([*self.literals[:-1], self.literals[-1].removesuffix(BLANK)])
        return self._bare.read(blocks, ends)
