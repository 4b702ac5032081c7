"""A bug on one bundle stops no partition, and loses no record of a stream that the bundle has already ended."""

from unittest.mock import patch

import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle
from streamgauge.metrics import table
from tests.worker.simulation.faults import Faults
from tests.worker.simulation.oracle import Bug
from tests.worker.simulation.schedule import Schedule
from tests.worker.simulation.verdict import wrong

_bound_pending = Assembler._bound_pending


def fails_now_and_then(self: Assembler, bundle: Bundle) -> None:
    """After the segments, so that streams have ended."""
    if bundle.number % 3 == 2 and bundle.segments:
        raise Bug
    _bound_pending(self, bundle)


@pytest.mark.parametrize("seed", range(8))
def test_assembler_bug_costs_a_dead_letter_and_no_record(seed: int) -> None:
    with patch.object(Assembler, "_bound_pending", fails_now_and_then):
        schedule = Schedule(seed, Faults(workers=2, kills=5, checkpoint_s=0.6))
        schedule.run()
        found = wrong(schedule)
    assert found == []
    assert schedule.counted(f"{table.DEAD_LETTERS.name}:assemble") > 0
