"""Masking without decoding: within one stream nearly all events are masked alike, so what they become is learnt.

From two events that were masked alike a form is learnt: the literals that they share, and for each value in which they
differ how it is masked, which hangs on its place and on itself alone. An event that consists of these literals to the
letter becomes the masked literals with its own values masked between them. Whatever does not fit is decoded and masked
in the ordinary way: this changes how fast events are masked, and nothing else. What other streams taught is asked for first.
"""

import re
from collections.abc import Sequence

from streamgauge.core.assembly.forms import BLANK, SEPARATOR, split_at_blanks
from streamgauge.core.assembly.learning import MAX_EVENT
from streamgauge.core.formats.sse import write_event
from streamgauge.core.masking.mask_forms import MaskForm
from streamgauge.core.masking.mask_learning import Masked, learn_mask
from streamgauge.core.masking.shared_masks import Borrower

# Forms that a stream keeps, and events that wait for a second one alike: text and reasoning of two choices, say.
MAX_FORMS = 4
# How often learning may fail before a form proved right again: a stream whose events share nothing is masked as fast as
# without it. One try takes about as long as to mask three events.
MAX_TRIES = 12
# How often what other streams taught may be asked for in vain, one after the other.
MAX_BORROWS = 8
# Larger contents are masked in the ordinary way (bytes): a read holds less, and an event has its own cap.
MAX_CONTENT = 256 * 1024

_VALUES = re.compile(rb"x+|[0-9]+")  # what masked events of one form differ in


class KnownMasks:
    """What was learnt of one stream's masking. `rules`: the name of those by which it is masked; None until it is settled.

    `events`: how many were masked by what was learnt.
    """

    def __init__(self) -> None:
        self.rules: str | None = None
        self.events = 0
        self._borrower = Borrower()
        self._borrows = MAX_BORROWS
        self._forms: list[MaskForm] = []
        self._seen: dict[bytes, Masked] = {}
        self._tries = MAX_TRIES

    def plain(self, content: bytes) -> bytes | None:
        """What a content of one event becomes that holds nothing but plain text; None for any other."""
        for form in self._forms:
            plain = form.plain(content)
            if plain is not None:
                self._tries = MAX_TRIES
                self.events += 1
                return plain
        return None

    def each(self, contents: Sequence[bytes]) -> list[bytes]:
        """What contents of whole events become, one by one, up to one that has an event of another form than the first."""
        blocks = [content[: -len(BLANK)] for content in contents]
        if b"".join([block + BLANK for block in blocks]) != b"".join(contents):
            return []
        several = BLANK in SEPARATOR.join(blocks)
        if several:
            blocks = split_at_blanks(b"".join(contents))[:-1]
            if not all(blocks) or b"\n" in {block[:1] for block in blocks}:
                return []  # more than one blank line: which is whose cannot be seen at a glance
        for form in self._forms:
            each = form.each(blocks)
            if each:
                self._tries = MAX_TRIES
                self.events += len(each)
                return _by_contents(each, contents) if several else each
        return []

    def mask(self, content: bytes) -> tuple[bytes, bytes]:
        """The masked events at the beginning of a content that begins with a block, and what is left of it as it is."""
        plain = self.plain(content)
        if plain is not None:
            return plain, b""
        if not (self._forms or self._borrows_now) or len(content) > MAX_CONTENT:
            return b"", content
        if b"\r" not in content:
            return self._whole(content)
        end = content.rfind(b"\r\n\r\n") + 4
        if end < 4 or content.count(b"\r", 0, end) != content.count(b"\r\n", 0, end):
            return b"", content
        masked, left = self._whole(content[:end].replace(b"\r\n", b"\n"))
        return masked, left.replace(b"\n", b"\r\n") + content[end:]

    def _whole(self, content: bytes) -> tuple[bytes, bytes]:
        if content.find(BLANK) + len(BLANK) != len(content):
            return self._several(content)
        for form in self._forms:
            one = form.one(content)
            if one is not None:
                self._tries = MAX_TRIES
                self.events += 1
                return one, b""
        borrowed = self._borrowed(content)
        self.events += borrowed is not None
        return (b"", content) if borrowed is None else (borrowed, b"")

    def _several(self, content: bytes) -> tuple[bytes, bytes]:
        *blocks, rest = split_at_blanks(content)
        done: list[bytes] = []
        while blocks:
            count, masked = next((found for form in self._forms if (found := form.mask(blocks))[0]), (0, b""))
            if not count:
                borrowed = self._borrowed(blocks[0] + BLANK)
                if borrowed is None:
                    break
                count, masked = 1, borrowed
            self._tries = MAX_TRIES
            self.events += count
            done.append(masked)
            blocks = blocks[count:]
        return b"".join(done), b"".join([block + BLANK for block in blocks]) + rest

    @property
    def _borrows_now(self) -> bool:
        return self.rules is not None and self._borrows > 0

    def _borrowed(self, content: bytes) -> bytes | None:
        """What one event becomes, by what another stream taught, which this one then knows; None if none did."""
        found = self._borrower.borrow(self.rules, content) if self.rules is not None and self._borrows else None
        if found is None:
            self._borrows -= self._borrows > 0
            return None
        self._borrows = MAX_BORROWS
        became, form = found
        if form is not None:
            self._forms = [form, *self._forms[: MAX_FORMS - 1]]
        return became

    def forget(self) -> None:
        """The stream is not what it seemed: nothing that was learnt holds."""
        self.rules, self._forms, self._seen, self._borrower = None, [], {}, Borrower()

    def see(self, masked: Masked) -> None:
        """An event was masked in the ordinary way."""
        if not self._tries or len(masked.block) > MAX_EVENT:
            return
        sign = _VALUES.sub(b"", write_event(masked.became))
        before = self._seen.pop(sign, None)
        self._seen[sign] = masked
        if len(self._seen) > MAX_FORMS:
            del self._seen[next(iter(self._seen))]
        if self.rules is not None:
            self._borrower.teach(self.rules, before, masked)
        if before is not None and before.block != masked.block:
            form = learn_mask(before, masked)
            self._tries -= 1
            if form is not None:
                self._forms = [form, *self._forms[: MAX_FORMS - 1]]


def _by_contents(events: Sequence[bytes], contents: Sequence[bytes]) -> list[bytes]:
    """Events by the contents that they came in, as far as there are enough."""
    found: list[bytes] = []
    first = 0
    for content in contents:
        last = first + content.count(BLANK)
        if last > len(events):
            break
        found.append(b"".join(events[first:last]))
        first = last
    return found
