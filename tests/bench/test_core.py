"""Each dialect can be measured, and an open stream of it stays within the limits of its memory."""

from typing import Any

import pytest
from bench.core import MEMORY_LIMIT, STATE_LIMIT, Sizes, framed, memory_bytes, state_bytes
from bench.floors import FLOORS
from bench.framings import FRAMINGS
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


@pytest.mark.parametrize(("name", "dialect", "write", "make"), FRAMINGS, ids=lambda value: str(value)[:20])
def test_every_framing_can_be_measured(name: str, dialect: str, write: Any, make: Any) -> None:
    """It raises SystemExit if a reader does not find all events."""
    multiples = framed(dialect, write, make, Sizes(streams=1, deltas=50, rounds=1), masked=True)
    assert all(multiple > 0 for multiple in multiples), name
