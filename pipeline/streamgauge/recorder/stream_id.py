"""Stream ids: UUIDv7 (RFC 9562, 5.7). The time is the stream's beginning; 74 other bits make the id unique. Pure.

A live tap fills these bits at random. The id of a stream from a file is derived from facts in the file, which do not
change: a file that is read twice gives each stream the same id twice, and the ledger keeps one record for an id.
"""

import hashlib

# The size of an id (bytes).
ID_BYTES = 16
# Bits of a UUIDv7 besides its time, version and variant.
FREE_BITS = 74


def stream_id(wall_ns: int, free_bits: int) -> bytes:
    """The id of a stream that began at `wall_ns` (UTC). Of `free_bits` the lowest FREE_BITS are used."""
    milliseconds = max(wall_ns, 0) // 1_000_000 & 0xFFFF_FFFF_FFFF
    low = free_bits & ((1 << 62) - 1)
    high = free_bits >> 62 & 0xFFF
    return (milliseconds << 80 | 7 << 76 | high << 64 | 2 << 62 | low).to_bytes(ID_BYTES)


def derived_stream_id(wall_ns: int, *facts: bytes | int) -> bytes:
    """The id of a stream in a file: the same for the same start and facts, on every host that reads the file.

    The digest has no key, since hosts that read the same file share none. A fact that cannot be guessed, such as TCP's
    initial sequence number (32 random bits), prevents a search for addresses among the facts by trying all of them.
    """
    digest = hashlib.sha256()
    for fact in (wall_ns, *facts):
        raw = fact if isinstance(fact, bytes) else str(fact).encode()
        digest.update(len(raw).to_bytes(8) + raw)
    return stream_id(wall_ns, int.from_bytes(digest.digest()))
