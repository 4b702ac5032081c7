"""The picture: its structure at 80x24 and 200x60, and that it fits a terminal of any size."""

import json
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from streamgauge.core.safe_values import escaped
from streamgauge.live.answers import Responses, Uncaptured
from streamgauge.top.keys import HELP, STREAM, TOTALS, State
from streamgauge.top.picture import Detail, labels_of, last_top, picture, whole
from streamgauge.top.streams import chosen
from streamgauge.top.total import Heard, Total
from tests.live.shown import FAILED, SILENT, busy_process, id_of, partly_priced_process, unpriced_process
from tests.live.streams import SECOND, Process, segment, token
from tests.streams import stream_id
from tests.top.answers import answer_of, finish, named

BUSY = busy_process()
TOTAL = Total([Heard("127.0.0.1:9464", answer_of(BUSY))])
MANY = Total(
    [
        Heard("127.0.0.1:9464", answer_of(busy_process())),
        Heard("127.0.0.1:9465", answer_of(named("worker", 0, 1, 2, 5))),
        Heard("127.0.0.1:9466", None, "nothing answers at 127.0.0.1:9466 (Connection refused)"),
    ]
)


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def text_of(process: Process, width: int = 160) -> str:
    return "\n".join(plain(whole(Total([Heard("up:1", answer_of(process))]), State(), width)))


def detail_of(number: int) -> Detail:
    timeline = BUSY.view.timeline(UUID(bytes=stream_id(number)))
    assert timeline is not None
    return Detail(json.loads(msgspec.json.encode(timeline)))


def titles(lines: list[str]) -> list[str]:
    [heads] = [line for line in lines if line.startswith("stream ")]
    return [title.strip() for title in heads.split("  ") if title.strip()]


def test_at_80x24_the_numbers_are_seen() -> None:
    lines = plain(picture(TOTAL, State(), 80, 24))
    assert len(lines) == 24
    assert max(map(len, lines)) <= 80
    assert titles(lines) == ["stream", "upstream", "model", "outcome", "first token", "silent for", "longest gap"]
    [silent] = [line for line in lines if "silent  " in line]
    assert silent.startswith(id_of(SILENT)[-8:])
    assert silent.split()[1:] == ["sim", "m", "silent", "100", "ms", "39.8", "s", "80", "ms"]
    assert sum(line.startswith("000000") for line in lines) >= 15
    for key in ("? help", "q quit", "/ filter", "s sort: worst", "enter stream"):
        assert key in lines[-1]


def test_at_200x60_every_column_is_there() -> None:
    lines = plain(picture(TOTAL, State(), 200, 60))
    assert len(lines) == 60
    assert titles(lines) == [
        "stream", "upstream", "model", "outcome", "first token", "silent for", "longest gap", "when", "token events", "error",
        "last minute", "tenant", "status", "tokens out",
    ]  # fmt: skip
    assert any("in_stream overloaded_error" in line for line in lines)
    assert any("█" in line for line in lines)
    assert sum(line.startswith("000000") for line in lines) == len(TOTAL.rows) < 60


@pytest.mark.parametrize("width", [80, 200])
def test_the_first_lines_say_what_is_wrong(width: int) -> None:
    text = " ".join(" ".join(plain(picture(TOTAL, State(), width, 24))[:6]).split())
    assert (
        "3 open, 1 silent. 41 finished since 22:13:20 UTC (30 min), 90.2 % completed: 37 completed, 4 upstream_reset"
        in text
    )
    assert "First token, reasoning included: p50 " in text
    assert "; gaps p50 " in text
    assert "cost 1.23 USD" in text
    assert "Budget of feature lake: 2.50 of 2.00 USD (125%)" in text


def test_several_processes_are_one_view() -> None:
    lines = plain(picture(MANY, State(), 80, 24))
    assert lines[0].startswith("3 addresses: 1 up, 1 worker")
    assert "nothing answers at 127.0.0.1:9466" in lines[1]
    assert "Its streams are missing here." in lines[1] + lines[2]
    assert "at" in titles(lines)
    assert any(line.startswith("000000") and ":9464" in line for line in lines)
    totals = plain(picture(MANY, State(screen=TOTALS), 80, 40))
    rows = {line.split()[0]: line for line in totals if line.startswith("127.0.0.1:")}
    assert "up 0.1.0" in rows["127.0.0.1:9464"]
    assert "0-2, 5" in rows["127.0.0.1:9465"]
    assert "does not answer" in rows["127.0.0.1:9466"]


def test_processes_have_short_names_that_differ() -> None:
    def labels(*addresses: str) -> list[str]:
        return labels_of(Total([Heard(address, None) for address in addresses]))

    assert labels("a:1") == ["a:1"]
    assert labels("a:1", "a:2") == [":1", ":2"]
    assert labels("a:1", "b:1") == ["a", "b"]
    assert labels("a:1", "b:2") == ["a:1", "b:2"]
    assert labels("[::1]:1", "[::1]:2") == [":1", ":2"]


def test_the_selected_stream_is_in_view() -> None:
    rows = chosen(TOTAL.rows, "", "worst")
    for index in (0, 20, len(rows) - 1):
        lines = picture(TOTAL, State(selected=rows[index]["id"], index=index), 80, 12)
        [selected] = [line for line in lines if any(span.style == "reverse" for span in line.spans)]
        assert selected.plain.startswith(rows[index]["id"][-8:])


def test_a_filter_is_shown_and_what_it_leaves_out() -> None:
    lines = plain(picture(TOTAL, State(filter="upstream_reset", typing=True), 80, 24))
    assert sum(line.startswith("000000") for line in lines) == 4
    assert lines[-1].startswith("filter: upstream_reset")
    assert "filter upstream_reset" in plain(picture(TOTAL, State(filter="upstream_reset"), 80, 24))[-1]
    none = "\n".join(plain(picture(TOTAL, State(filter="nothing"), 80, 24)))
    assert f"None of the {len(TOTAL.rows)} listed streams matches the filter 'nothing'." in none


def test_open_streams_that_are_not_listed_are_counted() -> None:
    answer = answer_of(BUSY)
    answer["open"]["not_shown"] = 9_000
    text = "\n".join(plain(picture(Total([Heard("up:1", answer)]), State(), 80, 24)))
    assert "9,000 more open streams are not listed." in text


def test_the_stream_s_screen_has_facts_and_reads() -> None:
    state = State(screen=STREAM, selected=id_of(FAILED))
    lines = plain(picture(TOTAL, state, 80, 50, detail_of(FAILED)))
    facts = {name.strip(): value.strip() for name, _, value in (line.partition("  ") for line in lines)}
    assert f"Stream {id_of(FAILED)}" in lines
    assert facts["Outcome"] == "open"
    assert facts["Error"] == "in_stream overloaded_error"
    assert facts["First token, reasoning included"] == "900 ms"
    assert facts["First text"] == "900 ms"
    assert facts["Capture"] == "complete so far"
    [heads] = [line for line in lines if line.lstrip().startswith("read ")]
    assert "gap before it" in heads
    assert any(" 2.10 s " in line and "error" in line for line in lines)
    assert not any("SECRET" in line for line in lines)
    known = {"usd": "0.0123", "price_source": "provider", "price_date": None}
    costs: list[dict[str, Any]] = [{"cost": known}, {"cost": None, "cost_unknown": "no_seller"}]
    for cost, said in zip(costs, ("0.0123 USD (provider)", "unknown: no seller"), strict=True):
        priced = Detail({**(detail_of(FAILED).answer or {}), **cost})
        assert any(line.split(None, 1) == ["Cost", said] for line in plain(picture(TOTAL, state, 80, 50, priced)))
    scrolled = plain(picture(TOTAL, State(screen=STREAM, selected=id_of(FAILED), top=5), 80, 20, detail_of(FAILED)))
    assert f"Stream {id_of(FAILED)}" not in scrolled
    below = picture(TOTAL, State(screen=STREAM, selected=id_of(FAILED), top=1_000_000), 80, 20, detail_of(FAILED))
    last = last_top(TOTAL, State(screen=STREAM, selected=id_of(FAILED)), 80, 20, detail_of(FAILED))
    assert plain(below) == plain(
        picture(TOTAL, State(screen=STREAM, selected=id_of(FAILED), top=last), 80, 20, detail_of(FAILED))
    )
    assert plain(below) != plain(
        picture(TOTAL, State(screen=STREAM, selected=id_of(FAILED), top=last - 1), 80, 20, detail_of(FAILED))
    )


def test_a_stream_that_is_kept_no_longer_says_so_and_has_the_facts_of_its_row() -> None:
    gone = Detail(problem="this process keeps this stream no longer: run streamgauge ledger show 00000002")
    text = "\n".join(plain(picture(TOTAL, State(screen=STREAM, selected=id_of(SILENT)), 80, 40, gone)))
    assert "This process keeps this stream no longer: run streamgauge ledger show 00000002." in text
    assert "39.8 s" in text
    nothing = plain(picture(TOTAL, State(screen=STREAM, selected="unknown"), 80, 40, Detail()))
    assert "Stream unknown" in nothing


def test_totals_and_help() -> None:
    text = "\n".join(plain(picture(TOTAL, State(screen=TOTALS), 200, 60)))
    for line in (
        "sim: 37 completed, 4 upstream_reset; 1.23 USD",
        "(37 of 41 streams reported usage)",
        "Budget of tenant river: 450.50 of 500.00 USD (90%)",
        "Audit of 2026-10-01 to 2026-11-01: does not agree with the bill",
        "Rate limit of sim, key unknown: 4 of 100 requests left, 800 of 1000 tokens left",
    ):
        assert line in text
    help_ = plain(picture(TOTAL, State(screen=HELP), 80, 60))
    assert any("reasoning included" in line for line in help_)
    assert any(line.startswith("client_abort") and "no error" in line for line in help_)


def test_only_the_name_of_a_fact_is_faint_and_only_that_of_a_colour_is_coloured() -> None:
    console = Console(color_system="standard", force_terminal=True)

    def styles(lines: list[Text], name: str, text: str) -> list[str]:
        [line] = [line for line in lines if line.plain.startswith(name)]
        return [str(line.get_style_at_offset(console, line.plain.index(part))) for part in (name, text)]

    facts = picture(TOTAL, State(screen=STREAM, selected=id_of(FAILED)), 80, 50, detail_of(FAILED))
    assert styles(facts, "Error  ", "in_stream") == ["dim", "bold red"]
    assert styles(facts, "Model", "m") == ["dim", "none"]
    help_ = picture(TOTAL, State(screen=HELP), 80, 60)
    assert styles(help_, "completed", "the stream ended") == ["green", "none"]


def test_pause_is_shown() -> None:
    assert "paused" in plain(picture(TOTAL, State(paused=True), 80, 24))[0]


def test_costs_that_are_not_known_are_not_0() -> None:
    assert "cost unknown" in text_of(unpriced_process())
    assert "cost 0.0300 USD (of 1 of 2 streams)" in text_of(partly_priced_process())


def test_without_streams_it_says_since_when() -> None:
    process = Process()
    process.clock.now = 3.0
    assert "0 open, 0 silent. No stream has finished since 22:13:20 UTC (3 s)." in text_of(process)
    assert "in the last hour" not in text_of(process)
    process = named("tap")
    process.view.load([], process.clock.wall() - 3_600)
    process.clock.now = 3.0
    by_ledger = "No stream has finished in the last hour by the ledger; tap runs since 22:13:20 UTC (3 s)."
    assert by_ledger in text_of(process)
    process.clock.now = 4_000.0
    assert "No stream has finished in the last hour." in text_of(process)


def test_the_share_of_responses_with_a_record() -> None:
    process = Process()
    process.view.responses = lambda: Responses(8, 5, [Uncaptured("a", "not_llm", 2), Uncaptured("b", "not_llm", 1)])
    assert "Responses with a record: 5 of 8 (62.5 %); without: 3 not_llm" in text_of(process)


def test_names_from_providers_are_no_markup() -> None:
    process = Process()
    first = segment(1, 0, [token(0)])
    assert first.request is not None
    process.take(
        [msgspec.structs.replace(first, request=msgspec.structs.replace(first.request, model="[red]m[/red]"))], SECOND
    )
    assert "[red]m[/red]" in text_of(process)


def test_wide_characters_take_two_columns() -> None:
    answer = answer_of(BUSY)
    for row in answer["open"]["streams"]:
        row["model"] = "模型" * 20
    for width in (40, 80, 81, 200):
        lines = picture(Total([Heard("up:1", answer)]), State(), width, 24)
        assert max(line.cell_len for line in lines) <= width


def totals() -> st.SearchStrategy[Total]:
    tap, empty = named("tap"), named("worker", 0)
    finish(tap, 1)
    answers: list[Any] = [answer_of(BUSY), answer_of(tap), answer_of(empty), None]
    addresses = st.text(min_size=1, max_size=60).map(lambda text: f"{escaped(text)}:1")
    problems = st.none() | st.text(max_size=200).map(escaped)
    return st.lists(st.builds(Heard, addresses, st.sampled_from(answers), problems), min_size=1, max_size=4).map(Total)


@given(
    totals(),
    st.sampled_from(["streams", TOTALS, STREAM, HELP]),
    st.text(max_size=30).map(escaped),
    st.booleans(),
    st.integers(1, 220),
    st.integers(1, 70),
    st.integers(0, 1_000_000),
)
def test_it_fits_any_terminal(
    total: Total, screen: str, text: str, typing: bool, width: int, height: int, top: int
) -> None:
    state = State(screen=screen, filter=text, typing=typing, top=top, selected=id_of(FAILED), index=top)
    lines = picture(total, state, width, height, detail_of(FAILED))
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)
    assert not any("\n" in line.plain for line in whole(total, state, width))
