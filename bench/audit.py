"""The time of an audit of a month, compared with a loop that only reads the month's records from the ledger.

    python -m bench.audit [--rows N] [--differing N] [--ledger FILE]

Writes a ledger of N records in a month (a file that exists is used as it is), and an invoice that agrees with it but for
some cells. Prints the times of both, their ratio, and the memory of the process.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from tests.metrics.records import make_record, make_usage

from streamgauge.audit.invoices import open_invoice
from streamgauge.audit.mapping import Mapping
from streamgauge.audit.ours import Ours
from streamgauge.audit.period import Period
from streamgauge.audit.reconcile import reconcile
from streamgauge.audit.theirs import Theirs
from streamgauge.ledger import Filter, LedgerRow, SqliteLedger, row_of

PERIOD = Period.of("2026-03-01", "2026-04-01", "UTC")
MODELS = ("gpt-4o-2024-08-06", "o3-2025-04-16", "gpt-4o-mini-2024-07-18", "gpt-5-2025-08-07")
BATCH = 5_000
_DAY_S = 86_400
_START_S = 1_772_323_200


def rows(count: int) -> Iterator[LedgerRow]:
    """Records that are spread over the month and over four models."""
    templates = []
    for model in MODELS:
        usage = make_usage(1_200, 300, input_cached_tokens=200)
        made = row_of(make_record(upstream="openai", response_model=model, usage=usage, response_id="resp_0"))
        cost = b'{"usd":"0.005750","price_source":"list","price_date":null}}'
        templates.append(replace(made, record=made.record.removesuffix(b"null}") + cost))
    step = 31 * _DAY_S / count
    for number in range(count):
        one = templates[number % len(templates)]
        at = int(number * step * 10**6)
        day, rest = divmod(at // 10**6, _DAY_S)
        started = f"2026-03-{day + 1:02}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}.{at % 10**6:06}Z"
        name = str(UUID(int=(at << 80) | (7 << 76) | (2 << 62) | number))
        record = one.record.replace(one.stream_id.encode(), name.encode(), 1)
        record = record.replace(b"2026-03-01T12:00:00.000000Z", started.encode(), 1)
        record = record.replace(b"resp_0", b"resp_%d" % number, 1)
        yield replace(one, stream_id=name, started_us=_START_S * 10**6 + at, day=started[:10], record=record)


def write_ledger(path: Path, count: int) -> None:
    with SqliteLedger(path) as ledger:
        batch: list[LedgerRow] = []
        for row in rows(count):
            batch.append(row)
            if len(batch) == BATCH:
                ledger.insert(batch)
                batch = []
        ledger.insert(batch)


def invoice(ledger: SqliteLedger, differing: int) -> str:
    """OpenAI's usage for the ledger; the first `differing` cells have a request too much."""
    buckets: dict[str, list[dict[str, object]]] = {}
    totals = ledger.totals(["day", "model"], Filter(PERIOD.since_us, PERIOD.until_us))
    for place, total in enumerate(totals):
        day, model = total.keys
        more = place < differing
        buckets.setdefault(str(day), []).append(
            {
                "object": "organization.usage.completions.result",
                "model": model,
                "input_tokens": (total.input_tokens or 0) + 900 * more,
                "input_cached_tokens": total.input_cached_tokens,
                "output_tokens": (total.output_tokens or 0) + 77 * more,
                "num_model_requests": total.streams + more,
            }
        )
    data = []
    for day, results in buckets.items():
        start = _START_S + (int(day[-2:]) - 1) * _DAY_S
        data.append({"object": "bucket", "start_time": start, "end_time": start + _DAY_S, "results": results})
    return json.dumps({"object": "page", "data": data, "has_more": False})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.audit", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--differing", type=int, default=4)
    parser.add_argument("--ledger", type=Path)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = given.ledger or Path(folder) / "ledger.sqlite"
        if not path.exists():
            write_ledger(path, given.rows)
        with SqliteLedger(path) as ledger:
            bill = Path(folder) / "usage.json"
            bill.write_text(invoice(ledger, given.differing))
            began = time.perf_counter()
            count = sum(1 for _ in ledger.query(chosen=Filter(PERIOD.since_us, PERIOD.until_us)))
            floor = time.perf_counter() - began
            began = time.perf_counter()
            theirs = Theirs([open_invoice(bill, {})], PERIOD, Mapping())
            found = reconcile(Ours(ledger, PERIOD, Mapping()), theirs, PERIOD, Decimal(0))
            seconds = time.perf_counter() - began
    causes = sum(len(cell.explanations) for cell in found.cells)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count} records, {len(found.cells)} cells, {causes} explanations")
    print(
        f"reading alone {floor:.1f} s, audit {seconds:.1f} s ({seconds / count * 1e6:.1f} us a record), {peak:.0f} MiB"
    )
    print(f"ratio {seconds / floor:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
