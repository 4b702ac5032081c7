"""Transport faults between a tap and its upstream, as `error.code` of the record."""

import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Ending, Segment, StreamEnding, TransportFault
from streamgauge.core.record import Record
from tests.streams import bundles_of, opening, stream_id


def record_of(end: StreamEnding) -> Record:
    [bundle] = bundles_of([Segment(stream_id(1), 0, opening(), end=end)])
    [record] = Assembler().apply(0, 0, bundle)
    return record


@pytest.mark.parametrize("fault", TransportFault)
def test_f11_it_is_the_records_error(fault: TransportFault) -> None:
    record = record_of(StreamEnding(fault.ending, 1, fault=fault.value))
    assert record.outcome == ("timeout" if fault.ending is Ending.TIMEOUT else "upstream_reset")
    assert record.error is not None
    assert (record.error.phase, record.error.type, record.error.code) == ("transport", None, fault.value)


@pytest.mark.parametrize("fault", [None, "of_a_later_version"])
def test_an_unknown_fault_is_null(fault: str | None) -> None:
    record = record_of(StreamEnding(Ending.RESET, 1, fault=fault))
    assert record.error is not None
    assert (record.error.phase, record.error.code) == ("transport", None)


def test_other_outcomes_have_no_transport_error() -> None:
    assert record_of(StreamEnding(Ending.CLIENT, 1, 1, fault=TransportFault.RESET.value)).error is None
