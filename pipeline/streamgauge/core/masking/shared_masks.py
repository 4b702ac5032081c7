"""Mask forms of other streams: what two streams taught holds in the next one that is masked by the same rules.

To learn a form takes as long as to mask some five events, which short streams never win back. Two streams' events that
became the same but for their values have a form together, with holes where ids are as well. An event of a third stream
that is of this form is masked by it; with its own ids in place of their holes it is that stream's form from then on.
Beside the streams and not of them: what an event becomes hangs on it as little as on what its stream learnt for itself.
"""

import re

from streamgauge.core.assembly.forms import BLANK, Hole
from streamgauge.core.formats.sse import write_event
from streamgauge.core.masking.mask_forms import MaskForm
from streamgauge.core.masking.mask_learning import Masked, learn_mask

# Forms that are kept for each dialect, the one used last first: some three for each model's way to write its deltas.
MAX_FORMS = 16
# Events that wait for one of another stream, of all dialects: then it begins anew. Each is some KB at most.
MAX_WAITING = 256
# Events that are the same in several streams, of all dialects: then it begins anew.
MAX_SAME = 256
# How often learning may fail for events that look alike, before a form of theirs was of use.
MAX_TRIES = 8

# What masked events of one form differ in: numbers, texts, and what holds a digit, as ids do.
_VALUES = re.compile(rb'(?<=:")[^"\\]*[0-9][^"\\]*(?=")|x+|[0-9]+')
_TEXTS = (Hole.TEXT, Hole.LINE)


class SharedMask:
    """A form of two streams. `open_at`: the places of its holes that change within a stream, as far as is known."""

    def __init__(self, form: MaskForm, open_at: set[int]) -> None:
        self.form, self.open_at = form, open_at


class _Waiting:
    """An event, one before it that became the same but for its values (None: not yet), and whose they are."""

    def __init__(self, stream: object, before: Masked | None, last: Masked) -> None:
        self.stream, self.before, self.last = stream, before, last
        self.tries = MAX_TRIES


class Borrower:
    """One stream's way to what others taught."""

    def __init__(self) -> None:
        self._had: dict[SharedMask, list[bytes]] = {}  # the values of the event for which it was borrowed

    def borrow(self, rules: str, content: bytes) -> tuple[bytes, MaskForm | None] | None:
        """What an event becomes, with its blank line, and the form of those like it; None if no other stream taught that."""
        same = _same.get((rules, content))
        if same is not None:
            return same, None
        forms = _forms.get(rules, [])
        for place, shared in enumerate(forms):
            values = shared.form.values(content)
            became = None if values is None else shared.form.filled(values)
            if values is None or became is None:
                continue
            if place:
                forms.insert(0, forms.pop(place))
            had = self._had.get(shared)
            if had is not None:
                shared.open_at.update(
                    at for at, (one, other) in enumerate(zip(had, values, strict=True)) if one != other
                )
            self._had[shared] = list(values)
            return became, shared.form.narrowed(values, shared.open_at)
        return None

    def teach(self, rules: str, before: Masked | None, last: Masked) -> None:
        """An event that was masked in the ordinary way; `before`: one of the same stream that became the like."""
        key = rules, _VALUES.sub(b"", write_event(last.became))
        waiting = _waiting.get(key)
        if waiting is None or waiting.stream is self:
            tries = MAX_TRIES if waiting is None else waiting.tries
        else:
            tries = waiting.tries and waiting.tries - 1
            shared = _learn(waiting, before, last) if waiting.tries else None
            if waiting.last.block == last.block:
                _keep_same(rules, last)
                tries = MAX_TRIES
            elif shared is not None:
                _forms[rules] = [shared, *_forms.get(rules, [])[: MAX_FORMS - 1]]
                tries = MAX_TRIES
        if len(_waiting) >= MAX_WAITING:
            _waiting.clear()
        _waiting[key] = now = _Waiting(self, before, last)
        now.tries = tries


def _learn(waiting: _Waiting, before: Masked | None, last: Masked) -> SharedMask | None:
    """The form of events of two streams. What is not kept of a string may tell one stream from another: that is no hole,
    unless it changes within a stream.
    """
    if waiting.last.spec is not last.spec or waiting.last.block == last.block:
        return None
    form = learn_mask(waiting.last, last)
    if form is None:
        return None
    changing = _changing(form, waiting.before, waiting.last) | _changing(form, before, last)
    holes = form.holes
    if any(kind is Hole.STRING and not kept and at not in changing for at, (kind, kept) in enumerate(holes)):
        return None
    return SharedMask(form, changing | {at for at, (kind, _) in enumerate(holes) if kind in _TEXTS})


def _keep_same(rules: str, masked: Masked) -> None:
    if len(_same) >= MAX_SAME:
        _same.clear()
    _same[(rules, masked.block + BLANK)] = write_event(masked.became)


def _changing(form: MaskForm, before: Masked | None, last: Masked) -> set[int]:
    ours = form.values(last.block + BLANK)
    theirs = None if before is None else form.values(before.block + BLANK)
    if ours is None or theirs is None:
        return set()
    return {at for at, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other}


_forms: dict[str, list[SharedMask]] = {}
_waiting: dict[tuple[str, bytes], _Waiting] = {}
_same: dict[tuple[str, bytes], bytes] = {}  # events that are the same in several streams, and what they become


def forget_all() -> None:
    """As if no stream had taught anything."""
    _forms.clear()
    _waiting.clear()
    _same.clear()
