"""Byte pair encoding of one piece of text that grows, in bounded memory: how many tokens it has so far.

An encoder needs the whole piece, because a merge at its end may change merges before it. But every prefix of an encoding is
the encoding of that prefix, and a sequence of tokens is an encoding if and only if each pair of neighbours is one. So the
last token of each prefix decides its count: it is the token `t` at the prefix's end for which the prefix without it ends
with a token that is compatible with `t`. No token is longer than `max_length` bytes, so the last tokens and counts of that
many prefixes are all that a further byte needs. (Lemmas and proof: Antonov and Neuhaus, "So many tokens, so little time",
GitHub 2024, and the crate `bpe`.)
"""

from collections import deque
from collections.abc import Mapping
from itertools import pairwise

# Pairs of tokens whose compatibility is remembered; the table is cleared when it is full.
_MAX_PAIRS = 100_000


class Merges:
    """A vocabulary: tokens with their ranks. The pair with the lowest rank is merged first, the leftmost of equal ones."""

    def __init__(self, ranks: Mapping[bytes, int]) -> None:
        self.ranks = ranks
        self.max_length = max(map(len, ranks))
        self._compatible: dict[tuple[bytes, bytes], bool] = {}
        self._lengths: dict[bytes, list[int]] = {}

    def encode(self, piece: bytes) -> list[bytes]:
        """The tokens of a short piece, by merges alone. Takes quadratic time."""
        parts, ranks = [piece[at : at + 1] for at in range(len(piece))], self.ranks
        while len(parts) > 1:
            found = [ranks.get(left + right) for left, right in pairwise(parts)]
            best = min((rank for rank in found if rank is not None), default=None)
            if best is None:
                break
            at = found.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return parts

    def are_compatible(self, left: bytes, right: bytes) -> bool:
        """Whether these two tokens are the encoding of the bytes of both. `left` may be empty."""
        pair = left, right
        known = self._compatible.get(pair)
        if known is None:
            if len(self._compatible) >= _MAX_PAIRS:
                self._compatible.clear()
            known = self._compatible[pair] = self.encode(left + right) == ([left, right] if left else [right])
        return known

    def lengths(self, end: bytes) -> list[int]:
        """The lengths of the tokens that end with these one or two bytes (one: of the tokens of one byte)."""
        if not self._lengths:
            lengths: dict[bytes, set[int]] = {}
            for token in self.ranks:
                lengths.setdefault(token[-2:], set()).add(len(token))
            self._lengths = {end: sorted(found, reverse=True) for end, found in lengths.items()}
        return self._lengths.get(end, [])


class GrowingPiece:
    """One piece of text, to which bytes are appended. `count`: its tokens so far."""

    def __init__(self, merges: Merges) -> None:
        self._merges = merges
        self._bytes = bytearray()  # the last `max_length` bytes
        self._size = 0
        # For each prefix, the shortest first: its last token, and its count. The longest prefix is the whole piece.
        self._prefixes: deque[tuple[bytes, int]] = deque([(b"", 0)], merges.max_length)

    def append(self, data: bytes) -> None:
        """Append bytes. Takes some microseconds for each."""
        merges, prefixes, tail = self._merges, self._prefixes, self._bytes
        ranks, longest, compatible = merges.ranks, merges.max_length, merges.are_compatible
        for byte in data:
            tail.append(byte)
            if len(tail) > longest:
                del tail[0]
            # Only one token fits, so their order is free. In a run of one character the last token grows by a byte.
            likely = len(prefixes[-1][0]) + 1
            for length in (likely, *merges.lengths(bytes(tail[-2:])), 1):
                if length > len(prefixes):
                    continue
                token = bytes(tail[-length:])
                before, count = prefixes[-length]
                if token in ranks and compatible(before, token):
                    prefixes.append((token, count + 1))
                    break
            else:
                raise AssertionError("a byte that is no token")
        self._size += len(data)

    @property
    def count(self) -> int:
        """The tokens of the piece so far. A piece that is a token is one token, even if no merges lead to it."""
        if self._size <= len(self._bytes) and bytes(self._bytes) in self._merges.ranks:
            return 1
        return self._prefixes[-1][1]
