"""Computes histograms from what the simulator says it did, and from nothing else: it imports nothing of ours.

    python histograms_from_truth.py TRUTH.json BOUNDS.json

TRUTH.json: a list of exchanges as `GET /truth` of the simulator returns them: {request_id, model, path, asked_ns,
wrote: [[at_ns, bytes, token_events], ...], ended_ns, ended}, with `output_tokens` of the usage. `summarised_reasoning`: how
many events had a summary, the first ones, and the tokens of the reasoning. BOUNDS.json: {metric: [upper bound, ...]}.
Prints {metric: {model: {"buckets": [count of each bucket, not cumulative], "sum": seconds}}}.

The rules, from the documents: times are whole microseconds, gaps are exact; a stream with at least 5 token events of which
two arrivals hold 90 % is a burst, and has no gaps and no time per token. Writes less than 5 ms after the one before are one
arrival. The time per token is that of the answer if a summary stands for the reasoning.
"""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def microseconds(nanoseconds: int) -> float:
    return (nanoseconds + 500) // 1000 / 1e6


def observations(exchange: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """(metric, value in seconds) of one exchange."""
    asked = exchange["asked_ns"]
    _, *body = exchange["wrote"]
    tokens = [at - asked for at, _, events in body for _ in range(events)]
    yield "stream_duration", microseconds(exchange["ended_ns"] - asked)
    yield "time_to_first_byte", microseconds(body[0][0] - asked)
    if not tokens:
        return
    yield "time_to_first_token", microseconds(tokens[0])
    arrivals, before = [0], body[0][0]
    for at, _, events in body:
        arrivals += [0] if at - before >= 5_000_000 else []
        arrivals[-1] += events
        before = at
    fullest = sorted(arrivals, reverse=True)[:2]
    if len(tokens) >= 5 and sum(fullest) >= 0.9 * len(tokens):
        return
    gaps = [after - before for before, after in itertools.pairwise(tokens)]
    for gap in gaps:
        yield "inter_chunk_latency", gap / 1e9
    if gaps:
        yield "longest_gap", microseconds(max(gaps))
        summary = exchange["summarised_reasoning"]
        answer, counted = tokens[summary["events"] :], (exchange["output_tokens"] or 0) - summary["tokens"]
        if counted >= 2 and len(answer) >= 2:
            yield "inter_token_latency", microseconds((answer[-1] - answer[0]) // (counted - 1))


def main() -> None:
    truth, bounds = (json.loads(Path(path).read_text()) for path in sys.argv[1:])
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for exchange in truth:
        for metric, value in observations(exchange):
            limits = bounds[metric]
            series = found.setdefault(metric, {}).setdefault(
                exchange["model"], {"buckets": [0] * (len(limits) + 1), "sum": 0.0}
            )
            place = 0
            while place < len(limits) and value > limits[place]:
                place += 1
            series["buckets"][place] += 1
            series["sum"] += value
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
