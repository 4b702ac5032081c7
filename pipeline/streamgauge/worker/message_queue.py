"""Queue of messages that were received and are not processed; it counts their memory.

A hostile producer may send large keys, many headers, or many empty messages, so the value's size is not enough.
"""

from collections import deque
from typing import Any

# The objects of a message, also in Faust and aiokafka, beside its content (bytes).
_MESSAGE_BYTES = 1024
# A header's name and value as objects (bytes).
_HEADER_BYTES = 150


class MessageQueue:
    """Messages in the order of their arrival. Each has key, value and headers, of which each may be None.

    `size_bytes`: the approximate memory of the queued messages.
    """

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Any) -> None:
        """Append a message."""
        self._messages.append(message)
        self.size_bytes += memory_of(message)

    @property
    def first(self) -> Any:
        """The first message, which stays in the queue. Raises IndexError if the queue is empty."""
        return self._messages[0]

    def take(self) -> Any:
        """Remove and return the first message. Raises IndexError if the queue is empty."""
        message = self._messages.popleft()
        self.size_bytes -= memory_of(message)
        return message

    def clear(self) -> None:
        """Remove all messages."""
        self._messages.clear()
        self.size_bytes = 0


def memory_of(message: Any) -> int:
    """The approximate memory of a message (bytes)."""
    headers = sum(_HEADER_BYTES + len(name) + len(value or b"") for name, value in message.headers or ())
    return _MESSAGE_BYTES + len(message.key or b"") + len(message.value or b"") + headers
