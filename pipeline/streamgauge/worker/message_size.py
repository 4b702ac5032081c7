"""What a message takes while it waits: a hostile one may be all key, all headers, or nothing a million times."""

from typing import Any

# Beside what a message holds: the objects of it, of Faust's and of aiokafka's (bytes).
_MESSAGE_BYTES = 1024
# A header's name and value as objects (bytes).
_HEADER_BYTES = 150


def weight_of(message: Any) -> int:
    """Bytes, roughly. `message`: key, value and headers, each of which may be None."""
    headers = sum(_HEADER_BYTES + len(name) + len(value or b"") for name, value in message.headers or ())
    return _MESSAGE_BYTES + len(message.key or b"") + len(message.value or b"") + headers
