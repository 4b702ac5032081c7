"""One client or upstream takes all that it can get: what others' streams say, and when, is as without it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import greedy
from tests.running import Running, start_up, wait_for

MIB = 1024 * 1024
INCIDENT = 'streamgauge_tap_incidents_total{kind="body_capped"}'


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def up(data_dir: Path) -> Iterator[Running]:
    with greedy.upstream() as url, start_up(url, data_dir) as running:
        yield running
        assert running.stop() == 0, running.log


def test_uploads_that_stall_do_not_take_the_request_facts_of_others(up: Running) -> None:
    """Sixteen of 16 MiB are all that a recorder holds."""
    with greedy.stalled_uploads(up, 16, 16 * MIB):
        body = b'{"model":"m-1","n":1,"stream":true,"pad":"%s"}' % (b"p" * 200_000)
        for _ in range(3):
            assert greedy.ask(up, body=body) > len(greedy.ORDINARY)
        honest = up.wait_for_records(3)
    for record in honest:
        assert record["request_model"] == "m-1"
        assert record["request"]["n"] == 1
        assert record["request"]["stream"] is True
        assert record["request_digest"]
        assert record["integrity"] == {**record["integrity"], "complete": True, "reasons": []}
    stalled = [record for record in up.wait_for_records(19) if record["outcome"] == "client_abort"]
    assert len(stalled) == 16
    capped = [record for record in stalled if record["integrity"]["reasons"]]
    assert 1 <= len(capped) <= 4
    assert {tuple(record["integrity"]["reasons"]) for record in capped} == {("request_capped",)}
    assert wait_for(lambda: up.metrics().get(INCIDENT) == len(capped), "the incidents")
