"""Envelopes of other streams: what one stream taught holds in the next, where no id of the stream stands in its deltas.

To learn one takes as long as to read some sixty events; that two events fit one that is known is seen in the time of two.
Beside the streams and not of them: what a stream says hangs on it as little as on what it learnt for itself.
"""

from streamgauge.core.envelope import Delta, Envelope
from streamgauge.core.learning import learn, says_the_same
from streamgauge.core.sse import write_event
from streamgauge.core.usage import UsageRules

# How many are kept, of all streams of a process: then it begins anew. Each is about 1 KB; a dialect has some ten signs.
MAX_KNOWN = 256

_known: dict[tuple[object, ...], Envelope] = {}


def envelope_of(one: Delta, other: Delta, dialect: str, usage: UsageRules, volatile: frozenset[str]) -> Envelope | None:
    """What `learn` gives of two events, or an envelope that fits both and was learnt of others of their dialect."""
    key = (dialect, *other.sign)
    known = _known.get(key)
    if known is not None and _fits(known, one, other):
        return known
    learnt = learn(one, other, usage, volatile)
    if learnt is not None:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[key] = learnt
    return learnt


def _fits(known: Envelope, one: Delta, other: Delta) -> bool:
    if not says_the_same(known.delta.given, other.given, known.counted):
        return False
    contents = [write_event(one.event), write_event(other.event)]
    if not contents[0].startswith(known.before):
        return False
    run = known.run(contents)
    return run is not None and run.reads == 2 and run.text == one.text + other.text
