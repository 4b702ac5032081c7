"""Decides which output of an event is new, if a stream reports the same output more than once.

An answer of OpenAI's Responses is a list of items. Deltas bring the output of an item, and closing events repeat it: the
`*.done` of a text, then `content_part.done` and `output_item.done`. Some servers send closing events alone, for short
texts or for all. So the first source that brings an output counts, and every other source repeats it.

`StreamState.items` holds that source for each item (by its index) and each kind of output, three bits for each kind. Other
events close the whole answer (Perplexity's chat.completion.done): the totals of the stream show what they repeat.
"""

from streamgauge.core.assembly.state import StreamState
from streamgauge.core.dialects.contract import Source
from streamgauge.core.resumption import begins_later

# Kinds of generated output, as bits: one event may carry several.
TEXT, REASONING, TOOL, MEDIA, REFUSAL = 1, 2, 4, 8, 16
# The kinds that `items` tracks. A tool call has a state of its own, which shows what was reported.
_OF_ITEMS = TEXT | REASONING | MEDIA | REFUSAL
_KINDS = (TEXT, REASONING, MEDIA, REFUSAL)

# Items of an answer that are tracked (count), at some six bytes of state each. Recorded answers have up to 16 items,
# with 3 open at once. A new item replaces the oldest one that is over. If none is over, the new item is not tracked.
# After that the output of closing events of untracked items does not count, and the record has the reason
# `state_limit`.
MAX_ITEMS = 128

# The index in `items` for events that name no item.
_UNPLACED = -1

# This index is in `items` once an item could not be tracked.
_OVERFLOWED = -2

# The bit of an item that is set once its output_item.done was read; it is above the bits of the sources.
_IS_OVER = 1 << 15

# Each text and each part of an item has its own closing event, so one item may have several of the same source.
_SEVERAL_IN_AN_ITEM = (Source.TEXT_DONE, Source.PART_DONE)


class Repetition:
    """The repeated output of an event that belongs to an item or closes something. Call `part` or `whole`, then `is_new`."""

    def __init__(self, state: StreamState) -> None:
        self._state = state
        self._item: int | None = None
        self._source = Source.DELTA
        self._closes = False
        self._repeated = 0
        self.is_whole = False  # the event reports the whole answer, and all earlier events were seen

    @property
    def sees_all(self) -> bool:
        """Whether all earlier events were seen: the capture has the stream's beginning, and no reads are missing."""
        return not begins_later(self._state.opening) and self._state.timing.first_gap is None

    def part(self, item: int | None, source: Source) -> None:
        """The event reports output of this item of the answer (None: it names none)."""
        self._item, self._source = _UNPLACED if item is None else item, source
        self._closes, self.is_whole = source is not Source.DELTA, False
        items = self._state.items
        if not self._closes:
            self._repeated = 0
        elif items is None or not self.sees_all:
            self._repeated = _OF_ITEMS
        else:
            self._repeated = _repeated(items, self._item, source)
            if source is Source.ITEM_DONE and self._item in items:
                items[self._item] |= _IS_OVER

    def whole(self) -> None:
        """The event reports the whole answer."""
        self._item, self._source, self._closes = None, Source.DELTA, True
        self.is_whole = self.sees_all
        if not self.is_whole:
            self._repeated = _OF_ITEMS | TOOL
            return
        counts, items = self._state.counts, self._state.items
        reported = {
            TEXT: counts.text_chars,
            REASONING: counts.reasoning_chars,
            REFUSAL: counts.refusal_chars,
            MEDIA: items is None or any(_source_of(known, MEDIA) for known in items.values()),
        }
        self._repeated = sum([kind for kind, is_reported in reported.items() if is_reported])

    def repeats(self, kind: int) -> bool:
        """Whether the event only repeats output of this kind."""
        return bool(self._repeated & kind)

    def is_new(self, kind: int, *, is_first: bool) -> bool:
        """Whether the event's output of this kind counts. If so, record the source that brought it.

        `is_first`: the event reports the whole answer, and no earlier event brought output of the same choice.
        """
        if self._repeated & kind and not is_first:
            return False
        items, item = self._state.items, self._item
        if item is None and kind == MEDIA:
            item = _UNPLACED  # the totals of a stream do not count media
        if items is None or item is None or not kind & _OF_ITEMS:
            return True
        known = items.get(item, 0)
        if _source_of(known, kind):
            return True
        if item not in items and not _has_room(items, self._closes):
            self._state.loss.state_limit |= self._closes
            return not self._closes
        is_over = _IS_OVER if self._source is Source.ITEM_DONE else 0
        items[item] = known | self._source << _shift(kind) | is_over
        return True


def is_tracked(items: dict[int, int], item: int | None, kind: int) -> bool:
    """Whether a source of this kind of output of an item is known (None: of events that name none)."""
    return bool(_source_of(items.get(_UNPLACED if item is None else item, 0), kind))


def _repeated(items: dict[int, int], item: int, source: Source) -> int:
    """The kinds of output that a closing event of this item repeats."""
    known = list(items.values()) if item == _UNPLACED else [items.get(item, 0), items.get(_UNPLACED, 0)]
    repeated = 0
    for kind in _KINDS:
        sources = {_source_of(tracked, kind) for tracked in known} - {0}
        if sources and not (sources == {source} and source in _SEVERAL_IN_AN_ITEM):
            repeated |= kind
    return repeated


def _has_room(items: dict[int, int], closes: bool) -> bool:
    """Whether another item can be tracked. If `items` is full, remove the oldest one that is over.

    `closes`: a closing event brings the item. It may repeat deltas of an item that could not be tracked.
    """
    if closes and _OVERFLOWED in items:
        return False
    if len(items) < MAX_ITEMS:
        return True
    over = next((item for item, known in items.items() if known & _IS_OVER), None)
    if over is None:
        items[_OVERFLOWED] = 0
    else:
        del items[over]
    return over is not None


def _source_of(known: int, kind: int) -> int:
    """The source that brought the output of this kind of an item; 0 if none did."""
    return known >> _shift(kind) & 7


def _shift(kind: int) -> int:
    return 3 * (kind.bit_length() - 1)
