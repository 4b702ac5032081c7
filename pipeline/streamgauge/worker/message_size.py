"""Estimate the memory of a queued message: a hostile producer may send large keys, many headers, or many empty messages."""

from typing import Any

# The objects of a message, with those of Faust and aiokafka, beside its content (bytes).
_MESSAGE_BYTES = 1024
# A header's name and value as objects (bytes).
_HEADER_BYTES = 150


def memory_of(message: Any) -> int:
    """The approximate memory of a message (bytes). `message` has key, value and headers; each may be None."""
    headers = sum(_HEADER_BYTES + len(name) + len(value or b"") for name, value in message.headers or ())
    return _MESSAGE_BYTES + len(message.key or b"") + len(message.value or b"") + headers
