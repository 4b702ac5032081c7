"""The memory of queued messages: key, value and headers count, and an empty message does not count as 0."""

from typing import NamedTuple

import pytest

from streamgauge.worker.message_queue import MessageQueue


class Sent(NamedTuple):
    key: bytes | None = None
    value: bytes | None = None
    headers: list[tuple[str, bytes | None]] | None = None


@pytest.mark.parametrize(
    ("message", "at_least"),
    [
        (Sent(), 1_000),
        (Sent(key=bytes(10_000_000)), 10_000_000),
        (Sent(value=bytes(10_000_000)), 10_000_000),
        (Sent(headers=[("name", bytes(10_000_000))]), 10_000_000),
        (Sent(headers=[("", None)] * 100_000), 15_000_000),
    ],
)
def test_key_value_and_headers_count(message: Sent, at_least: int) -> None:
    queue = MessageQueue()
    queue.put(message)
    assert at_least <= queue.size_bytes <= at_least * 3 // 2 + 1_000


def test_what_is_taken_and_cleared_does_not_count() -> None:
    queue = MessageQueue()
    for value in (bytes(1_000), bytes(20_000), bytes(300_000)):
        queue.put(Sent(value=value))
    assert queue.take() == Sent(value=bytes(1_000))
    assert 320_000 <= queue.size_bytes <= 325_000
    queue.clear()
    assert (len(queue), queue.size_bytes) == (0, 0)
