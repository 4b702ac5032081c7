"""The tap's balance of responses, by upstream: seen = with a record + without one, by reason; in mapped files that survive
SIGKILL.

The folder `responses` beside the counters file (read_counters.py) has a file for each role, which only the process in that
role writes. A file has MAX_UPSTREAMS entries: a name, then 8-byte counts. So of the responses that taps see

    seen = records + not captured, by upstream

once all streams have ended and are delivered. A relay or an application counts a response as seen: with its reason where it
is not captured, and as `handed_over` when the message that begins its stream was sent to the recorder. What an ended process
saw and did not hand over is `crash`. What a killed *recorder* had not yet written into the spool is not known by response:
only its reads are counted (`read_counters.DropReason.CRASH`).
"""

import mmap
from collections import Counter
from enum import StrEnum
from pathlib import Path

import msgspec

from streamgauge.spool.mapped_file import WORD, map_existing, open_mapped


class NotCaptured(StrEnum):
    """Reasons why a response has no record. Add at the end: the order is the files' layout.

    A share of streams that is not kept in full (`--full-share`) is no reason: each of those streams has its record.
    """

    NOT_LLM = "not_llm"  # neither the request's path nor the response is a model's
    FORMAT = "format"  # a model's endpoint, or an event stream, of a format that is not read
    REFUSED = "refused"  # the relay answered by itself: `streamgauge_tap_refused_total` has the code
    PROTOCOL = "protocol"  # another protocol than HTTP/1.1, such as a WebSocket, that passes beside the tap
    LIMIT = "limit"  # more streams, or pipelined requests, than the tap follows
    RECORDER_BEHIND = "recorder_behind"  # the buffer before the recorder was full when the request began
    RECORDER_GONE = "recorder_gone"  # the tap ended before a recorder took the beginning of the stream
    CAPTURE_FAULT = "capture_fault"  # a bug of ours before the stream's capture had begun
    SPOOL_LOST = "spool_lost"  # the disk took nothing of the stream
    BROKER_REFUSED = "broker_refused"  # the broker refused the bundle that held the whole stream
    PACKETS_LOST = "packets_lost"  # the packets with the response's head were not captured
    STOPPING = "stopping"  # the packet tap was ending when the request began
    CRASH = "crash"  # a relay or an application was killed before it had sent the beginning of the stream


# The role of the assembler in `up`; read_counters.py has the others.
ASSEMBLER = "assembler"

# The name of an upstream that is not known, and of those beyond MAX_UPSTREAMS, as in metrics.
UNKNOWN, OTHER = "unknown", "other"
# As many as the label `upstream` of metrics may have values; a longer name is cut (bytes).
MAX_UPSTREAMS = 64
MAX_NAME = 80

_LAYOUT = b"SGRESP01"
_NAME_WORDS = MAX_NAME // WORD
_LENGTH, _NAME = 0, 1  # the length of the name, stored after the name: 0 in an entry that is not used
_SEEN = _NAME + _NAME_WORDS
_HANDED = _SEEN + 1
_REASONS = _HANDED + 1
_ENTRY = _REASONS + 20  # words of an entry, with space for more reasons
_SIZE = (1 + MAX_UPSTREAMS * _ENTRY) * WORD
_PLACES = {reason: _REASONS + number for number, reason in enumerate(NotCaptured)}


class Responses(msgspec.Struct):
    """Responses of one upstream. `not_captured` has the reasons that have occurred."""

    seen: int = 0
    not_captured: Counter[NotCaptured] = msgspec.field(default_factory=Counter)

    @property
    def captured(self) -> int:
        """The responses that have a record, or will have one."""
        return self.seen - self.not_captured.total()


class ResponseCounters:
    """One role's file. Made by the process in that role, in which one thread at a time uses it. Raises OSError if the file
    cannot be made.
    """

    def __init__(self, counters_path: Path, role: str) -> None:
        path = response_file(counters_path, role)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._map = open_mapped(path, _LAYOUT, _SIZE)
        self._words = memoryview(self._map).cast("Q")
        self._entries = {name: base for base, name in _names(self._words, self._map)}

    def seen(self, upstream: str | None) -> None:
        """Count a response of this upstream. It will have a record, unless a reason is counted later."""
        self._words[self._entry(upstream) + _SEEN] += 1

    def handed_over(self, upstream: str | None) -> None:
        """Count the beginning of a stream that was sent to the recorder."""
        self._words[self._entry(upstream) + _HANDED] += 1

    def not_captured(self, upstream: str | None, reason: NotCaptured, times: int = 1) -> None:
        """Count responses that will have no record, and are counted as seen."""
        self._words[self._entry(upstream) + _PLACES[reason]] += times

    def passed(self, upstream: str | None, reason: NotCaptured, times: int = 1) -> None:
        """Count responses that are not captured, as seen as well."""
        base = self._entry(upstream)
        self._words[base + _SEEN] += times
        self._words[base + _PLACES[reason]] += times

    def close_unsent(self) -> None:
        """Count what an ended process in this role saw and did not hand over to a recorder (`crash`)."""
        for base in self._entries.values():
            known = self._words[base + _HANDED] + sum(self._words[base + word] for word in _PLACES.values())
            lost = self._words[base + _SEEN] - known
            if lost > 0:
                self._words[base + _PLACES[NotCaptured.CRASH]] += lost

    def close(self) -> None:
        """Unmap the file. The counts stay in it."""
        self._words.release()
        self._map.close()

    def _entry(self, upstream: str | None) -> int:
        """The first word of an upstream's entry, which is made if it is missing."""
        name = upstream or UNKNOWN
        base = self._entries.get(name)
        if base is None:
            cut = name.encode()[:MAX_NAME].decode("utf-8", "ignore")
            number = len(set(self._entries.values()))
            if cut not in self._entries and number >= MAX_UPSTREAMS - 1:
                cut, number = OTHER, MAX_UPSTREAMS - 1
            base = self._entries.get(cut)
            if base is None:
                base = self._entries[cut] = self._made(number, cut.encode())
            if len(self._entries) < 2 * MAX_UPSTREAMS:  # a cut name is found at once the next time
                self._entries[name] = base
        return base

    def _made(self, number: int, name: bytes) -> int:
        base = 1 + number * _ENTRY
        at = (base + _NAME) * WORD
        self._map[at : at + len(name)] = name
        self._words[base + _LENGTH] = len(name)
        return base


def read_responses(counters_path: Path) -> dict[str, Responses]:
    """The responses by upstream, summed over the processes; empty if there are none. Raises OSError if a file cannot be read.

    A reason is counted after the response was seen, so reasons are read first: there are never more of them than responses.
    """
    by_upstream: dict[str, Responses] = {}
    for path in sorted(response_file(counters_path, "recorder").parent.glob("*")):
        mapped = None if path.name.startswith(".") else map_existing(path, _LAYOUT, _SIZE, write=False)
        if mapped is None:
            continue
        with mapped, memoryview(mapped) as raw, raw.cast("Q") as words:
            for base, name in _names(words, mapped):
                responses = by_upstream.setdefault(name, Responses())
                for reason, word in _PLACES.items():
                    if count := words[base + word]:
                        responses.not_captured[reason] += count
                responses.seen += words[base + _SEEN]
    return by_upstream


# Reasons for which a response that was to have a record has none. The others are of traffic that is not captured by design.
LOST = frozenset(NotCaptured) - {
    NotCaptured.NOT_LLM,
    NotCaptured.FORMAT,
    NotCaptured.REFUSED,
    NotCaptured.PROTOCOL,
    NotCaptured.STOPPING,
}


def seen_and_not_captured(counters_path: Path) -> tuple[int, Counter[NotCaptured]]:
    """How many responses of all upstreams were seen, and by reason how many of them have no record. Raises OSError."""
    by_upstream = read_responses(counters_path).values()
    without: Counter[NotCaptured] = Counter()
    for responses in by_upstream:
        without += responses.not_captured
    return sum([responses.seen for responses in by_upstream]), without


def response_file(counters_path: Path, role: str) -> Path:
    """The file of a role."""
    return counters_path.parent / "responses" / role


def _names(words: memoryview, mapped: mmap.mmap) -> list[tuple[int, str]]:
    """The first word and the name of each entry in use."""
    names = []
    for number in range(MAX_UPSTREAMS):
        base = 1 + number * _ENTRY
        if length := words[base + _LENGTH]:
            at = (base + _NAME) * WORD
            names.append((base, bytes(mapped[at : at + min(length, MAX_NAME)]).decode("utf-8", "replace")))
    return names
