"""Which new streams are captured while the recorder is behind: those of parties that have less than their share. Pure.

A party is a client's address, and within it an identity: the name by which the proxy authenticated the client, its tenant, or
its credential. Streams that are not captured are refused whole, from their beginning. So the room that is left is for the
reads of streams that are captured already, and these do not lose their ends.
"""

from collections import Counter
from typing import NamedTuple

# From this part of the capacity on, parties with more than their share begin no further streams; from the second on, all
# parties of such an address. The rest is for the reads of streams that have begun.
CROWDED, ALMOST_FULL = 1 / 2, 3 / 4


class Party(NamedTuple):
    """Who sent a request. `identity`: empty if nothing but the address is known."""

    address: str
    identity: str = ""


class FairShares:
    """The streams whose beginnings wait for the recorder, by party. `capacity`: bytes that may wait in all."""

    def __init__(self, capacity: int) -> None:
        self._crowded, self._almost_full = int(capacity * CROWDED), int(capacity * ALMOST_FULL)
        self._waiting: Counter[Party] = Counter()

    def admits(self, party: Party, held: int) -> bool:
        """Whether a new stream of `party` is captured, while `held` bytes wait.

        Identities can be invented, addresses hardly: if several addresses have streams that wait, one with less than its
        share is always admitted.
        """
        if held < self._crowded or not self._waiting:
            return True
        addresses = Counter[str]()
        for other, streams in self._waiting.items():
            addresses[other.address] += streams
        if len(addresses) > 1 and addresses[party.address] <= addresses.total() / len(addresses):
            return True
        if held >= self._almost_full:
            return False
        siblings = [streams for other, streams in self._waiting.items() if other.address == party.address]
        own = self._waiting[party]
        return own <= sum(siblings) / max(len(siblings), 1)

    def add(self, party: Party) -> None:
        """Count a stream whose beginning waits."""
        self._waiting[party] += 1

    def remove(self, sent: Counter[Party]) -> None:
        """Count streams whose beginnings wait no longer."""
        self._waiting.subtract(sent)
        for party in sent:
            if self._waiting[party] <= 0:
                del self._waiting[party]
