"""The additions of each record's usage to the counters, so that a stream and the streams that resume it count once.

For each kind of tokens, a resumed stream adds max(0, reported - already counted for this stream), since a counter cannot go
down. Already counted is what its origin and the origin's other resumed streams have added. Any other record adds
all that it reports. A resumed stream whose origin is not known here adds its usage, too, except for what its dialect reports
before anything that can be resumed.

A process knows only the streams that it observed recently, in the order of its observations. It does not know the streams
of other workers, or of the time before its start; and it does not find an origin that ends after the stream that resumes
it. The ledger has all records and is authoritative.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from streamgauge.core.record import Record
from streamgauge.core.resumption import Key, Known, Streams, is_resumed
from streamgauge.core.token_kinds import TokenKinds, growth, token_kinds

# Limit of keys in a generation. A record has one to six keys (core/resumption.py), a chat stream two. So the
# last 2,048 to 4,096 chat streams that broke are known, which is hours of them. As many completed ones are known; few
# of those are resumed, and soon. This takes 7 MB; at most 20 MB, if every record has one key only, of the largest
# length, and reports every kind.
MAX_GENERATION_KEYS = 4_096
# A tap writes ids of at most 256 characters (core/safe_values.py). A record with a longer id is forged, and is not
# kept.
MAX_ID_CHARS = 256

# Kinds that a stream of this dialect reports before anything that can be resumed, so that a resumed stream may report
# them again. They are not counted if the origin is unknown here: another worker counted them, or this one before its
# restart.
_REPORTED_FIRST: Mapping[str | None, frozenset[str]] = {
    # message_start has all of input: https://platform.claude.com/docs/en/build-with-claude/streaming
    "anthropic-messages": frozenset({"input", "cached", "cache_write", "audio_input"}),
}

_Value = TypeVar("_Value")


class Recent(Generic[_Value]):
    """A table that keeps the latest entries: when a generation is full, a new one begins and the one before the last is
    dropped.
    """

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._young: dict[Key, _Value] = {}
        self._old: dict[Key, _Value] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Key, /) -> _Value | None:
        """The value of a key; None if the key was never set, or its entry was evicted."""
        value = self._young.get(key)
        return self._old.get(key) if value is None else value

    def __setitem__(self, key: Key, value: _Value, /) -> None:
        if len(self._young) >= self._max_keys and key not in self._young:
            self._young, self._old = {}, self._young
        self._young[key] = value


@dataclass(slots=True)
class Share:
    """The usage that a stream and those that resume it have added: tokens by kind, under the model of the first record."""

    model: str
    tokens: dict[str, int]


@dataclass(frozen=True, slots=True)
class Addition:
    """The addition of a record: tokens by kind, and the model under which they count.

    `before` and `after`: what its stream and the streams that resume it have reported without and with this record.
    """

    model: str
    tokens: dict[str, int]
    before: dict[str, int]
    after: dict[str, int]


class ResumedUsage:
    """The usage that was counted recently, by stream. Not thread-safe: `prometheus.Metrics` holds the lock."""

    def __init__(self, max_keys: int = MAX_GENERATION_KEYS) -> None:
        self._broken: Recent[Known[Share]] = Recent(max_keys)
        self._completed: Recent[Known[Share]] = Recent(max_keys)
        self._streams = Streams(self._broken, self._completed)

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._broken) + len(self._completed)

    def share_of(self, record: Record, model: str, reported: Mapping[str, int]) -> Addition:
        """The addition of a record that reports these tokens by kind. Call it once for each record.

        `model` is the label's value for this record.
        """
        stream = self._streams.continued_by(record)
        if stream is None:
            stream = Share(model, _counted_elsewhere(record, reported))
        if _is_short(record):
            self._streams.add(record, stream)
        counted, before = stream.tokens, dict(stream.tokens)
        added = {
            kind: tokens - counted.get(kind, 0) for kind, tokens in reported.items() if tokens > counted.get(kind, 0)
        }
        for kind, tokens in reported.items():
            counted[kind] = max(tokens, counted.get(kind, 0))
        return Addition(stream.model, added, before, dict(counted))


def added_by_kind(kinds: TokenKinds, addition: Addition) -> dict[str, int]:
    """The growth of each kind's count; 0 for a kind that is reported and does not grow. `kinds`: of the record alone."""
    if not addition.before:
        return {**kinds.input, **kinds.output}
    before, after = token_kinds(addition.before), token_kinds(addition.after)
    added = growth(before.input, after.input) | growth(before.output, after.output)
    return {kind: added.get(kind, 0) for kind in (*after.input, *after.output)}


def _counted_elsewhere(record: Record, reported: Mapping[str, int]) -> dict[str, int]:
    """The part of a resumed stream's usage that its unknown origin has reported already; empty for other records."""
    if not is_resumed(record):
        return {}
    first = _REPORTED_FIRST.get(record.dialect, frozenset())
    return {kind: tokens for kind, tokens in reported.items() if kind in first}


def _is_short(record: Record) -> bool:
    ids = (record.upstream, record.credential_id, record.request_digest, record.response_id, record.last_event_id)
    return max([len(text) for text in ids if text is not None], default=0) <= MAX_ID_CHARS
