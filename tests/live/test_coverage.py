"""The page's answer on responses, from a real counters file."""

from pathlib import Path

from streamgauge.live.answers import Responses, Uncaptured
from streamgauge.live.coverage import responses_of
from streamgauge.spool.read_counters import Counters
from streamgauge.spool.response_counters import NotCaptured


def test_the_responses_of_all_processes_by_upstream_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    assert responses_of(path) == Responses(0, 0, [])
    with Counters(path, "relay-0") as one, Counters(path, "relay-1") as two:
        one.responses.seen("b")
        one.responses.passed("b", NotCaptured.NOT_LLM)
        two.responses.passed("b", NotCaptured.FORMAT, 2)
        two.responses.passed("a", NotCaptured.REFUSED)
        rows = [Uncaptured("a", "refused", 1), Uncaptured("b", "format", 2), Uncaptured("b", "not_llm", 1)]
        assert responses_of(path) == Responses(5, 1, rows)
