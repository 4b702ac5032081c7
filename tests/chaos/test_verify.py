"""The verifier finds each kind of fault, and reports none in a correct run."""

import ast
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import verify
from tests.chaos.verify import Entry, Report, Stream, judge, judge_balance

WHOLE = Stream(
    "t-1",
    "completed",
    5,
    finish_reason="stop",
    input_tokens=3,
    output_tokens=5,
    total_tokens=8,
    usage_source="final",
    phase="calm",
    began_at=100.0,
    ended_at=102.0,
)


def record(stream_id: str = "s-1", **changed: Any) -> dict[str, Any]:
    usage = {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8, "source": "final"}
    values = {
        "stream_id": stream_id,
        "trace_id": "t-1",
        "outcome": "completed",
        "finish_reason": "stop",
        "usage": usage,
    }
    return {**values, "counts": {"token_events": 5}, "integrity": {"complete": True, "reasons": []}, **changed}


def entry(values: Mapping[str, Any], at: float = 102.5) -> Entry:
    return Entry(values["stream_id"], json.dumps(values).encode(), at)


def row(values: Mapping[str, Any]) -> tuple[str, bytes]:
    return values["stream_id"], json.dumps({**values, "cost": None}).encode()


def faults(report: Report) -> dict[str, list[str]]:
    return {name: found for name, found in report.faults.items() if found}


def in_doubt(doubt: str) -> Stream:
    return Stream(**{**vars(WHOLE), "doubt": doubt})


CUT = record(
    outcome="abandoned",
    finish_reason=None,
    usage={"input_tokens": None, "output_tokens": None, "total_tokens": None, "source": "absent"},
    counts={"token_events": 2},
    integrity={"complete": False, "reasons": ["abandoned"]},
)


def test_agreement_has_no_finding() -> None:
    report = judge({"t-1": WHOLE}, [entry(record())], [row(record())])
    assert report.holds
    assert (report.streams, report.records, report.ledger_rows) == (1, 1, 1)
    assert report.latency == {"calm": {"count": 1, "p50_s": 0.5, "p99_s": 0.5, "max_s": 0.5}}


def test_identical_duplicates_are_legal_and_the_first_time_counts() -> None:
    report = judge({"t-1": WHOLE}, [entry(record(), 109.0), entry(record(), 103.0)], [row(record())])
    assert report.holds
    assert report.repeated == 1
    assert report.latency["calm"]["max_s"] == 1.0


def test_a_stream_without_a_record_is_missing() -> None:
    assert faults(judge({"t-1": WHOLE}, [], [])) == {"missing": ["t-1"]}


def test_records_under_two_ids_are_a_duplicate() -> None:
    both = [record("s-1"), record("s-2")]
    assert faults(judge({"t-1": WHOLE}, [*map(entry, both)], [*map(row, both)])) == {"duplicate": ["t-1"]}


def test_other_bytes_under_one_id_are_two_versions() -> None:
    other = {**record(), "attempt": 2}
    found = faults(judge({"t-1": WHOLE}, [entry(record()), entry(other)], [row(record())]))
    assert found["versions"] == ["s-1"]


def test_record_without_a_request_is_unknown() -> None:
    stray = record("s-9", trace_id="t-9")
    found = faults(judge({"t-1": WHOLE}, [entry(record()), entry(stray)], [row(record()), row(stray)]))
    assert found == {"unknown": ["s-9"]}


@pytest.mark.parametrize(
    "changed",
    [
        {"outcome": "truncated"},
        {"finish_reason": None},
        {"counts": {"token_events": 6}},
        {"usage": None},
        {"usage": {"input_tokens": 3, "output_tokens": 0, "total_tokens": 8, "source": "final"}},
        {"usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8, "source": "partial"}},
        {"integrity": {"complete": False, "reasons": ["missing_segments"]}},
    ],
    ids=str,
)
def test_a_record_with_another_value_differs(changed: dict[str, Any]) -> None:
    values = record(**changed)
    (found,) = faults(judge({"t-1": WHOLE}, [entry(values)], [row(values)])).items()
    assert found[0] == "differing"
    assert found[1][0].startswith("t-1: ")


def test_the_ledger_must_equal_the_topic() -> None:
    other = record(finish_reason="length")
    assert faults(judge({"t-1": WHOLE}, [entry(record())], [])) == {"ledger_missing": ["s-1"]}
    assert faults(judge({}, [], [row(record())])) == {"ledger_unknown": ["s-1"]}
    assert faults(judge({"t-1": WHOLE}, [entry(record())], [row(other)])) == {"ledger_differing": ["s-1"]}
    assert faults(judge({"t-1": WHOLE}, [entry(record())], [row(record())] * 2)) == {"ledger_differing": ["s-1"]}


def test_a_stream_whose_tap_was_killed_may_be_cut_if_its_record_says_so() -> None:
    open_, new = in_doubt("open"), in_doubt("new")
    for stream in (open_, new):
        assert judge({"t-1": stream}, [entry(CUT)], [row(CUT)]).in_doubt == {"abandoned": 1}
        assert judge({"t-1": stream}, [entry(CUT)], [row(CUT)]).holds
        assert judge({"t-1": stream}, [entry(record())], [row(record())]).in_doubt == {"whole": 1}
    assert judge({"t-1": new}, [], []).holds
    assert faults(judge({"t-1": open_}, [], [])) == {"missing": ["t-1"]}


@pytest.mark.parametrize(
    "changed",
    [
        {"outcome": "completed", "integrity": {"complete": True}},  # it does not say so
        {"counts": {"token_events": 6}},  # more than there was
        {"usage": {"input_tokens": 3, "output_tokens": 0, "total_tokens": None}},  # missing is not zero
    ],
    ids=str,
)
def test_a_cut_that_is_not_marked_differs(changed: dict[str, Any]) -> None:
    values = {**CUT, **changed}
    assert faults(judge({"t-1": in_doubt("open")}, [entry(values)], [row(values)])).keys() == {"differing"}
    assert faults(judge({"t-1": WHOLE}, [entry(CUT)], [row(CUT)])).keys() == {"differing"}


PAGE = """# HELP streamgauge_tap_reads_seen_total reads
streamgauge_tap_reads_seen_total 10
streamgauge_tap_reads_delivered_total {}
streamgauge_tap_reads_dropped_total{{reason="crash"}} 2
streamgauge_tap_reads_dropped_total{{reason="spool_full"}} 1
streamgauge_tap_reads_waiting {}
"""


@pytest.mark.parametrize(("delivered", "waiting", "holds"), [(7, 0, True), (6, 1, False), (8, 0, False)])
def test_the_balance_of_a_tap(delivered: int, waiting: int, holds: bool) -> None:
    report = Report()
    judge_balance("tap", PAGE.format(delivered, waiting), report)
    assert report.holds is holds


def test_a_stream_is_in_the_truth_once(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    line = json.dumps(vars(WHOLE)) + "\n"
    path.write_text(line)
    assert verify.read_truth(path) == {"t-1": WHOLE}
    path.write_text(line * 2)
    with pytest.raises(ValueError, match="twice"):
        verify.read_truth(path)


def test_it_shares_no_code_with_what_it_judges() -> None:
    tree = ast.parse(Path(verify.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"aiokafka"}
