"""taps/proxy/_pump.c, as the relay sees it. Not there where it was not built."""

# Token; monotonic ns; phase and bytes left before the data; a read, or None; how much of it was sent; whether the upstream
# broke off; reads that were dropped last.
Returned = tuple[int, int, int, int, bytes | None, int, bool, int]

class Pump:
    def __init__(self, capacity: int, batch: int, hold_ns: int, seen: memoryview) -> None:
        """`capacity`: how much may be captured until the first `collect` (bytes). `batch`: of about that many bytes.
        `hold_ns`: how long reads of one response wait for others. `seen`: one word; counts what is captured or dropped.
        """
    def fileno(self) -> int:
        """To be read where there is something to collect."""
    def lend(self, upstream: int, client: int, captured: bool, stream: int, phase: int, left: int) -> int:
        """Two sockets, and where the body is; gives a token. Raises OSError, MemoryError: nothing was lent."""
    def recall(self, token: int) -> None:
        """The next `collect` returns it."""
    def hurry(self) -> None:
        """From now on reads wait for no others. From any thread."""
    def moved(self, token: int) -> int:
        """When its last read came (monotonic ns); 0 if it is back."""
    def collect(self, room: int, due: bool) -> tuple[list[tuple[bytes, int, int]], int, list[Returned]]:
        """What was captured, in batches: messages, how many, and how many of them are reads. How many reads were dropped.
        What is returned.

        `room`: how much may be captured until the next one (bytes); beyond that reads are dropped. `due`: with what has
        waited for `hold_ns`; else only with what waits for nothing any more.
        """
    def close(self) -> None: ...

def follow(phase: int, left: int, data: bytes | memoryview, begin: int, /) -> tuple[int, int] | None:
    """Where a body is behind these bytes, from `begin` on; None unless they are plainly its middle."""
