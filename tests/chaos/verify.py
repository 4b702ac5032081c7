"""An independent verifier: holds the records topic and the ledger against a truth file, stream by stream.

    python tests/chaos/verify.py --truth truth.jsonl --kafka HOST:PORT --topic PREFIX.records --ledger ledger.sqlite

It imports nothing of Streamgauge, nor of the tests beside it: what is wrong there cannot be wrong here in the same way.

**The truth file** is JSON lines, one for each stream, written by the program that sent the requests; `Stream` has the fields.
A stream is found by its trace id, which its request carried. **The report** is JSON on stdout; the exit code is 0 if all
holds, 1 if not, 2 for wrong usage. It lists, by trace id or stream id:

    missing            a stream without a record in the topic
    duplicate          a stream with records under several stream ids
    versions           a stream id with different bytes in the topic; the same bytes again are legal, and counted
    unknown            a record of a stream that was not requested
    differing          a record that says something else than the truth, and what
    ledger_missing     a record of the topic that the ledger does not hold
    ledger_unknown     a row of the ledger that is not in the topic
    ledger_differing   a row that says something else than the topic
    balance            a tap whose reads seen are not delivered + waiting + dropped
"""

import argparse
import asyncio
import json
import sqlite3
import sys
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer

# How long a part of the topic may take to come (milliseconds), and the whole of it (seconds).
POLL_MS = 1_000
READ_TIMEOUT_S = 120.0
# How long a tap may take to show its metrics (seconds).
METRICS_TIMEOUT_S = 10.0
# What is compared of a record, and where it stands there.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "outcome": ("outcome",),
    "finish_reason": ("finish_reason",),
    "token_events": ("counts", "token_events"),
    "input_tokens": ("usage", "input_tokens"),
    "output_tokens": ("usage", "output_tokens"),
    "total_tokens": ("usage", "total_tokens"),
    "usage_source": ("usage", "source"),
}
TOKENS = ("input_tokens", "output_tokens", "total_tokens")
# Streams whose end no part reports: there is no moment from which a record could be late.
NO_TERMINAL = ("abandoned", "client_abort")


@dataclass(frozen=True)
class Stream:
    """One line of the truth. Times are Unix seconds by the asker's clock, tokens and events are counts.

    `phase`: a name under which latencies are reported together. `ended_at`: when the asker read the last byte; null for a
    stream that did not end. `doubt`: null, or whether the tap was killed under the stream: `open` when its beginning was
    safe by then, so that it owes a record, which may say that it was cut; `new` when even that may be lost.
    """

    trace_id: str
    outcome: str
    token_events: int
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    usage_source: str = "absent"
    phase: str = ""
    began_at: float | None = None
    ended_at: float | None = None
    doubt: str | None = None


class Entry(NamedTuple):
    """A message of the records topic. `at`: its time in the log, Unix seconds."""

    key: str
    value: bytes
    at: float


@dataclass
class Report:
    """What was found."""

    streams: int = 0
    records: int = 0
    repeated: int = 0
    ledger_rows: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    in_doubt: Counter[str] = field(default_factory=Counter)
    latency: dict[str, dict[str, float]] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def holds(self) -> bool:
        return not any(self.faults.values())


# --- reading --------------------------------------------------------------------------------------------------------


def read_truth(path: Path) -> dict[str, Stream]:
    """The truth by trace id. Raises ValueError for a line that is none, or a stream that stands there twice."""
    streams: dict[str, Stream] = {}
    for line in path.read_text().splitlines():
        stream = Stream(**json.loads(line))
        if stream.trace_id in streams:
            raise ValueError(f"{path}: {stream.trace_id} stands there twice")
        streams[stream.trace_id] = stream
    return streams


async def read_topic(bootstrap: str, topic: str) -> list[Entry]:
    """All that the topic holds now. Raises TimeoutError if it does not come."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partitions = consumer.assignment()
        ends = await consumer.end_offsets(partitions)
        entries: list[Entry] = []
        async with asyncio.timeout(READ_TIMEOUT_S):
            while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
                for messages in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    entries += [
                        Entry(message.key.decode(), message.value, message.timestamp / 1000) for message in messages
                    ]
    finally:
        await consumer.stop()
    return entries


def read_ledger(path: Path) -> list[tuple[str, bytes]]:
    """The ledger's rows: stream id and record."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        return [(str(key), bytes(value)) for key, value in connection.execute("SELECT stream_id, record FROM records")]
    finally:
        connection.close()


def read_metrics(url: str) -> str:
    """A tap's page of metrics. `url`: of its admin port."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=METRICS_TIMEOUT_S) as answer:
        return str(answer.read().decode())


# --- judging --------------------------------------------------------------------------------------------------------


def judge(truth: Mapping[str, Stream], topic: Sequence[Entry], ledger: Iterable[tuple[str, bytes]]) -> Report:
    """Every stream exactly once, and what each record says."""
    report = Report(streams=len(truth))
    first, records = _distinct(topic, report)
    by_trace: dict[str, list[str]] = defaultdict(list)
    for stream_id, record in records.items():
        by_trace[str(record.get("trace_id"))].append(stream_id)
        report.outcomes[str(record.get("outcome"))] += 1
    report.faults["unknown"] += [one for trace, ids in by_trace.items() if trace not in truth for one in ids]
    for trace, stream in truth.items():
        _judge_stream(stream, [records[one] for one in by_trace.get(trace, ())], report)
    _judge_ledger(records, ledger, report)
    report.latency = _latencies(truth.values(), by_trace, first)
    return report


def _distinct(topic: Sequence[Entry], report: Report) -> tuple[dict[str, float], dict[str, dict[str, Any]]]:
    """When each stream's record came first, and the record."""
    first: dict[str, float] = {}
    versions: dict[str, set[bytes]] = defaultdict(set)
    for key, value, at in topic:
        first[key] = min(at, first.get(key, at))
        versions[key].add(value)
    report.records, report.repeated = len(versions), len(topic) - sum(map(len, versions.values()))
    report.faults["versions"] += [key for key, values in versions.items() if len(values) > 1]
    records = {key: json.loads(min(values)) for key, values in versions.items()}
    report.faults["unknown"] += [key for key, record in records.items() if record.get("stream_id") != key]
    return first, records


def _judge_stream(stream: Stream, records: Sequence[Mapping[str, Any]], report: Report) -> None:
    if len(records) > 1:
        report.faults["duplicate"].append(stream.trace_id)
    if not records and stream.doubt != "new":
        report.faults["missing"].append(stream.trace_id)
    if stream.doubt:
        report.in_doubt[_fate(stream, records)] += 1
    for record in records:
        wrong = differences(stream, record)
        if wrong and not (stream.doubt and cut_honestly(stream, record)):
            report.faults["differing"].append(f"{stream.trace_id}: {', '.join(wrong)}")


def _fate(stream: Stream, records: Sequence[Mapping[str, Any]]) -> str:
    """What became of a stream whose tap was killed."""
    if not records:
        return "none"
    return str(records[0].get("outcome")) if differences(stream, records[0]) else "whole"


def value_at(record: Mapping[str, Any], path: Sequence[str]) -> Any:
    """What stands at a path of names; None where any of them is null."""
    found: Any = record
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def differences(stream: Stream, record: Mapping[str, Any]) -> list[str]:
    """What a record says otherwise than the truth; empty where it is right."""
    values = {name: value_at(record, path) for name, path in FIELDS.items()}
    wrong = [
        f"{name} {values[name]!r} instead of {getattr(stream, name)!r}"
        for name in FIELDS
        if values[name] != getattr(stream, name)
    ]
    if stream.outcome != "abandoned" and value_at(record, ("integrity", "complete")) is not True:
        wrong.append(f"incomplete: {value_at(record, ('integrity', 'reasons'))}")
    return wrong


def cut_honestly(stream: Stream, record: Mapping[str, Any]) -> bool:
    """Whether a record of a stream that was cut says so, and counts no more than there was. Missing is not zero."""
    says_so = record.get("outcome") == "abandoned" or value_at(record, ("integrity", "complete")) is False
    few = (value_at(record, FIELDS["token_events"]) or 0) <= stream.token_events
    zeros = [name for name in TOKENS if value_at(record, FIELDS[name]) == 0 != getattr(stream, name)]
    return says_so and few and not zeros


def _judge_ledger(
    records: Mapping[str, Mapping[str, Any]], ledger: Iterable[tuple[str, bytes]], report: Report
) -> None:
    rows: dict[str, list[Any]] = defaultdict(list)
    for key, value in ledger:
        rows[key].append(json.loads(value))
    report.ledger_rows = sum(map(len, rows.values()))
    report.faults["ledger_missing"] += sorted(records.keys() - rows.keys())
    report.faults["ledger_unknown"] += sorted(rows.keys() - records.keys())
    for key in records.keys() & rows.keys():
        # What a stream costs is the ledger's to add.
        if [{**row, "cost": None} for row in rows[key]] != [{**records[key], "cost": None}]:
            report.faults["ledger_differing"].append(key)


def _latencies(
    streams: Iterable[Stream], by_trace: Mapping[str, Sequence[str]], first: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """From the last byte at the asker to the record's time in the topic, by phase (seconds)."""
    found: dict[str, list[float]] = defaultdict(list)
    for stream in streams:
        ids = by_trace.get(stream.trace_id, ())
        if len(ids) == 1 and stream.ended_at is not None and not stream.doubt and stream.outcome not in NO_TERMINAL:
            found[stream.phase].append(first[ids[0]] - stream.ended_at)
    return {phase: _quantiles(sorted(values)) for phase, values in found.items()}


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    at = {"p50_s": 0.5, "p99_s": 0.99, "max_s": 1.0}
    return {"count": len(values)} | {
        name: round(values[min(int(part * len(values)), len(values) - 1)], 3) for name, part in at.items()
    }


def judge_balance(name: str, page: str, report: Report) -> None:
    """One equation of a tap's metrics: reads seen = delivered + waiting + dropped, by reason; and nothing waits."""
    sums: Counter[str] = Counter()
    for line in page.splitlines():
        series, _, value = line.rpartition(" ")
        if series.startswith("streamgauge_tap_reads_"):
            sums[series.partition("{")[0].removeprefix("streamgauge_tap_reads_").removesuffix("_total")] += int(
                float(value)
            )
    if not sums["seen"] or sums["waiting"] or sums["seen"] != sums["delivered"] + sums["dropped"]:
        report.faults["balance"].append(f"{name}: {dict(sums)}")


# --- the program ----------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, required=True, metavar="FILE", help="JSON lines, one a stream")
    parser.add_argument("--kafka", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", required=True, help="the records topic")
    parser.add_argument("--ledger", type=Path, required=True, metavar="FILE", help="the ledger's SQLite file")
    parser.add_argument("--tap", action="append", default=[], metavar="URL", help="admin port whose balance must hold")
    arguments = parser.parse_args()
    topic = asyncio.run(read_topic(arguments.kafka, arguments.topic))
    report = judge(read_truth(arguments.truth), topic, read_ledger(arguments.ledger))
    for url in arguments.tap:
        judge_balance(url, read_metrics(url), report)
    faults = {name: found for name, found in report.faults.items() if found}
    sys.stdout.write(json.dumps({"holds": report.holds, **vars(report), "faults": faults}) + "\n")
    return 0 if report.holds else 1


if __name__ == "__main__":
    sys.exit(main())
