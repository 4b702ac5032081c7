"""What the page shows of a ledger: the last hour beside yesterday's, lists, and streams that ended long ago."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from streamgauge.cli import stored_streams
from streamgauge.cli.stored_streams import LedgerStreams
from streamgauge.core.record import Error
from streamgauge.ledger import Ledger, open_ledger
from streamgauge.ledger.row import row_of
from streamgauge.live.answers import Latency, Numbers
from streamgauge.live.mailbox import NoAnswerError
from streamgauge.live.stored import BROKEN_OUTCOMES, Wanted, wanted_of
from streamgauge.prices import Prices
from streamgauge.prices.price_file import NO_PRICES
from tests.ledger.statements import each_statement
from tests.metrics.records import ABSENT, make_record, make_timing

NOW_S = 1_800_000_000.0
HOUR_S, DAY_S = 3_600.0, 86_400.0


class Clock:
    """The clocks of a process, which a test moves."""

    def __init__(self) -> None:
        self.wall_s = NOW_S

    def wall(self) -> float:
        return self.wall_s

    def monotonic(self) -> float:
        return self.wall_s


def name_of(number: int) -> str:
    return f"00000000-0000-7000-8000-{number:012}"


def store(ledger: Ledger, number: int, seconds_ago: float, **changes: Any) -> None:
    """Stores a stream that began so long ago."""
    began = datetime.fromtimestamp(NOW_S - seconds_ago, UTC).isoformat(timespec="microseconds")
    record = make_record(stream_id=name_of(number), started_at=began.replace("+00:00", "Z"), **changes)
    ledger.insert([row_of(record)])


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}", prices=Prices(NO_PRICES, print)) as one:
        yield one


def streams_of(ledger: Ledger, tenants: dict[str, str] | None = None, clock: Clock | None = None) -> LedgerStreams:
    clock = clock or Clock()
    return LedgerStreams(ledger, "the ledger", tenants or {}, clock.wall, clock.monotonic)


def ids(streams: LedgerStreams, **wanted: Any) -> list[int]:
    return [int(row.id[-12:]) for row in streams.finished(Wanted(**wanted)).streams]


def rounded(latency: Latency | None) -> tuple[float, float, int] | None:
    return None if latency is None else (round(latency.p50_s, 6), round(latency.p95_s, 6), latency.streams)


# --- the last answers -------------------------------------------------------------------------------------------------


def test_the_last_answers_are_given_for_a_minute_without_reading(ledger: Ledger) -> None:
    clock = Clock()
    streams = streams_of(ledger, clock=clock)
    store(ledger, 1, 10)
    statements: list[object] = []
    with each_statement(lambda *called: statements.append(called)):
        assert streams.recent() is None
        summary = streams.summary(())
        assert streams.recent() is None, "the list is missing"
        finished = streams.finished(wanted_of({"sort": "worst", "limit": "50", "age": "3600"}))  # as the page asks
        read = len(statements)
        clock.wall_s += 60
        assert streams.recent() == (summary, finished)
        clock.wall_s += 1
        assert streams.recent() is None
        assert len(statements) == read


# --- the last hour ----------------------------------------------------------------------------------------------------


def test_the_last_hour_is_read_and_compared_with_yesterday(ledger: Ledger) -> None:
    for number, ago in enumerate((10, 70, 80, 3_599, 3_601, DAY_S + 60, DAY_S + 3_601, 2 * DAY_S)):
        first_s = 0.1 * (number + 1)
        store(ledger, number, ago, timing=make_timing(first_token_s=first_s, first_content_s=2 * first_s))
    summary = streams_of(ledger).summary(())
    assert summary.hour.streams == 4
    assert rounded(summary.hour.first_token) == (0.2, 0.4, 4)
    assert rounded(summary.hour.first_text) == (0.4, 0.8, 4)
    assert summary.yesterday is not None
    assert summary.yesterday.streams == 1
    assert datetime.fromisoformat(summary.since).timestamp() == NOW_S - HOUR_S
    assert (summary.streams, len(summary.minutes)) == ([1, 2, 1], 3)


def test_streams_are_counted_where_only_the_newest_times_are_read(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = ("completed", "truncated", "client_abort", "completed", "stream_error")
    for number, (ago, outcome) in enumerate(zip((10, 70, 80, 3_500, 3_501), outcomes, strict=True)):
        store(ledger, number, ago, outcome=outcome, timing=make_timing(first_token_s=0.1 * (number + 1)))
    whole = streams_of(ledger).summary(())
    monkeypatch.setattr(stored_streams, "MAX_TIMED", 2)
    summary = streams_of(ledger).summary(())
    assert (summary.streams, summary.broken) == (whole.streams, whole.broken) == ([2, 2, 1], [1, 1, 0])
    assert rounded(summary.hour.first_token) == (0.1, 0.2, 2)
    assert whole.hour.times_since is None
    assert summary.hour.times_since is not None
    assert datetime.fromisoformat(summary.hour.times_since).timestamp() == NOW_S - 70


def test_of_a_part_of_the_hour_it_says_since_when(ledger: Ledger) -> None:
    clock = Clock()
    streams = streams_of(ledger, clock=clock)
    clock.wall_s += 3
    summary = streams.summary(())
    assert (summary.hour.streams, summary.yesterday) == (0, None)
    assert datetime.fromisoformat(summary.since).timestamp() == NOW_S
    store(ledger, 1, 600)
    clock.wall_s += 3
    assert datetime.fromisoformat(streams.summary(()).since).timestamp() == NOW_S - 600


def test_yesterday_is_not_known_if_the_ledger_begins_within_it(ledger: Ledger) -> None:
    store(ledger, 1, DAY_S + 1_800)
    assert streams_of(ledger).summary(()).yesterday is None
    store(ledger, 2, DAY_S + 3_600)
    assert streams_of(ledger).summary(()).yesterday is not None


def test_a_cost_says_how_many_streams_have_no_price(ledger: Ledger) -> None:
    store(ledger, 1, 10)
    store(ledger, 2, 10, response_model="own-model", request_model="own-model", host="10.0.0.4")
    store(ledger, 3, 10, usage=ABSENT)
    hour = streams_of(ledger).summary(()).hour
    assert (hour.priced, hour.unpriced) == (1, 1)
    assert hour.cost_usd is not None
    assert 0 < hour.cost_usd < 0.01


def test_which_times_count_is_as_in_the_metrics(ledger: Ledger) -> None:
    pace = {"inter_token_latency_s": 0.02}
    store(ledger, 1, 10, timing=make_timing(**pace))
    store(ledger, 2, 10, timing=make_timing(burst=True, **pace))
    store(ledger, 3, 10, timing=make_timing(**pace), resumed_from=name_of(1))
    hour = streams_of(ledger).summary(()).hour
    assert (hour.first_token and hour.first_token.streams, hour.per_token) == (2, Latency(0.02, 0.02, 1))


def test_models_tenants_and_upstreams_have_numbers_of_their_own(ledger: Ledger) -> None:
    for number, (model, tenant) in enumerate((("a", "river"), ("a", None), ("b", None))):
        store(ledger, number, 10, response_model=model, tenant=tenant, credential_id="c" if number == 2 else None)
    summary = streams_of(ledger, {"c": "lake"}).summary(())

    def counts(groups: Any) -> dict[str | None, int]:
        return {group.name: group.numbers.streams for group in groups}

    assert counts(summary.models) == {"a": 2, "b": 1}
    assert counts(summary.tenants) == {"river": 1, None: 1, "lake": 1}
    assert counts(summary.upstreams) == {"nimbus": 3}
    times = {group.name: group.numbers.first_token for group in summary.tenants or ()}
    assert {name: one and one.streams for name, one in times.items()} == {"river": 1, None: 1, "lake": 1}


@pytest.mark.parametrize(
    ("choice", "streams"), [((("model", "a"),), 2), ((("tenant", None),), 1), ((("tenant", "lake"),), 1)]
)
def test_a_choice_is_of_numbers_and_of_yesterday(ledger: Ledger, choice: Any, streams: int) -> None:
    store(ledger, 9, 2 * DAY_S)
    for day in (0, 1):
        for number, (model, tenant) in enumerate((("a", "river"), ("a", None), ("b", None))):
            credential = "c" if number == 2 else None
            ago = 10 + day * DAY_S
            store(ledger, 10 * day + number, ago, response_model=model, tenant=tenant, credential_id=credential)
    summary = streams_of(ledger, {"c": "lake"}).summary(choice)
    assert [numbers and numbers.streams for numbers in (summary.hour, summary.yesterday)] == [streams, streams]


def test_an_answer_is_kept_for_a_second(ledger: Ledger) -> None:
    clock = Clock()
    streams = streams_of(ledger, clock=clock)
    assert streams.summary(()).hour.streams == 0
    store(ledger, 1, 10)
    assert streams.summary(()).hour.streams == 0
    clock.wall_s += 1.5
    assert streams.summary(()).hour.streams == 1


def test_an_answer_that_took_long_is_kept_for_a_quarter_of_a_minute_at_most(ledger: Ledger) -> None:
    clock = Clock()
    streams = streams_of(ledger, clock=clock)

    def slowly(*_: object) -> None:
        clock.wall_s += 10.0

    with each_statement(slowly):
        streams.summary(())
    store(ledger, 1, 10)
    clock.wall_s += stored_streams.MOST_S + 1.0
    assert streams.summary(()).hour.streams == 1


def test_more_groups_than_are_shown_are_counted(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_streams, "MAX_GROUPS", 1)
    store(ledger, 1, 10, response_model="a")
    store(ledger, 2, 10, response_model="b")
    summary = streams_of(ledger).summary(())
    assert ([group.name for group in summary.models or ()], summary.not_shown) == (["a"], {"model": 1})


def test_numbers_and_lists_read_the_hour_alone(ledger: Ledger) -> None:
    for number in range(20):
        store(ledger, number, 600 * number + 5)
    streams, plans = streams_of(ledger), list[str]()

    def explain(connection: Any, cursor: Any, sql: str, parameters: Any) -> None:
        if "FROM records" in sql:
            lines = connection.connection.dbapi_connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)
            plans.extend(line[3] for line in lines.fetchall() if " records " in f"{line[3]} ")

    with each_statement(explain):
        assert streams.summary(()).hour.streams == 6
        for sort in ("worst", "newest", "slowest"):
            assert len(streams.finished(Wanted(age_s=3_600, sort=sort)).streams) == 6
    by_start = "records_by_start (<expr>>? AND <expr><?)"
    by_id = "SEARCH records USING INDEX sqlite_autoindex_records_1 (stream_id=?)"  # of the streams that the index has chosen
    of_resumed = [plan for plan in plans if "records_legs" in plan or "records_reread" in plan]
    others = {plan.replace("<expr>>?)", "<expr>>? AND <expr><?)") for plan in plans if plan not in of_resumed}
    assert others <= {
        f"SEARCH records USING INDEX {by_start}",
        f"SEARCH records USING COVERING INDEX {by_start}",
        by_id,
    }
    assert others > {by_id}


def test_a_record_that_cannot_be_read_hides_no_other(ledger: Ledger) -> None:
    store(ledger, 1, 10)
    began = datetime.fromtimestamp(NOW_S - 20, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    row = row_of(make_record(stream_id=name_of(2), started_at=began))
    ledger.insert([replace(row, record=b'{"stream_id":1,"cost":null}')])
    streams = streams_of(ledger)
    assert streams.summary(()).hour.streams == 2
    assert ids(streams) == [1]
    assert ids(streams, part=name_of(2)) == []
    assert streams.stream(UUID(name_of(2))) is None


# --- lists ------------------------------------------------------------------------------------------------------------


def some(ledger: Ledger) -> LedgerStreams:
    slow = make_timing(first_token_s=5.0)
    store(ledger, 1, 50)
    store(ledger, 2, 40, outcome="stream_error", error=Error("in_stream", "overloaded_error"))
    store(ledger, 3, 30, timing=slow, tenant="river")
    store(ledger, 4, 20, outcome="truncated")
    store(ledger, 5, 10, outcome="client_abort", usage=ABSENT)
    store(ledger, 6, 90_000, timing=slow)
    return streams_of(ledger)


def test_the_worst_come_first(ledger: Ledger) -> None:
    streams = some(ledger)
    assert ids(streams, age_s=3_600) == [4, 2, 3, 1, 5]
    assert ids(streams, age_s=3_600, limit=3) == [4, 2, 3]
    assert streams.finished(Wanted(age_s=3_600, limit=3)).more
    assert not streams.finished(Wanted(age_s=3_600, limit=5)).more


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"sort": "newest"}, [5, 4, 3, 2, 1, 6]),
        ({"sort": "slowest", "limit": 2}, [6, 3]),
        ({"outcomes": ("client_abort",)}, [5]),
        ({"outcomes": BROKEN_OUTCOMES}, [4, 2]),
        ({"outcomes": BROKEN_OUTCOMES, "sort": "newest"}, [4, 2]),
        ({"choice": (("tenant", "river"),)}, [3]),
        ({"since_s": NOW_S - 100_000, "until_s": NOW_S - 80_000}, [6]),
        ({"part": name_of(6), "age_s": 60}, [6]),
        ({"part": "000000000006"}, [6]),
        ({"part": "000000000006", "outcomes": ("truncated",)}, []),
        ({"part": "abc"}, []),
    ],
)
def test_streams_are_searched_and_filtered(ledger: Ledger, wanted: dict[str, Any], found: list[int]) -> None:
    assert ids(some(ledger), **wanted) == found


def test_a_row_has_its_cost_its_tenant_and_its_end(ledger: Ledger) -> None:
    store(ledger, 1, 50, credential_id="c", timing=make_timing(end_s=4.0))
    [row] = streams_of(ledger, {"c": "lake"}).finished(Wanted()).streams
    assert row.tenant == "lake"
    assert row.ended_s_ago == pytest.approx(46.0)
    assert row.cost_usd is not None


# --- a stream ---------------------------------------------------------------------------------------------------------


def test_a_stream_is_found_long_after_it_ended(ledger: Ledger) -> None:
    store(ledger, 1, 30 * DAY_S, outcome="stream_error", error=Error("in_stream", "overloaded_error"))
    timeline = streams_of(ledger).stream(UUID(name_of(1)))
    assert timeline is not None
    assert (timeline.source, timeline.steps, timeline.stream.outcome) == ("ledger", [], "stream_error")
    assert timeline.cost is not None
    assert float(timeline.cost.usd) > 0
    assert timeline.record.error == Error("in_stream", "overloaded_error")


def test_a_stream_without_a_cost_says_why(ledger: Ledger) -> None:
    store(ledger, 1, 10, usage=ABSENT)
    timeline = streams_of(ledger).stream(UUID(name_of(1)))
    assert timeline is not None
    assert (timeline.cost, timeline.cost_unknown) == (None, "no_usage")


def test_an_unknown_stream_is_none(ledger: Ledger) -> None:
    assert streams_of(ledger).stream(UUID(name_of(1))) is None


def test_a_ledger_that_cannot_be_read_is_said(ledger: Ledger, tmp_path: Path) -> None:
    streams = streams_of(ledger)
    ledger.close()
    (tmp_path / "ledger.sqlite").write_bytes(b"damaged" * 1_000)
    for read in (lambda: streams.summary(()), lambda: streams.finished(Wanted()), lambda: streams.stream(UUID(int=1))):
        with pytest.raises(NoAnswerError, match="ledger"):
            read()


def test_two_workers_show_the_same_sum_of_a_shared_ledger(ledger: Ledger, tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}") as other:
        store(ledger, 1, 10)
        store(other, 2, 10)
        numbers: list[Numbers] = [streams_of(one).summary(()).hour for one in (ledger, other)]
        assert [one.streams for one in numbers] == [2, 2]
        assert ids(streams_of(other), sort="newest") == [2, 1]
