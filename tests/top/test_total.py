"""The sum of several answers: each stream once, wherever it is seen; and what is said of what the sum lacks."""

import pytest

from streamgauge.live.answers import Responses, Uncaptured
from streamgauge.top.total import Heard, Total
from tests.live.shown import busy_process, id_of
from tests.live.streams import Process
from tests.top.answers import answer_of, begin, finish, named

TAP, ONE, TWO = "tap-1:9464", "worker-1:9465", "worker-2:9465"


def total_of(**processes: Process) -> Total:
    return Total([Heard(name, answer_of(process)) for name, process in processes.items()])


def test_finished_streams_of_workers_are_added_up() -> None:
    one, two = named("worker", 0, 1), named("worker", 2, 3)
    finish(one, 1, 2)
    finish(two, 3)
    begin(two, 4)
    total = total_of(one=one, two=two)
    assert (total.streams, total.outcomes["completed"], total.open) == (3, 3, 1)
    assert total.upstreams == {"sim": {"completed": 3}}
    assert sum(total.minutes.values()) == 3
    assert {row["id"]: row["at"] for row in total.rows} == {id_of(1): 0, id_of(2): 0, id_of(3): 1, id_of(4): 1}
    assert total.rows[0]["id"] == id_of(4), "open streams come first"
    assert list(total.hints) == []


def test_a_stream_that_a_tap_and_a_worker_see_counts_once_and_is_at_the_worker() -> None:
    tap, worker = named("tap"), named("worker", 0)
    for process in (tap, worker):
        begin(process, 1)
        finish(process, 2)
    begin(tap, 3)  # the worker has not got it yet
    for process in (tap, worker):
        total = total_of(**({"a": tap, "b": worker} if process is tap else {"b": worker, "a": tap}))
        assert (total.open, total.streams) == (2, 1)
        at = {row["id"]: total.heard[row["at"]].address for row in total.rows}
        assert at == {id_of(1): "b", id_of(2): "b", id_of(3): "a"}


def test_an_open_stream_at_the_tap_that_the_worker_has_finished_is_finished() -> None:
    tap, worker = named("tap"), named("worker", 0)
    begin(tap, 1)
    finish(worker, 1)
    total = total_of(tap=tap, worker=worker)
    [row] = total.rows
    assert row["outcome"] == "completed"
    assert total.open == 0


def test_streams_of_a_tap_are_not_added_to_a_worker_s_that_lists_only_some_of_its_own() -> None:
    tap, worker = named("tap"), named("worker", 0)
    begin(tap, 1, 2)
    begin(worker, 1, 2)
    some = {"open": {**answer_of(worker)["open"], "not_shown": 1, "streams": answer_of(worker)["open"]["streams"][:1]}}
    total = Total([Heard("tap", answer_of(tap)), Heard("worker", {**answer_of(worker), **some})])
    assert (total.open, len(total.rows)) == (2, 1)


def test_a_tap_alone_says_where_finished_streams_are() -> None:
    tap = named("tap")
    tap.clock.now = 3.0
    total = total_of(tap=tap)
    assert total.period == "since 22:13:20 UTC (3 s)"
    [hint] = total.hints
    assert "the workers have all of them" in hint
    assert "streamgauge top TAP WORKER ..." in hint


def test_one_worker_says_that_others_may_have_more() -> None:
    [hint] = total_of(one=named("worker", 0)).hints
    assert hint == "Other workers have the streams of other partitions: give their admin ports, too."


def test_a_period_is_the_hour_only_if_it_was_counted() -> None:
    process = Process()
    for now, period in (
        (0.0, "since 22:13:20 UTC (0 s)"),
        (130.0, "since 22:13:20 UTC (2 min)"),
        (3_599.5, "in the last hour"),
    ):
        process.clock.now = now
        assert total_of(up=process).period == period


def test_a_worker_that_began_later_is_named() -> None:
    old, young = named("worker", 0), named("worker", 1)
    old.clock.now = 4_000.0
    young.clock.now = 3_880.0
    young.view = named("worker", 1).view
    young.view._since_s = young.view._hour_since_s = young.clock.wall()
    young.view._wall = old.clock.wall
    total = total_of(one=old, two=young)
    assert total.period == "in the last hour"
    assert list(total.hints) == ["worker two counts only since 23:18:00 UTC (2 min)."]


def test_a_process_that_does_not_answer_is_said_and_hides_no_other() -> None:
    worker = named("worker", 0)
    finish(worker, 1)
    missing, stale = Heard(ONE, None, f"nothing answers at {ONE}"), Heard(TWO, answer_of(worker), "it broke", 75.0)
    total = Total([missing, stale])
    assert total.streams == 1
    assert list(total.problems) == [
        f"nothing answers at {ONE}. Its streams are missing here.",
        "it broke. Its streams below are 1 min old.",
    ]
    assert Total([missing]).streams == 0
    assert Total([missing]).period.startswith("since")


def test_a_worker_without_partitions_says_why() -> None:
    answer = {**answer_of(named("worker")), "unready": "its consumer group is rebalancing"}
    assert list(Total([Heard(ONE, answer)]).problems) == [
        f"worker {ONE} shows no streams now: its consumer group is rebalancing."
    ]
    missed = {**answer_of(named("tap")), "missed_bundles": 1}
    assert list(Total([Heard(TAP, missed)]).problems) == [
        f"tap {TAP} left out 1 bundle that came too fast to assemble."
    ]


def test_quantiles_are_those_of_all_streams() -> None:
    """As histogram_quantile of Prometheus: linear in the bucket in which the quantile is."""
    one, two = named("worker", 0), named("worker", 1)
    assert total_of(one=one).quantile("first_token", 0.5) is None
    finish(one, *range(1, 10))
    finish(two, 20)
    total = total_of(one=one, two=two)
    found = total.quantile("first_token", 0.5)
    assert found is not None
    bounds = answer_of(one)["hour"]["first_token"]["bounds_s"]
    above = next(at for at, bound in enumerate(bounds) if bound >= 0.1)
    assert found[0] == pytest.approx((bounds[above - 1] + bounds[above]) / 2)
    assert not found[1]
    answer = answer_of(one)
    counts = [0] * len(bounds) + [3]
    answer["hour"]["first_token"]["counts"] = [counts]
    assert Total([Heard(ONE, answer)]).quantile("first_token", 0.95) == (bounds[-1], True)
    assert Total([]).quantile("first_token", 0.5) is None


def test_the_rate_is_that_since_the_first_stream() -> None:
    """A process that has just begun has the hour of an empty ledger."""
    process = Process()
    process.view.load([], process.clock.wall() - 3_600)
    finish(process, *range(1, 11))
    assert total_of(up=process).a_minute is None
    process.clock.now = 300.0
    assert total_of(up=process).a_minute == pytest.approx(2.0, rel=0.1)


def test_costs_budgets_and_responses() -> None:
    total = total_of(one=busy_process(), two=busy_process(), tap=named("tap"))
    assert total.cost_usd == pytest.approx(2 * 1.23)
    assert total.costs == {"sim": pytest.approx(2 * 1.23)}
    assert [budget["value"] for budget in total.members("budgets")] == ["river", "lake"]
    assert total.audit is not None
    assert total.a_minute == pytest.approx(82 / 30, rel=0.03)
    assert total.responses is None
    tap = named("tap")
    tap.view.responses = lambda: Responses(8, 5, [Uncaptured("a", "not_llm", 2), Uncaptured("b", "not_llm", 1)])
    assert total_of(one=tap, two=tap).responses == (16, 10, {"not_llm": 6})
    assert total_of(tap=tap).cost_usd is None
