"""What is printed about a file besides its records: one sentence for each problem, none if there is none."""

import pytest

from streamgauge.cli.replay import Found, Note, notes_on
from streamgauge.taps.replay.contract import Tally


def said(
    tally: Tally,
    not_llm: int = 0,
    open_streams: int = 0,
    *,
    records: int = 1,
    without_event: int = 0,
    broken: bool = False,
) -> list[Note]:
    return list(notes_on(tally, Found(records, without_event, not_llm, open_streams), broken=broken))


@pytest.mark.parametrize("tally", [Tally(), Tally(exchanges=3)])
def test_without_problems_nothing_is_printed(tally: Tally) -> None:
    assert said(tally) == []


@pytest.mark.parametrize(
    ("tally", "text", "is_fault"),
    [
        (Tally(exchanges=0), "it contains no LLM exchange", False),
        (Tally(exchanges=1, not_llm=1), "it contains no LLM exchange (1 other exchange was ignored)", False),
        (Tally(exchanges=3, not_llm=2), "2 other exchanges were ignored: not LLM traffic", False),
        (Tally(exchanges=2, without_body=1), "1 response was recorded without its body: incomplete", False),
        (Tally(exchanges=2, without_body=2), "2 responses were recorded without their bodies: incomplete", False),
        (
            Tally(exchanges=0, broken_exchanges=2, first_broken="flow 1: x"),
            "2 exchanges that cannot be read have no record, the first at flow 1: x",
            True,
        ),
        (Tally(unreadable_rows=1), "1 row is damaged, or not a bundle of this version", True),
        (Tally(rows_removed=2), "2 rows were delivered and removed while the file was read", False),
    ],
)
def test_f13_each_problem_has_its_sentence(tally: Tally, text: str, is_fault: bool) -> None:
    assert said(tally) == [Note(text, is_fault)]


def test_streams_that_turned_out_not_to_be_llms_count_as_others() -> None:
    text = "it contains no LLM exchange (2 other exchanges were ignored)"
    assert said(Tally(exchanges=2, not_llm=1), 1)[0].text == text
    assert said(Tally(exchanges=4, not_llm=1), 1)[0].text == "2 other exchanges were ignored: not LLM traffic"


def test_a_part_that_was_not_read_may_have_had_exchanges() -> None:
    assert said(Tally(exchanges=0), broken=True) == []


def test_a_recording_without_an_event_is_reported() -> None:
    text = "no event was found in 1 stream: check that the file is a recording of server-sent events"
    assert said(Tally(), without_event=1) == [Note(text)]


def test_a_spool_without_a_row_is_reported() -> None:
    text = "it contains no stream; a spool holds only what is not delivered yet"
    assert said(Tally(), records=0) == [Note(text)]
    assert said(Tally(), records=0, broken=True) == []


def test_streams_that_have_not_ended_are_reported() -> None:
    assert said(Tally(), open_streams=1) == [Note("1 stream has not ended yet and has no record")]
    assert said(Tally(), open_streams=2) == [Note("2 streams have not ended yet and have no record")]
