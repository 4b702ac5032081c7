"""Exported metrics against an independent script, which computes them from the simulator's stamps of 10,000 streams."""

import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle, Ending, Head, Opening, Read, RequestFacts, Segment, StreamEnding
from streamgauge.core.token_kinds import INPUT_KINDS, OUTPUT_KINDS
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge_demo.scenario import EVENT_STREAM, Scenario
from streamgauge_demo.scenarios import SCENARIOS
from streamgauge_demo.truth import Ended, Told, Wrote
from tests.metrics.pages import ReadPage, read_page
from tests.streams import INSTANCE, stream_id

pytestmark = pytest.mark.slow

STREAMS = 3_000
SCRIPT = Path(__file__).parent / "histograms_from_truth.py"
# In a token event with a summary of reasoning.
SUMMARY_DELTA = b'"type":"response.reasoning_summary_text.delta"'
# Ours by the name that the script uses; whether the metric has the label `model`.
COMPARED = {
    "time_to_first_byte": (table.FIRST_BYTE, False),
    "time_to_first_token": (table.FIRST_TOKEN, True),
    "inter_chunk_latency": (table.INTER_CHUNK, True),
    "longest_gap": (table.LONGEST_GAP, False),
    "inter_token_latency": (table.INTER_TOKEN, True),
    "stream_duration": (table.DURATION, False),
}


def is_whole(scenario: Scenario) -> bool:
    """Event streams of whole events, as the recorder passes them on."""
    pieces = scenario.answer.pieces
    whole = all(piece.data.endswith(b"\n\n") and b"\r" not in piece.data for piece in pieces)
    return scenario.answer.content_type == EVENT_STREAM and whole and bool(pieces)


WHOLE = [scenario for scenario in SCENARIOS if is_whole(scenario)]
# As many models as have series of their own on a page that shows everything.
PLAYED = random.Random(31).sample([one for one in WHOLE if one.expected.outcome == "completed"], 20)
# Scenarios of every outcome.
COUNTED = [*WHOLE, *(one for one in SCENARIOS if one.expected.outcome == "http_error" or one.answer.no_head)]
ENDINGS = {"upstream_reset": Ending.RESET, "timeout": Ending.TIMEOUT, "client_abort": Ending.CLIENT}


def told(scenario: Scenario, number: int, dice: random.Random) -> Told:
    """What the simulator says of one exchange, at a speed of its own: 1/30 to 30 times the scenario's."""
    scale = 30 ** dice.uniform(-1, 1)
    at = dice.randrange(10**12)
    exchange = Told(f"req_{number:06d}", scenario.model, "/", at, ended=Ended.WHOLE)
    for delay_s, size, tokens in [
        (scenario.answer.head_delay_s, 100, 0),
        *((piece.delay_s, len(piece.data), piece.tokens) for piece in scenario.answer.pieces),
    ]:
        at += round(delay_s * scale * dice.uniform(0.5, 1.5) * 1e9) + dice.randrange(2_000)
        exchange.wrote.append(Wrote(at, size, tokens))
    exchange.ended_ns = at + dice.randrange(10**6)
    return exchange


def segment(scenario: Scenario, exchange: Told, number: int) -> Segment:
    """The same exchange as a tap captures it, with the simulator's stamps."""
    expected, answer = scenario.expected, scenario.answer
    head, *body = (write.at_ns - exchange.asked_ns for write in exchange.wrote)
    contents = [piece.data for piece in answer.pieces]
    is_stream = answer.content_type == EVENT_STREAM
    assert exchange.ended_ns is not None
    return Segment(
        stream_id(number),
        0,
        opening=Opening("proxy", "0", "full", scenario.upstream, scenario.endpoint.removeprefix("/v1"), 10**18),
        request=RequestFacts(model=scenario.model, stream=True),
        head=None if answer.no_head else Head(answer.status, head, is_stream),
        reads=[Read(at, len(one), len(one), one if is_stream else b"") for at, one in zip(body, contents, strict=True)],
        end=StreamEnding(
            ENDINGS.get(expected.outcome, Ending.COMPLETE),
            stamp_ns=exchange.ended_ns - exchange.asked_ns,
            body=None if is_stream else b"".join(contents),
            fault=expected.error.code if expected.error and expected.error.phase == "transport" else None,
        ),
    )


def test_histograms_counters_and_tokens_of_3_000_streams(tmp_path: Path) -> None:
    dice = random.Random(31)
    metrics, assembler = Metrics(), Assembler()
    for upstream in {scenario.upstream for scenario in PLAYED}:
        metrics.start_upstream(upstream)
    truth: list[dict[str, Any]] = []
    streams: Counter[tuple[str, str]] = Counter()
    tokens: Counter[str] = Counter()
    for number in range(STREAMS):
        scenario = dice.choice(PLAYED)
        exchange = told(scenario, number, dice)
        usage = scenario.expected.usage
        final_output = usage.output if usage.source == "final" else None
        summaries = sum(piece.data.count(SUMMARY_DELTA) for piece in scenario.answer.pieces)
        summarised = {"events": summaries, "tokens": usage.reasoning} if summaries else {"events": 0, "tokens": 0}
        truth.append(
            {**msgspec.to_builtins(exchange), "output_tokens": final_output, "summarised_reasoning": summarised}
        )
        streams[scenario.upstream, scenario.model] += 1
        tokens.update({"input": usage.input or 0, "output": usage.output or 0})
        tokens.update({"cached": usage.cached or 0, "reasoning": usage.reasoning or 0})
        bundle = Bundle(INSTANCE, 0, number, number, [segment(scenario, exchange, number)])
        for record in assembler.apply(number, number, bundle):
            metrics.observe(record)
    page = read_page(metrics.render())

    for (upstream, model), count in streams.items():
        found = [
            value
            for (name, labels), value in page.samples.items()
            if name == table.STREAMS.name
            and {("upstream", upstream), ("model", model), ("outcome", "completed")} <= labels
        ]
        assert found == [count], model
    sums = {kind: kind_total(page, kind) for kind in (*INPUT_KINDS, *OUTPUT_KINDS)}
    assert sum(sums[kind] for kind in INPUT_KINDS) == tokens["input"]
    assert sum(sums[kind] for kind in OUTPUT_KINDS) == tokens["output"]
    assert (sums["input_cached"], sums["reasoning"]) == (tokens["cached"], tokens["reasoning"])

    expected = computed(tmp_path, truth)
    assert set(expected) == set(COMPARED)
    for name, by_model in expected.items():
        metric, has_model = COMPARED[name]
        by_series: dict[tuple[str, ...], tuple[list[int], float]] = {}
        for model, series in by_model.items():
            key = (model.partition("/")[0], *((model,) if has_model else ()))
            buckets, total = by_series.get(key, ([0] * len(series["buckets"]), 0.0))
            added = [one + other for one, other in zip(buckets, series["buckets"], strict=True)]
            by_series[key] = (added, total + series["sum"])
        assert exported(page, metric.name, has_model) == {key: buckets for key, (buckets, _) in by_series.items()}, name
        for key, (_, total) in by_series.items():
            assert (
                abs(sum_of(page, metric.name, key, has_model) - total) <= 1e-6 * sum(by_series[key][0]) + 1e-9 * total
            )
            assert sum(count > 0 for count in by_series[key][0]) >= 3, (name, "the streams fill a few buckets only")


def test_counters_of_every_outcome_and_error() -> None:
    dice = random.Random(31)
    metrics, assembler = Metrics(), Assembler()
    counted: Counter[tuple[str, ...]] = Counter()
    for number in range(2_000):
        scenario = COUNTED[number % len(COUNTED)]
        expected = scenario.expected
        up = scenario.upstream
        counted["stream_outcomes", up, expected.outcome] += 1
        counted["usage_sources", up, expected.usage.source] += 1
        if expected.error is not None:
            error = expected.error
            counted["failed_streams", up, error.phase] += 1
            counted["stream_errors", up, error.phase, error.type or error.code or str(error.status)] += 1
            if error.phase == "transport":
                counted["transport_errors", up, error.code or "unknown"] += 1
        if expected.finish is not None or expected.finish_raw is not None:
            counted["finish_reasons", up, expected.finish or "unknown"] += 1
        if expected.content.token_events == 0:
            counted["streams_without_token", up, expected.outcome] += 1
        bundle = Bundle(INSTANCE, 0, number, number, [segment(scenario, told(scenario, number, dice), number)])
        for record in assembler.apply(number, number, bundle):
            metrics.observe(record)
    outcomes = {key[2] for key in counted if key[0] == "stream_outcomes"}
    assert outcomes == {*table.OUTCOMES} - {"abandoned"}, "a tap abandons a stream, not a provider"

    labels = {
        "stream_outcomes": ("upstream", "outcome"),
        "usage_sources": ("upstream", "source"),
        "failed_streams": ("upstream", "phase"),
        "stream_errors": ("upstream", "phase", "error_type"),
        "transport_errors": ("upstream", "cause"),
        "finish_reasons": ("upstream", "finish_reason"),
        "streams_without_token": ("upstream", "outcome"),
    }
    exported: Counter[tuple[str, ...]] = Counter()
    for (name, pairs), value in read_page(metrics.render()).samples.items():
        short = name.removeprefix("streamgauge_").removesuffix("_total")
        if short in labels and value:
            exported[short, *(dict(pairs)[label] for label in labels[short])] += int(value)
    assert exported == counted


def kind_total(page: ReadPage, kind: str) -> float:
    return sum(
        value
        for (name, labels), value in page.samples.items()
        if name == table.USAGE_TOKENS.name and ("kind", kind) in labels
    )


def computed(folder: Path, truth: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "bounds.json").write_text(json.dumps({name: metric.bounds for name, (metric, _) in COMPARED.items()}))
    arguments = [sys.executable, "-I", str(SCRIPT), str(folder / "truth.json"), str(folder / "bounds.json")]
    done = subprocess.run(arguments, capture_output=True, check=True)
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(done.stdout)
    return found


def exported(page: ReadPage, name: str, has_model: bool) -> dict[tuple[str, ...], list[int]]:
    """The counts of each bucket, not cumulative, by series."""
    cumulative: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for (found, pairs), value in page.samples.items():
        labels = dict(pairs)
        if found == f"{name}_bucket":
            key = (labels["upstream"], *((labels["model"],) if has_model else ()))
            cumulative.setdefault(key, []).append((float(labels["le"]), value))
    counts = {}
    for key, rows in cumulative.items():
        totals = [0.0, *(value for _, value in sorted(rows))]
        counts[key] = [int(after - before) for before, after in itertools.pairwise(totals)]
    return counts


def sum_of(page: ReadPage, name: str, key: tuple[str, ...], has_model: bool) -> float:
    wanted = {("upstream", key[0]), *({("model", key[1])} if has_model else ())}
    return sum(value for (found, labels), value in page.samples.items() if found == f"{name}_sum" and wanted <= labels)
