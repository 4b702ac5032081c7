"""The terminal view: one line per stream if stdout is not a terminal, a live table if it is, and the summary."""

import re
from io import StringIO

from rich.console import Console

from streamgauge_demo.results import Results
from streamgauge_demo.scenarios import BY_MODEL
from streamgauge_demo.tally import Seen
from streamgauge_demo.truth import Told, Wrote
from streamgauge_demo.view import View
from tests.demo.test_results import good_client, good_record

MODELS = ("sansa/auto-stop", "nimbus/messages-tools", "local/chat-error")


def shown(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


def plain() -> Console:
    return Console(file=StringIO(), width=160)


def terminal() -> Console:
    return Console(file=StringIO(), width=160, height=20, force_terminal=True)


def play(console: Console, *models: str) -> tuple[View, Results]:
    results = Results(BY_MODEL[model] for model in models)
    view = View(results, console)
    with view:
        for scenario in results.scenarios:
            view.started(scenario)
            view.ended(scenario, good_client(scenario))
            view.record(good_record(scenario))
    return view, results


def test_plain_output_has_a_line_with_numbers_for_each_record() -> None:
    console = plain()
    play(console, *MODELS)
    lines = shown(console).splitlines()
    assert len(lines) == len(MODELS)
    for part in ("sansa/auto-stop", "openai-chat", "openai/gpt-5.4-mini", "500 ms", "completed, stop", "12+50"):
        assert part in lines[0]
    assert re.search(r"p50 +30 ms p95 +60 ms", lines[0])
    assert lines[1].endswith("41+?")  # what is unknown is not 0
    assert lines[2].rstrip().endswith("-")


def test_a_record_without_times_shows_dashes() -> None:
    console = plain()
    results = Results([BY_MODEL["sansa/no-credits"]])
    with View(results, console) as view:
        view.record({**good_record(BY_MODEL["sansa/no-credits"]), "timing": {"first_token_s": None, "gaps": {}}})
    assert " ms" not in shown(console)
    assert "http_error" in shown(console)


def test_a_record_with_nothing_in_it_is_shown_too() -> None:
    console = plain()
    with View(Results([]), console) as view:
        view.record({})
    assert "?" in shown(console)


def test_on_a_terminal_running_streams_are_shown() -> None:
    console = terminal()
    results = Results(BY_MODEL[model] for model in MODELS)
    with View(results, console) as view:
        view.started(BY_MODEL["local/chat-error"])
        view.record(good_record(BY_MODEL["sansa/auto-stop"]))
    text = shown(console)
    assert "1 streams, 1 under way" in text
    assert re.search(r"local/chat-error.*streaming", text)
    assert re.search(r"sansa/auto-stop.*500 ms.*completed", text)


def test_names_of_providers_are_shown_unchanged() -> None:
    strange = {**good_record(BY_MODEL["sansa/auto-stop"]), "response_model": "[bold]m[/bold] :smile: [/x]"}
    for console in (plain(), terminal()):
        with View(Results([BY_MODEL["sansa/auto-stop"]]), console) as view:
            view.record(strange)
        assert "[bold]m[/bold] :smile: [/x]" in shown(console)


def test_on_a_terminal_the_table_fits() -> None:
    console = terminal()
    results = Results([BY_MODEL["sansa/auto-stop"]])
    with View(results, console) as view:
        for _ in range(500):
            view.record(good_record(BY_MODEL["sansa/auto-stop"]))
        for _ in range(100):
            view.started(BY_MODEL["sansa/auto-stop"])
    last = shown(console).split("500 streams, 100 under way")[-1]
    assert last.count("sansa/auto-stop") <= 20


def test_the_summary_marks_each_scenario_and_counts() -> None:
    console = plain()
    view, results = play(console, *MODELS)
    view.record({**good_record(BY_MODEL["sansa/auto-stop"]), "outcome": "truncated"})
    view.summary({})
    text = shown(console)
    assert text.count("✓") == 2
    assert text.count("✗") == 1
    assert "sansa/auto-stop: 2 records of 1 requests" in text
    assert "sansa/auto-stop: outcome: 'truncated' instead of 'completed'" in text
    assert "3 requests, 4 records; 2 of 3 scenarios as expected." in text
    assert "1 completed, stop; 1 truncated, stop" in text
    assert not results.as_expected


def test_the_summary_without_utf_8_uses_words() -> None:
    class Latin(StringIO):
        encoding = "latin-1"

    console = Console(file=Latin(), width=160)
    view, _ = play(console, *MODELS)
    view.summary({})
    assert shown(console).count(" ok ") == 3


def test_the_summary_names_unrequested_and_missing_records() -> None:
    console = plain()
    results = Results([BY_MODEL["sansa/auto-stop"]])
    view = View(results, console)
    view.started(BY_MODEL["sansa/auto-stop"])
    view.ended(BY_MODEL["sansa/auto-stop"], Seen("sansa/auto-stop"))
    view.record({"request_model": "who/knows"})
    view.summary({})
    text = shown(console)
    assert "who/knows: a record without a request" in text
    assert "sansa/auto-stop: 0 records of 1 requests" in text
    assert "no record" in text


def test_the_summary_has_the_accuracy_of_the_times() -> None:
    console = plain()
    view, _ = play(console, "sansa/auto-stop")
    request = Told("req_1", "sansa/auto-stop", "/", 0, [Wrote(498_500_000, 10, 1)])
    view.summary({"req_1": request})
    assert "median +1.50 ms, 99th percentile +1.50 ms, 1 streams." in shown(console)
