"""One client or upstream uses as much as it can: the records of other streams, and their times, stay the same."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import greedy
from tests.running import Running, start_up, wait_for

MIB = 1024 * 1024
# The shortest event with data, and the same in many forms; 100,000 and more in a response of a MB.
TINY = (b"data:x\n\n", b":\n\n", b"data: {}\n\n", b'data: "\\ud800"\n\n')
# A record within this time (seconds) came before the floods', which take a minute. Alone it takes one second.
IN_TIME_S = 20.0
INCIDENT = 'streamgauge_tap_incidents_total{kind="body_capped"}'


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def upstream() -> Iterator[greedy.Upstream]:
    with greedy.Upstream() as running:
        yield running


@pytest.fixture
def up(upstream: greedy.Upstream, data_dir: Path) -> Iterator[Running]:
    with start_up(upstream.url, data_dir) as running:
        yield running
        assert running.stop() == 0, running.log


def test_uploads_that_stall_do_not_take_the_request_facts_of_others(up: Running, upstream: greedy.Upstream) -> None:
    """Sixteen of 16 MiB use the whole memory of a recorder."""
    with greedy.stalled_uploads(up, upstream, 16) as ordinary:
        body = b'{"model":"m-1","n":1,"stream":true,"pad":"%s"}' % (b"p" * 200_000)
        for _ in range(3):
            assert greedy.ask(up, body=body) > len(greedy.ORDINARY)
        honest = up.wait_for_records(ordinary + 3)[ordinary:]
    for record in honest:
        assert record["request_model"] == "m-1"
        assert record["request"]["n"] == 1
        assert record["request"]["stream"] is True
        assert record["request_digest"]
        assert record["integrity"] == {**record["integrity"], "complete": True, "reasons": []}
    stalled = [record for record in up.wait_for_records(ordinary + 19) if record["outcome"] == "client_abort"]
    assert len(stalled) == 16
    capped = [record for record in stalled if record["integrity"]["reasons"]]
    assert 1 <= len(capped) <= 4
    assert {tuple(record["integrity"]["reasons"]) for record in capped} == {("request_capped",)}
    assert wait_for(lambda: up.metrics().get(INCIDENT) == len(capped), "the incidents")


@pytest.mark.parametrize(("count", "size"), [(4, 4 * MIB), (40, MIB // 2)])
def test_p5_floods_of_tiny_events_do_not_delay_the_records_of_others(data_dir: Path, count: int, size: int) -> None:
    floods = [event * (size // len(event)) for event in TINY]
    with greedy.Upstream(floods) as upstream, start_up(upstream.url, data_dir) as up:
        asking = [threading.Thread(target=greedy.ask, args=(up, f"/{number % len(floods)}")) for number in range(count)]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
        began = time.monotonic()
        assert greedy.ask(up) > len(greedy.ORDINARY)

        def ordinary() -> list[dict[str, object]]:
            return [
                record for record in up.records() if record["request_model"] == "m-1" and record["counts"]["text_chars"]
            ]

        (record,) = wait_for(ordinary, "record")
        assert time.monotonic() - began < IN_TIME_S
        assert record["integrity"] == {**record["integrity"], "complete": True, "reasons": []}
        assert up.metrics()["streamgauge_tap_reads_waiting"] > 0, "the flood had already ended"
        assert up.stop() == 0, up.log
        found = up.records()
    assert len(found) == count + 1
    for flood in found:
        lost = flood["integrity"]["dropped_reads"]
        assert flood["integrity"]["reasons"] == (["dropped_reads"] if lost else [])
