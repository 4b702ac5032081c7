"""Envelopes of other streams: what one stream taught holds in the next of its dialect.

To learn one takes as long as to read some sixty events. That an event fits one that is known is seen in the time of one or
two; and where streams have ids in their deltas, two events are soon seen to be like a known one but for such values.
Beside the streams and not of them: what a stream says hangs on it as little as on what it learnt for itself.
"""

import re

from streamgauge.core.assembly.envelope import Delta, Envelope
from streamgauge.core.assembly.forms import SEPARATOR
from streamgauge.core.assembly.learning import learn
from streamgauge.core.formats.sse import write_event
from streamgauge.core.usage import UsageRules

# How many are kept, of all streams of a process: then it begins anew. Each is about 1 KB; a dialect has some ten signs.
MAX_KNOWN = 256

_BEHIND_VALUES = (b",", b"}", b"]")
_NUMBER = re.compile(rb"(:\s*)-?[0-9]+(?=\s*[,}])")

_known: dict[tuple[object, ...], Envelope] = {}


def envelope_of_one(one: Delta, dialect: str) -> Envelope | None:
    """An envelope that an event of this stream fits to the letter, and that two events of another one taught.

    There the second told nothing new behind the first; so the next will here.
    """
    known = _known.get((dialect, *one.sign))
    run = None if known is None else known.run([write_event(one.event)])
    return known if run is not None and run.text == one.text else None


def envelope_of(one: Delta, other: Delta, dialect: str, usage: UsageRules, volatile: frozenset[str]) -> Envelope | None:
    """What `learn` gives of two events, sooner where an envelope is known that is like theirs."""
    known = _known.get((dialect, *other.sign))
    envelope = None if known is None else _like(known, one, other)
    if envelope is None:
        envelope = learn(one, other, usage, volatile)
        if envelope is not None:
            if len(_known) >= MAX_KNOWN:
                _known.clear()
            _known[(dialect, *other.sign)] = envelope
    return envelope


def _like(known: Envelope, one: Delta, other: Delta) -> Envelope | None:
    """An envelope with the holes of a known one and the literals of these two events, if they say the same with it."""
    if '"' in other.event.name:  # where strings begin is told by counting quotes
        return None
    contents = [write_event(one.event), write_event(other.event)]
    literals = known.literals_in(contents[1])
    if literals is None or not _differ_in_values(SEPARATOR.join(known.literals), SEPARATOR.join(literals)):
        return None
    envelope = known if literals == known.literals else Envelope(other, literals, known.holes)
    run = envelope.run(contents)
    return envelope if run is not None and run.reads == len(contents) and run.text == one.text + other.text else None


def _differ_in_values(known: bytes, new: bytes) -> bool:
    """Whether two events, separators in place of what stands in their holes, differ in whole values of their JSON alone."""
    if b"\\" in known or b"\\" in new:
        return False
    ours, theirs = known.split(b'"'), new.split(b'"')  # by turns what is outside of strings, and inside
    return len(ours) == len(theirs) and all(
        one == other
        or (
            ours[at + 1].lstrip().startswith(_BEHIND_VALUES) and SEPARATOR not in one + other
            if at % 2
            else _NUMBER.sub(rb"\1", one) == _NUMBER.sub(rb"\1", other)
        )
        for at, (one, other) in enumerate(zip(ours, theirs, strict=True))
    )
