"""The page's last hour after a start: from the ledger, and without one from now on."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from streamgauge.cli import ledger_watch
from streamgauge.cli.ledger_watch import load_last_hour
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record
from streamgauge.ledger import Ledger, open_ledger
from streamgauge.ledger.row import row_of
from streamgauge.live.view import LiveView
from streamgauge.metrics.observe import StreamCost
from tests.integration.provider import provider
from tests.integration.test_up import ask
from tests.metrics.records import make_record, make_timing
from tests.running import start_up, wait_for

COST = StreamCost(0.25, 0.5, None, None)


def ended(number: int, seconds_ago: float, lasted_s: float = 10.0) -> Record:
    """A record of a stream that ended so long ago."""
    made = make_record(stream_id=f"00000000-0000-7000-8000-{number:012}", timing=make_timing(end_s=lasted_s))
    began = datetime.fromtimestamp(time.time() - seconds_ago - lasted_s, UTC)
    made.started_at = began.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return made


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}")


def view_of(ledger: Ledger) -> LiveView:
    view = LiveView("up", Limits(), time.monotonic, time.time, prices=True)
    load_last_hour(view, ledger, lambda *_: COST)
    return view


def test_streams_that_ended_in_the_last_hour_are_counted(ledger: Ledger) -> None:
    agos = [(3_700, 5.0), (3_500, 5.0), (1_800, 3_600.0), (60, 1.0), (3_601, 7_000.0)]
    ledger.insert([row_of(ended(number, ago, lasted)) for number, (ago, lasted) in enumerate(agos)])
    answer = view_of(ledger).overview()
    assert answer.hour.streams == 3
    assert sum(usd for minute in answer.hour.cost_usd or () for usd in minute.values()) == 3 * COST.total
    since = datetime.fromisoformat(answer.hour.since).timestamp()
    assert since == pytest.approx(time.time() - 3_600, abs=60)
    recent = [(row.id[-1], round((row.ended_s_ago or 0) / 60)) for row in answer.worst.recent]
    assert recent == [("3", 1), ("2", 30), ("1", 58)]


def test_a_record_that_is_made_again_counts_once(ledger: Ledger) -> None:
    again, new = ended(1, 60), ended(2, 0)
    ledger.insert([row_of(again)])
    view = view_of(ledger)
    view.finished(again)
    view.finished(new)
    assert view.overview().hour.streams == 2


def test_two_processes_of_one_ledger_can_be_added_up(ledger: Ledger) -> None:
    """Each reads the hour of all from the ledger: the sum of these counts a stream once for each process."""
    ledger.insert([row_of(ended(number, 10.0 * number)) for number in range(3)])
    views = [view_of(ledger) for _ in range(2)]
    for number, view in enumerate(views):
        for own in range(2 + number):
            view.finished(ended(100 + 10 * number + own, 0), COST)
    assert [view.overview().hour.streams for view in views] == [5, 6]
    hours = [view.overview(own=True).hour for view in views]
    assert [hour.streams for hour in hours] == [2, 3]
    assert [sum(map(sum, hour.first_token.counts)) for hour in hours] == [2, 3]
    whole = views[0].overview().hour
    assert len(set(whole.minutes)) == len(whole.minutes), "the minute of the start is one minute"
    assert sum(map(sum, whole.first_token.counts)) == 5
    assert sum(count for minute in whole.outcomes for count in minute.values()) == 5
    assert sum(usd for minute in whole.cost_usd or () for usd in minute.values()) == pytest.approx(5 * COST.total)
    for hour in hours:
        assert datetime.fromisoformat(hour.since).timestamp() == pytest.approx(time.time(), abs=60)


def test_of_too_many_it_says_since_when(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_watch, "MAX_STREAMS", 3)
    ledger.insert([row_of(ended(number, 100 * number, 1.0)) for number in range(1, 6)])
    hour = view_of(ledger).overview().hour
    assert hour.streams == 3
    assert datetime.fromisoformat(hour.since).timestamp() == pytest.approx(time.time() - 301, abs=60)


def test_a_ledger_that_cannot_be_read_stops_nothing(ledger: Ledger, tmp_path: Path) -> None:
    ledger.close()
    (tmp_path / "ledger.sqlite").write_bytes(b"damaged" * 1_000)
    hour = view_of(ledger).overview().hour
    assert hour.streams == 0
    assert datetime.fromisoformat(hour.since).timestamp() == pytest.approx(time.time(), abs=60)


@pytest.mark.slow
def test_up_shows_the_last_hour_after_a_restart(tmp_path: Path) -> None:
    with provider() as small:
        for before in (0, 2):
            with start_up({"small": small.url}, tmp_path / "data") as up:
                assert f'"streams":{before},"with_usage"' in up.get("/streams")[1]
                for _ in range(2):
                    ask(up)
                wait_for(lambda goal=before + 2: up.recorded() == goal, "records")


def test_a_response_that_was_polled_costs_once(ledger: Ledger) -> None:
    polls = [ended(number, 100 - number) for number in range(3)]
    for record in polls:
        record.endpoint, record.response_id = "/responses/{id}", "resp_1"
    ledger.insert([row_of(record) for record in polls])
    view = LiveView("up", Limits(), time.monotonic, time.time, prices=True)
    load_last_hour(view, ledger, lambda _, before, after: StreamCost(float(after["input"] - before.get("input", 0))))
    hour = view.overview().hour
    assert (hour.streams, hour.priced) == (3, 3)
    assert sum(usd for minute in hour.cost_usd or () for usd in minute.values()) == polls[0].usage.input_tokens


def test_records_of_an_earlier_version_are_counted(ledger: Ledger) -> None:
    row = row_of(ended(1, 60))
    members = msgspec.json.decode(row.record)
    del members["attributes"], members["rate_limit"], members["parent_span_id"]
    del members["request"]["host"], members["usage"]["reported_cost"]
    earlier = msgspec.json.encode(members)
    ledger.insert([replace(row, record=earlier)])
    assert view_of(ledger).overview().hour.streams == 1
