"""How long the exporter takes to write a page, for pages of several sizes and each format.

    python -m bench.scrape [--rounds N] [--document docs/performance.md]

Streams of many models fill the exporter until its page has so many series (lines with a value). Times are of CPU, and the
formats take turns, so that other load on the machine affects all of them alike. Beside them stands the time to join as many
lines that are ready: what no exporter of text is faster than.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.document import replace_section, table
from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.core.outcome import Outcome
from streamgauge.core.record import Counts, Error, Gaps, Integrity, Record, Timing, Usage
from streamgauge.metrics.prometheus import Metrics

# Numbers of series; 0: as many as a page holds.
SIZES = (1_000, 5_000, 20_000, 0)
FORMATS: Mapping[str, str] = {
    "text": "text/plain;version=0.0.4",
    "OpenMetrics": "application/openmetrics-text;version=1.0.0",
    "protobuf": "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
}
READY = "lines that are ready"
_OUTCOMES: tuple[Outcome, ...] = ("completed", "stream_error", "truncated", "client_abort")
_REASONS = ("stop", "length", "tool_calls", "content_filter")
# Streams without a new series after which the page is full: those of twenty models.
_FULL = 960


def records() -> Iterator[Record]:
    """Streams of ever more models and errors, at twelve upstreams, without end."""
    buckets = [(bound, int(bound >= 0.03) * 40) for bound in GAP_BOUNDS_S]
    for number in itertools.count():
        known: dict[str, object] = dict.fromkeys(Record.__struct_fields__)
        known |= {
            "schema_version": 1,
            "stream_id": f"0190b4a0-0000-7000-8000-{number:012d}",
            "trace_id": f"{number:032x}",
            "upstream": f"upstream-{number % 12}",
            "dialect": "openai-chat",
            "streaming": True,
            "request_model": f"organisation/model-{number // 48}",
            "response_model": f"organisation/model-{number // 48}",
            "started_at": "2026-03-01T12:00:00.000000Z",
            "outcome": _OUTCOMES[number // 12 % 4],
            "finish_reason": _REASONS[number // 12 % 4],
            "error": Error("in_stream", type=f"error_{number // 48}") if number // 12 % 4 == 1 else None,
            "choices": [],
            "timing": Timing(
                Gaps(40, max_s=0.03, stalls=0, buckets=[*buckets, (None, 40)]),
                first_byte_s=0.1, first_event_s=0.1, first_token_s=0.3, first_reasoning_s=0.3, first_content_s=0.9,
                first_tool_s=1.2, last_token_s=1.5, end_s=1.6, inter_token_latency_s=0.02, burst=False,
            ),
            "usage": Usage(900, 60, 960, 500, 0, 0, 20, None, None, [], "final", None, 0, None),
            "counts": Counts(43, 41, 0, 0, 0, 0, 0, 0, 9_000, 9_000, 43, 1, 200, 50, 0),
            "integrity": Integrity(True, [], 0, 0, 0, None),
        }  # fmt: skip
        yield Record(**known)  # type: ignore[arg-type]  # its fields are those of the struct


def lines_of(metrics: Metrics) -> list[str]:
    """The lines of the classic page that have a value."""
    return [line for line in metrics.render().decode().splitlines() if not line.startswith("#")]


def filled(series: int) -> Metrics:
    """An exporter whose page has at least this many series; for 0 as many as these streams make. Raises ValueError."""
    metrics, streams, before, unchanged = Metrics(), records(), 0, 0
    between = 24 if series else 480  # streams between two looks at the page
    while unchanged < _FULL:
        for record in itertools.islice(streams, between):
            metrics.observe(record)
        now = len(lines_of(metrics))
        if series and now >= series:
            return metrics
        unchanged = unchanged + between if now == before else 0
        before = now
    if series:
        raise ValueError(f"a full page has {before} series")
    return metrics


def seconds_of(work: Callable[[], object]) -> float:
    """The CPU time of this thread, which other load on the machine hardly changes."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def measured(metrics: Metrics, rounds: int) -> dict[str, float]:
    """The median seconds of a page in each format, and of joining its lines."""
    lines = lines_of(metrics)
    pages: dict[str, Callable[[], object]] = {
        name: lambda accept=accept: metrics.page(accept)  # type: ignore[misc]  # bound at once
        for name, accept in FORMATS.items()
    }
    pages[READY] = lambda: "\n".join(lines).encode()
    times: dict[str, list[float]] = {name: [] for name in pages}
    for _ in range(rounds):
        for name, work in pages.items():
            times[name].append(seconds_of(work))
    return {name: statistics.median(of_one) for name, of_one in times.items()}


def rows(rounds: int) -> list[list[str]]:
    """The table: a line for each size."""
    made = [["series", "bytes of text", *(f"{name}, ms" for name in (*FORMATS, READY))]]
    for size in SIZES:
        metrics = filled(size)
        times = measured(metrics, rounds)
        body = metrics.render()
        made.append([f"{len(lines_of(metrics)):,}", f"{len(body):,}", *(f"{times[name] * 1e3:.2f}" for name in times)])
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.scrape", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    lines = rows(given.rounds)
    for row in lines:
        print("  ".join(f"{cell:<20}" for cell in row))
    if given.document is not None:
        replace_section(given.document, "scrape", table(lines))


if __name__ == "__main__":
    main()
