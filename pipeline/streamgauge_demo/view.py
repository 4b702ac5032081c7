"""The terminal output: streams as they arrive, then the summary. A live table on a terminal, else one line per stream."""

import time
from collections import Counter, deque
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamgauge_demo.results import Results, outcome_text
from streamgauge_demo.scenario import Scenario
from streamgauge_demo.tally import Seen
from streamgauge_demo.truth import Told
from streamgauge_demo.verdict import Json, member

# The width if the output is not a terminal (columns): wide enough for every line.
PLAIN_WIDTH = 160

# Lines of a terminal that the live table leaves for its head, its frame and the prompt.
RESERVED_LINES = 8

# Limit of the records kept for the live table: as many as a terminal may have lines.
MAX_SHOWN = 200

# Updates of the live table in a second: fast enough for the eye.
FRAMES_PER_SECOND = 8

_STYLES = {"completed": "green", "client_abort": "yellow"}
_COLUMNS = ("stream", "dialect", "model", "first token", "gaps p50", "gaps p95", "outcome", "finish", "usage")
_RIGHT = ("first token", "gaps p50", "gaps p95", "usage")


class View:
    """A context manager: shows what it is given while it is open; `summary` is for afterwards."""

    def __init__(self, results: Results, console: Console | None = None, *, stderr: bool = False) -> None:
        self._results = results
        self._console = console or Console(stderr=stderr)
        if console is None and not self._console.is_terminal:
            self._console = Console(stderr=stderr, width=PLAIN_WIDTH)
        self._begun = time.monotonic()
        self.under_way: list[str] = []
        self._done: deque[Json] = deque(maxlen=MAX_SHOWN)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=FRAMES_PER_SECOND, get_renderable=self._table)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, trace)

    def say(self, line: str) -> None:
        """Prints a line above the table."""
        self._console.print(Text(line))

    def started(self, scenario: Scenario) -> None:
        """A client has sent the scenario's request."""
        self.under_way.append(scenario.model)

    def ended(self, scenario: Scenario, seen: Seen) -> None:
        """The client has finished the scenario."""
        self._results.add_seen(seen)
        self.under_way.remove(scenario.model)

    def record(self, record: Json) -> None:
        """A record has arrived."""
        self._results.add_record(record)
        self._done.append(record)
        if self._live is None:
            self.say(f"{time.monotonic() - self._begun:6.1f} s  {_line(record)}")

    def _table(self) -> Table:
        room = max(4, self._console.height - RESERVED_LINES)
        waiting = self.under_way[-room:]
        table = Table(title=f"{self._results.records.total()} streams, {len(self.under_way)} under way")
        for name in _COLUMNS:
            table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=True)
        for record in list(self._done)[len(self._done) - min(len(self._done), room - len(waiting)) :]:
            outcome = str(record.get("outcome"))
            cells = [Text(cell) for cell in _cells(record)]  # names from providers are not markup
            table.add_row(*cells[:6], Text(outcome, _STYLES.get(outcome, "red")), *cells[7:])
        for model in waiting:
            table.add_row(model, *[""] * 5, Text("streaming", "dim"), "", "")
        return table

    def summary(self, truths: Mapping[str, Told]) -> None:
        """Prints every scenario with its expected and recorded results, then the totals. `truths` is by request id."""
        right, wrong = ("✓", "✗") if self._console.encoding.lower().startswith("utf") else ("ok", "WRONG")
        table = Table(title="Scenarios, expected and recorded results")
        for name in ("provider", "format", "scenario", "expected", "seen", ""):
            table.add_column(name, no_wrap=name != "scenario")
        before = ("", "")
        for scenario in self._results.scenarios:
            fine = not self._results.differences(scenario)
            group = (scenario.upstream, scenario.dialect)
            if group != before:
                table.add_section()
            table.add_row(
                *(("", "") if group == before else group),
                f"{scenario.name}: {scenario.title}",
                outcome_text(scenario.expected.outcome, scenario.expected.finish),
                _seen(self._results.outcomes[scenario.model]),
                Text(right, "green") if fine else Text(wrong, "bold red"),
            )
            before = group
        self._console.print(table)
        self._totals(truths)

    def _totals(self, truths: Mapping[str, Told]) -> None:
        results = self._results
        for scenario in results.scenarios:
            for line in results.differences(scenario):
                self.say(f"{scenario.model}: {line}")
        for model in results.unknown:
            self.say(f"{model}: a record without a request")
        fine = sum(not results.differences(scenario) for scenario in results.scenarios)
        requests, records = results.requests.total(), results.records.total()
        self.say(f"{requests} requests, {records} records; {fine} of {len(results.scenarios)} scenarios as expected.")
        errors = results.first_token_errors(truths)
        if errors:
            half, most = errors[len(errors) // 2], errors[min(len(errors) - 1, len(errors) * 99 // 100)]
            self.say(
                f"Recorded time to first token minus the simulator's own: median {1000 * half:+.2f} ms, "
                f"99th percentile {1000 * most:+.2f} ms, {len(errors)} streams."
            )


def _seen(outcomes: Counter[str]) -> str:
    """The outcome of a single stream by its name; otherwise each outcome with its count."""
    if not outcomes:
        return "no record"
    return "; ".join(name if outcomes.total() == 1 else f"{count} {name}" for name, count in sorted(outcomes.items()))


def _line(record: Json) -> str:
    stream, dialect, model, first, middle, high, outcome, finish, usage = _cells(record)
    timing = f"first token {first:>7}  gaps p50 {middle:>6} p95 {high:>6}"
    return f"{stream:27} {dialect:18} {model:26} {timing}  {outcome_text(outcome, finish):20} {usage}".rstrip()


def _cells(record: Json) -> tuple[str, ...]:
    return (
        str(record.get("request_model") or "?"),
        str(record.get("dialect") or "?"),
        str(record.get("response_model") or ""),
        _milliseconds(member(record, "timing.first_token_s")),
        _milliseconds(member(record, "timing.gaps.p50_s")),
        _milliseconds(member(record, "timing.gaps.p95_s")),
        str(record.get("outcome")),
        str(record.get("finish_reason") or ""),
        _tokens(record),
    )


def _milliseconds(seconds: object) -> str:
    """Milliseconds as text; unknown is a dash, not 0."""
    return f"{1000 * seconds:.0f} ms" if isinstance(seconds, int | float) else "-"


def _tokens(record: Json) -> str:
    """Input + output tokens; an unknown number is a question mark, no usage at all is a dash."""
    input_tokens, output_tokens = member(record, "usage.input_tokens"), member(record, "usage.output_tokens")
    if input_tokens is None and output_tokens is None:
        return "-"
    return f"{'?' if input_tokens is None else input_tokens}+{'?' if output_tokens is None else output_tokens}"
