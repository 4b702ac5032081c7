"""Fair shares: while the recorder is behind, only parties that have less than their share begin new streams. Pure.

A party is a client's address, and within it an identity: the name by which the proxy authenticated the client, or its
credential with its tenant. Streams that are not captured are refused whole, from their beginning. So the room that is left
is for the reads of streams that are captured already, and these do not lose their ends.
"""

from collections import Counter
from typing import NamedTuple, TypeVar

Key = TypeVar("Key")

# Parts of the capacity. From CROWDED on, parties with more than their share begin no further streams. From ALMOST_FULL on,
# at an address with more than its share only parties with less than LITTLE of theirs do: they add a seventh at most in all,
# so that the rest is for the reads of streams that have begun.
CROWDED, ALMOST_FULL, LITTLE = 1 / 2, 3 / 4, 1 / 8
# The beginnings of fewer waiting streams than this fill little of the room (about 0.5 MiB). With several parties reads leave
# room for them: then HARDLY_ANY is the limit in place of ALMOST_FULL.
FEW, HARDLY_ANY = 256, 7 / 8
# From CROWDED on, the reads of one stream have at most its share of what is left up to this part of the capacity, which is
# below ALMOST_FULL: so streams with much data leave room for the beginnings and the reads of others. Shares are for the time
# between two flushes. For a party that is alone they begin at ALMOST_FULL.
READS_END = (CROWDED + ALMOST_FULL) / 2
# The least share (bytes): a stream of an LLM has some 20 KB a second. The streams that share the room count as this many at
# least. All of them together get a quarter of the room in each interval, so that the recorder can keep up.
LEAST_SHARE, LEAST_SHARING, _INTERVALS = 16 * 1024, 8, 4


class Party(NamedTuple):
    """The sender of a request. `identity`: empty if nothing but the address is known."""

    address: str
    identity: str = ""


class FairShares:
    """The streams whose beginnings wait for the recorder, by party. `capacity`: bytes that may wait in all.

    No method's time depends on the number of parties: a flood may invent an identity for each stream.
    """

    def __init__(self, capacity: int) -> None:
        self._crowded, self._almost_full = int(capacity * CROWDED), int(capacity * ALMOST_FULL)
        self._capacity, self._reads_end = capacity, int(capacity * READS_END)
        self._first: Party | None = None
        self._several = False
        self._total = 0
        self._of_party: Counter[Party] = Counter()
        self._of_address: Counter[str] = Counter()
        self._parties: Counter[str] = Counter()  # how many parties have streams that wait, by address

    def admits(self, party: Party, held: int) -> bool:
        """Whether a new stream of `party` is captured, while `held` bytes wait.

        Identities are easy to invent, addresses are not: if several addresses have streams that wait, an address with less
        than its share is always admitted.
        """
        self._first = self._first or party
        self._several = self._several or party != self._first
        if held < self._crowded or not self._total:
            return True
        of_address = self._of_address[party.address]
        if len(self._of_address) > 1 and of_address <= self._total / len(self._of_address):
            return True
        own, share = self._of_party[party], of_address / max(self._parties[party.address], 1)
        few = self._several and self._total < FEW
        if held < (self._capacity * HARDLY_ANY if few else self._almost_full):
            return own <= share
        # Invented identities do not help: with many of them a share is less than one stream.
        return not few and own + 1 <= share * LITTLE

    def crowded(self, held: int) -> bool:
        """Whether reads must keep to the share of their stream: `held` bytes wait. A party that is alone may use more room,
        but leaves the rest to another that comes: the recorder may take seconds to make room.
        """
        return held >= (self._crowded if self._several else self._almost_full)

    def of_reads(self, held: int, streams: int) -> int:
        """The bytes that the reads of one of `streams` streams may have until the next flush, if it is `crowded`."""
        left = self._reads_end - held
        return max(LEAST_SHARE, left // (_INTERVALS * max(streams, LEAST_SHARING)))

    def room_of_reads(self, held: int) -> int:
        """The bytes of reads that may be gathered elsewhere while `held` bytes wait: not beyond READS_END, or ALMOST_FULL
        for a party that is alone, but always a part of the rest, for streams that keep to their shares.
        """
        end = self._reads_end if self._several else self._almost_full
        return max(end - held, (self._capacity - held) // 8)

    def add(self, party: Party) -> None:
        """Count a stream whose beginning waits."""
        if party not in self._of_party:
            self._parties[party.address] += 1
        self._of_party[party] += 1
        self._of_address[party.address] += 1
        self._total += 1

    def remove(self, sent: Counter[Party]) -> None:
        """Count streams whose beginnings wait no longer."""
        for party, streams in sent.items():
            _subtract(self._of_party, party, streams)
            if party not in self._of_party:
                _subtract(self._parties, party.address, 1)
            _subtract(self._of_address, party.address, streams)
            self._total -= streams


def _subtract(counts: Counter[Key], key: Key, number: int) -> None:
    counts[key] -= number
    if not counts[key]:
        del counts[key]
