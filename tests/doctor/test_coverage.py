"""The share of responses with a record: all fine, or a warning if some that were to have one have none."""

from pathlib import Path

from streamgauge.spool.read_counters import Counters
from streamgauge.spool.response_counters import NotCaptured
from tests.doctor.examined import OK, WARN, installation, only


def test_the_share_and_the_reasons(tmp_path: Path) -> None:
    seen = only("coverage", installation("up", tmp_path))
    assert (seen.level, "no response has passed" in seen.says) == (OK, True)
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    with Counters(tmp_path / "data" / "counters", "relay-0") as counters:
        for _ in range(5):
            counters.responses.seen("a")
        counters.responses.passed("a", NotCaptured.NOT_LLM, 2)
        counters.responses.passed("b", NotCaptured.REFUSED)
        seen = only("coverage", installation("tap", tmp_path))
        assert (seen.level, seen.says) == (
            OK,
            "5 of 8 responses have a record (62.5%); without: 2 not_llm, 1 refused",
        )
        counters.responses.not_captured("b", NotCaptured.SPOOL_LOST)
        seen = only("coverage", installation("tap", tmp_path))
        assert seen.level is WARN
        assert seen.says.startswith("4 of 8 responses have a record (50.0%); without: 2 not_llm, ")
