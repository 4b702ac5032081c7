"""Key, value and headers of a message count, and an empty message does not count as 0."""

from typing import NamedTuple

import pytest

from streamgauge.worker.message_size import memory_of


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
    assert at_least <= memory_of(message) <= at_least * 3 // 2 + 1_000
