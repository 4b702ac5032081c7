"""One bound over all streams for what a recorder has to hold of them: bodies, and events that do not end."""


class Budget:
    """Bytes that may be held at once. `take` before holding, `give` after letting go."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, size: int) -> bool:
        """Whether there was room for `size` more bytes; then it is taken."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give(self, size: int) -> None:
        """`size` bytes are held no longer."""
        self._left += size


class Gathered:
    """A body that is gathered whole, up to a limit of its own and within the budget; beyond either it is let go."""

    def __init__(self, budget: Budget, most: int) -> None:
        self._budget, self._most = budget, most
        self._pieces: list[bytes] = []
        self._size = 0
        self.capped = False

    def add(self, piece: bytes) -> None:
        """One more piece."""
        if self.capped or not piece:
            return
        if self._size + len(piece) > self._most or not self._budget.take(len(piece)):
            self.drop()
            self.capped = True
            return
        self._size += len(piece)
        self._pieces.append(piece)

    def take(self) -> bytes | None:
        """The whole, once; None if it was capped."""
        whole = None if self.capped else b"".join(self._pieces)
        self.drop()
        return whole

    def drop(self) -> None:
        """Let go of what is there."""
        self._budget.give(self._size)
        self._size = 0
        self._pieces = []
