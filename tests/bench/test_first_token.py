"""The benchmark compares each stream's record with its client; the accuracy itself is not tested."""

import msgspec
import pytest
from bench.first_token import Load, Timed, measured, off, rows
from bench.load.client import first_tokens
from bench.peers.peer import upstream

from streamgauge.core.record import Record
from tests.kafka_broker.jars import NoBrokerError

LOAD = Load(3, 2, 0.01)


def test_a_client_times_the_first_token_of_each_stream() -> None:
    with upstream() as direct:
        times = first_tokens(direct.port, at_once=2, streams=5, events=3, pace_s=0.01, number=7)
    assert [int(trace, 16) for trace in sorted(times)] == [7, 8, 9, 10, 11]
    assert min(times.values()) >= 10_000_000  # the first token comes after one interval


@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_each_stream_is_compared_with_its_own_record() -> None:
    try:
        loads, records = measured([LOAD, LOAD], 6)
    except NoBrokerError as error:
        pytest.skip(f"no Kafka: {error}")
    assert len({record.trace_id for record in records}) == 2 * (6 + 6)  # plus as many for warming up
    for load in loads:
        assert len(load.client) == 6
        assert load.ways > 0
        differences = off(load.client, records)
        assert all(0 < ms < ns / 1e6 for ms, ns in zip(differences, load.client.values(), strict=True))


def exported(a_record: Record, trace: str, first_token_s: float | None) -> Record:
    timing = msgspec.structs.replace(a_record.timing, first_token_s=first_token_s)
    return msgspec.structs.replace(a_record, trace_id=trace, timing=timing)


def test_the_error_is_the_clients_time_minus_the_records(a_record: Record) -> None:
    records = [exported(a_record, trace, at_s) for trace, at_s in (("b", 0.0112), ("a", 0.012), ("c", None))]
    assert off({"a": 12_500_000, "b": 11_000_000}, records) == pytest.approx([0.5, -0.2])


def test_a_stream_without_a_record_of_its_first_token_has_no_figure(a_record: Record) -> None:
    for records in ([], [exported(a_record, "b", 0.01)], [exported(a_record, "a", None)]):
        with pytest.raises(SystemExit, match="stream a has no record"):
            off({"a": 1}, records)


def test_a_records_time_may_be_early_or_late(a_record: Record) -> None:
    records = [exported(a_record, trace, at_s) for trace, at_s in (("a", 0.0103), ("b", 0.0199), ("c", 0.0296))]
    titles, row = rows([Timed(LOAD, 0.25, {"a": 10_000_000, "b": 20_000_000, "c": 30_000_000})], records)
    assert len(titles) == len(row)
    assert row == ["3", "100", "20.00", "0.25", "0.10", "0.40", "1.50", "0.40"]
