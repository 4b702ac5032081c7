"""What the comparison of clients finds: each difference by its name, and the added time with its doubt."""

import math

import pytest

from tests.clients.agents import stable
from tests.clients.both_ways import Comparison, Run, added_by
from tests.clients.model import Step, results_in

RUN = Run("1", [["a"]], ["N"], 2)


@pytest.mark.parametrize(
    ("tapped", "differ"),
    [
        (RUN, []),
        (RUN._replace(seen=[["b"]]), ["seen"]),
        (RUN._replace(requests=3), ["requests"]),
        (RUN._replace(warnings=[]), ["warnings"]),
    ],
)
def test_each_difference_is_named(tapped: Run, differ: list[str]) -> None:
    assert Comparison(RUN, tapped, [], 2).differences == differ


def test_added_times_are_of_pairs() -> None:
    found = Comparison(RUN, RUN, [(0.1, 0.3), (0.5, 0.6), (0.2, 0.2)], 2)
    assert found.direct_s == 0.2
    assert found.added.median == pytest.approx(0.1)
    assert found.least_added_s == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("differences", "bounds", "within"),
    [
        ([0.01] * 5, (-math.inf, math.inf), None),  # a chance of one in sixteen is more than 5 %
        ([0.01] * 6, (0.01, 0.01), True),
        ([0.06] * 6, (0.06, 0.06), False),
        ([*[0.01] * 6, 0.9], (0.01, 0.9), None),
        # Of nine, the interval leaves out one on each side: two in 512 and eighteen in 512 are 3.9 %.
        ([0.001 * number for number in range(8, -1, -1)], (0.001, 0.007), True),
    ],
)
def test_the_added_time_has_an_interval(
    differences: list[float], bounds: tuple[float, float], within: bool | None
) -> None:
    added = added_by(differences)
    assert (added.low, added.high) == bounds
    assert added.within_limit is within


def test_members_that_differ_between_any_two_runs_are_left_out() -> None:
    assert stable([{"uuid": "x", "type": "a", "more": [{"duration_ms": 3, "n": 1}]}, 0]) == [
        {"type": "a", "more": [{"n": 1}]},
        0,
    ]


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": [{"role": "tool", "content": "4"}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text"}]}]}]},
        {"input": [{"type": "function_call_output", "output": "4"}]},
        {"contents": [{"parts": [{"functionResponse": {"response": {"role": "tool"}}}]}]},
        {"messages": [{"content": [{"toolResult": {"content": []}}]}]},
    ],
)
def test_the_model_counts_the_results_of_tools(request_: dict[str, object]) -> None:
    assert results_in(request_) == 1
    tools = [{"type": "function", "function": {"name": "level"}}]
    assert Step({**request_, "tools": tools}, turns=1).call is None
    assert Step({**request_, "tools": tools}, turns=2).call == ("level", '{"river":"Seine"}')
    assert Step({**request_, "tools": []}, turns=2).call is None
