"""Each dialect can be measured, and an open stream of it stays within the limits of its memory."""

import pytest
from bench.core import MEMORY_LIMIT, STATE_LIMIT, memory_bytes, state_bytes
from bench.floors import FLOORS
from bench.wires import wire

from streamgauge.core.dialects import DIALECTS

NAMES = [dialect.name for dialect in DIALECTS]


def test_every_dialect_has_a_floor_and_a_wire() -> None:
    assert list(FLOORS) == [wire(name, 1).dialect for name in FLOORS]
    assert set(FLOORS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_open_stream_stays_within_its_limits(name: str) -> None:
    one = wire(name, 200)
    assert state_bytes(one) < STATE_LIMIT
    assert memory_bytes(one, 60) < MEMORY_LIMIT
