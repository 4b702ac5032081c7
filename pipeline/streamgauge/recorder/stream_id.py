"""Stream ids: UUIDv7 (RFC 9562, 5.7). Its time is when the stream began; the 74 other bits make it unique. Pure.

A live tap fills these bits at random. What a file says of an exchange does not change, so its id is derived from that: a
file that is read twice gives each stream the same id twice, and the ledger keeps one record of an id.
"""

import hashlib

# The size of an id (bytes).
ID_BYTES = 16
# Bits of a UUIDv7 beside its time, its version and its variant.
FREE_BITS = 74


def stream_id(wall_ns: int, free_bits: int) -> bytes:
    """The id of a stream that began at `wall_ns` (UTC). Of `free_bits` the lowest FREE_BITS are used."""
    milliseconds = max(wall_ns, 0) // 1_000_000 & 0xFFFF_FFFF_FFFF
    low = free_bits & ((1 << 62) - 1)
    high = free_bits >> 62 & 0xFFF
    return (milliseconds << 80 | 7 << 76 | high << 64 | 2 << 62 | low).to_bytes(ID_BYTES)


def derived_stream_id(wall_ns: int, *facts: bytes | int) -> bytes:
    """The id of a stream that a file tells of: the same for the same start and facts, wherever the file is read.

    The digest has no key, since hosts that read the same file share none. A fact that nobody can guess, such as TCP's
    initial sequence number (32 random bits), keeps addresses among the facts from being found by trying them all.
    """
    digest = hashlib.sha256()
    for fact in (wall_ns, *facts):
        raw = fact if isinstance(fact, bytes) else str(fact).encode()
        digest.update(len(raw).to_bytes(8) + raw)
    return stream_id(wall_ns, int.from_bytes(digest.digest()))
