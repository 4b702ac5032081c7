"""Which new streams are captured while the recorder is behind: those of parties that have less than their share. Pure.

A party is a client's address, and within it an identity: the name by which the proxy authenticated the client, or its
credential with its tenant. Streams that are not captured are refused whole, from their beginning. So the room that is left
is for the reads of streams that are captured already, and these do not lose their ends.
"""

from collections import Counter
from typing import NamedTuple, TypeVar

Key = TypeVar("Key")

# From this part of the capacity on, parties with more than their share begin no further streams; from the second on, all
# parties of such an address. The rest is for the reads of streams that have begun.
CROWDED, ALMOST_FULL = 1 / 2, 3 / 4


class Party(NamedTuple):
    """Who sent a request. `identity`: empty if nothing but the address is known."""

    address: str
    identity: str = ""


class FairShares:
    """The streams whose beginnings wait for the recorder, by party. `capacity`: bytes that may wait in all.

    No method's time depends on the number of parties: a flood may invent an identity for each stream.
    """

    def __init__(self, capacity: int) -> None:
        self._crowded, self._almost_full = int(capacity * CROWDED), int(capacity * ALMOST_FULL)
        self._total = 0
        self._of_party: Counter[Party] = Counter()
        self._of_address: Counter[str] = Counter()
        self._parties: Counter[str] = Counter()  # how many parties have streams that wait, by address

    def admits(self, party: Party, held: int) -> bool:
        """Whether a new stream of `party` is captured, while `held` bytes wait.

        Identities can be invented, addresses hardly: if several addresses have streams that wait, one with less than its
        share is always admitted.
        """
        if held < self._crowded or not self._total:
            return True
        of_address = self._of_address[party.address]
        if len(self._of_address) > 1 and of_address <= self._total / len(self._of_address):
            return True
        if held >= self._almost_full:
            return False
        return self._of_party[party] <= of_address / max(self._parties[party.address], 1)

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
