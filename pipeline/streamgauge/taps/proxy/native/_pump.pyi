"""taps/proxy/native/_pump.c, as the relay sees it. Missing where it was not built.

Integers that are negative, or larger than the pump can use, raise ValueError; descriptors raise OSError, as `os.read` does.
"""

from typing import Self

# Token; monotonic ns; phase and bytes left before the data; a read, or None; how much of it was sent; whether the upstream
# broke off; reads that were dropped last.
Returned = tuple[int, int, int, int, bytes | None, int, bool, int]

class Pump:
    def __new__(cls, capacity: int, batch: int, hold_ns: int, seen: memoryview) -> Self:
        """`capacity`: how much may be captured until the first `collect` (bytes). `batch`: of about that many bytes.
        `hold_ns`: how long reads of one response wait for others. `seen`: one word; counts what is captured or dropped.

        Raises OSError if there is no thread or no descriptor for it.
        """
    def fileno(self) -> int:
        """Readable where there is something to collect."""
    def lend(self, upstream: int, client: int, captured: bool, stream: int, phase: int, left: int) -> int:
        """Two sockets, and the place in the body; returns a token. Raises OSError, MemoryError: nothing was lent."""
    def recall(self, token: int) -> None:
        """The next `collect` returns it. Needs no descriptor and no memory, and waits for one read of that flow at most."""
    def hurry(self) -> None:
        """From now on reads wait for no others. From any thread."""
    def moved(self, token: int) -> int:
        """When its last read came (monotonic ns); 0 if it is back."""
    def collect(
        self, room: int, due: bool, most: int = ..., /
    ) -> tuple[list[tuple[bytes, int, int]], int, list[Returned]]:
        """Returns what was captured, in batches: messages, how many, and how many of them are reads; how many reads were
        dropped; and what is returned, each after its reads.

        `room`: how much may be captured until the next one (bytes); beyond that reads are dropped. `due`: with what has
        waited for `hold_ns`; else only with what waits for nothing any more. `most`: about how much of what was captured is
        returned (bytes); while there is more the pump is readable.

        Where memory is short, captured reads are dropped, and counted; a returned response for which there is no memory is
        kept for the next call. Raises MemoryError, if at all, before it has taken anything out.
        """
    def close(self) -> None:
        """Ends the thread. Needs no descriptor and no memory. What is still lent may be recalled and collected after it."""

def follow(phase: int, left: int, data: bytes | memoryview, begin: int, /) -> tuple[int, int] | None:
    """The place in a body after these bytes, from `begin` on; None unless they are plainly the middle of that body."""
