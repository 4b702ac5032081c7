"""Real clients through `streamgauge up`: equal output, as many requests, no further warning, and little time added.

`make clients` measures the same with more clients, and writes the table of docs/compatibility.md.
"""

from pathlib import Path

import pytest

from tests.clients.both_ways import MAX_ADDED_S, compared

CLIENTS = (
    "openai chat",
    "openai responses",
    "openai responses.connect",
    "openai realtime.connect",
    "anthropic",
    "google-genai",
    "boto3 bearer",
    "boto3 hook",
    "ollama",
    "mistralai",
    "cohere",
)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_sees_no_difference(name: str, tmp_path: Path) -> None:
    found = compared(name, tmp_path)
    alone, tapped = found.direct, found.tapped
    assert tapped.seen == alone.seen
    assert tapped.requests == alone.requests
    assert tapped.warnings == alone.warnings
    assert found.least_added_s <= MAX_ADDED_S
    # Each conversation was one: a call, its result and the answer, then two errors.
    assert all(len(conversation) > 4 for conversation in tapped.seen[:-2])
    assert tapped.seen[0] == tapped.seen[1]
    assert "refused" in str(tapped.seen[-2])
    assert "busy" in str(tapped.seen[-1])
    # The tap saw all of them.
    assert found.records >= 2 * (len(found.seconds) + len(tapped.seen) - 2)
