"""The interface of taps/proxy/native/_pump.c. The module is missing where it was not built.

Integers that are negative, or larger than the pump can use, raise ValueError. Descriptors of this kind raise OSError, as
`os.read` does.
"""

from typing import Self

# Token; monotonic ns; phase and bytes left, before the data; an unfinished read, or None; how many of its bytes were
# sent; whether the upstream's socket failed; dropped reads that no message reports.
Returned = tuple[int, int, int, int, bytes | None, int, bool, int]

class Pump:
    def __new__(cls, capacity: int, batch: int, hold_ns: int, seen: memoryview) -> Self:
        """`capacity`: how much may be captured until the first `collect` (bytes). `batch`: the approximate size of a batch
        (bytes). `hold_ns`: how long reads of one response wait for others. `seen`: one word of 64 bits; it counts the reads
        that are captured or dropped.

        Raises OSError if no thread or descriptor can be made.
        """
    def fileno(self) -> int:
        """A descriptor that is readable while there is something to collect."""
    def hand_over(self, upstream: int, client: int, captured: bool, stream: int, phase: int, left: int) -> int:
        """Hands two sockets to the pump, with the position in the body; returns a token. If it raises OSError or MemoryError,
        the pump does not use the sockets.
        """
    def recall(self, token: int) -> None:
        """The next `collect` returns this response. Needs no descriptor or memory, and waits for at most one read of it."""
    def send_at_once(self) -> None:
        """Sets `hold_ns` to 0: reads no longer wait for others. May be called from any thread."""
    def moved(self, token: int) -> int:
        """When the response's last read came (monotonic ns); 0 if the response was returned."""
    def collect(
        self, room: int, due: bool, most: int = ..., share: int = ..., /
    ) -> tuple[list[tuple[bytes, int, int]], int, list[Returned]]:
        """Returns three things: batches of captured messages, each with the number of its messages and of its reads; how many
        reads were dropped; and the returned responses. A response is returned after its reads.

        `room`: how much may be captured until the next call (bytes); above that, reads are dropped. `due`: includes reads
        that were held for `hold_ns`; otherwise only finished messages are returned. `most`: about how many captured bytes
        are returned; while there are more, the pump is readable. `share`: how many bytes of one response's reads may be
        captured within 0.25 s, until the next call changes it; further reads are dropped.

        If memory is short, captured reads are dropped, and counted; a returned response for which there is no memory is kept
        for the next call. If this raises MemoryError, nothing was taken out.
        """
    def close(self) -> None:
        """Ends the thread. Needs no descriptor and no memory. Responses that were not returned may be recalled and collected
        afterwards.
        """

def follow(phase: int, left: int, data: bytes | memoryview, begin: int, /) -> tuple[int, int] | None:
    """Returns the position in a body after the bytes of `data` from offset `begin` on; None unless these are clearly from the
    middle of that body.
    """
