"""What the usage of each record adds to the counters, so that a stream and the legs that continue it count once.

A leg adds what it tells above that which its stream and the stream's other legs have added already, number by number: a
counter cannot go down, so one that tells less adds nothing. Any other record adds all that it tells. A leg of a stream
that is not known here adds it too, less what its dialect tells before anything that could be continued.

Known is what this process observed lately, in order of its observations. Other workers know other streams, a restart forgets
all of them, and a stream that ends after its leg is not looked for. The ledger sees all, and is the truth.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from streamgauge.core.assembly.resumption import Key, Known, Streams
from streamgauge.core.record import Record

# Keys of a generation; a record has one to six (core/assembly/resumption.py), a chat stream two. So the last 2,048 to 4,096
# chat streams that broke are known, hours of them, and as many of those that completed, from which few legs start, and soon.
# All is 7 MB then; 20 MB if every record has one key only, as long as may be, and tells every number.
MAX_GENERATION_KEYS = 4_096
# A tap writes ids of 256 characters at most (core/safe_values.py). A record with a longer one is forged, and not remembered.
MAX_ID_CHARS = 256

# What a stream tells of its usage before anything that a leg could continue: a leg of this dialect may tell it once more. It
# is left out where the stream is not known here, for then another worker has counted it, or this one before its restart.
_TOLD_FIRST: Mapping[str | None, frozenset[str]] = {
    # message_start has all of input: https://platform.claude.com/docs/en/build-with-claude/streaming
    "anthropic-messages": frozenset({"input", "cached", "cache_write", "cache_write_1h", "audio_input"}),
}

_Value = TypeVar("_Value")


class Recent(Generic[_Value]):
    """A table of what was set last: when a generation is full a new one begins, and the one before the last is forgotten."""

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._young: dict[Key, _Value] = {}
        self._old: dict[Key, _Value] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Key, /) -> _Value | None:
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def __setitem__(self, key: Key, value: _Value, /) -> None:
        if len(self._young) >= self._max_keys and key not in self._young:
            self._young, self._old = {}, self._young
        self._young[key] = value


@dataclass(slots=True)
class Share:
    """What a stream has added so far: tokens by kind, under the model of its first record."""

    model: str
    tokens: dict[str, int]


class Continued:
    """The memory of what was counted lately. Not locked: `prometheus.Metrics` does that."""

    def __init__(self, max_keys: int = MAX_GENERATION_KEYS) -> None:
        self._broken: Recent[Known[Share]] = Recent(max_keys)
        self._completed: Recent[Known[Share]] = Recent(max_keys)
        self._streams = Streams(self._broken, self._completed)

    def __len__(self) -> int:
        """Keys that are held."""
        return len(self._broken) + len(self._completed)

    def share_of(self, record: Record, model: str, told: Mapping[str, int]) -> Share:
        """What a record adds, of what it told of each kind. Each record is to be given once.

        `model` is the label's value for this record; that of the answer is the one under which it counts.
        """
        stream = self._streams.continued_by(record)
        if stream is None:
            stream = Share(model, _counted_elsewhere(record, told))
        if _is_short(record):
            self._streams.add(record, stream)
        counted = stream.tokens
        added = {kind: tokens - counted.get(kind, 0) for kind, tokens in told.items() if tokens > counted.get(kind, 0)}
        for kind in added:
            counted[kind] = told[kind]
        return Share(stream.model, added)


def _counted_elsewhere(record: Record, told: Mapping[str, int]) -> dict[str, int]:
    """Of what the first known record of a stream told, that which the stream has told before it."""
    if record.resumed_from is None:
        return {}
    first = _TOLD_FIRST.get(record.dialect, frozenset())
    return {kind: tokens for kind, tokens in told.items() if kind in first}


def _is_short(record: Record) -> bool:
    ids = (record.upstream, record.credential_id, record.request_digest, record.response_id, record.last_event_id)
    return max([len(one) for one in ids if one is not None], default=0) <= MAX_ID_CHARS
