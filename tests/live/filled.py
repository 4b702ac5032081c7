"""Fills a ledger for pictures and measurements of the page: days of streams of four models, and a failure at the end.

    python -m tests.live.filled LEDGER_URL [--streams N] [--days D]

In the last FAILURE_S one upstream is overloaded: its first tokens take SLOWER times as long, and most of its streams break.
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from streamgauge.core.record import Error, Record
from streamgauge.ledger import LedgerRow, open_ledger
from streamgauge.ledger.row import row_of
from streamgauge.prices import Prices
from tests.metrics.records import ABSENT, make_record, make_timing, make_usage

# Upstream, its host, API format and model, and how many streams in ten it has.
MODELS = (
    ("openai", "api.openai.com", "openai-chat", "gpt-4o-mini", 4),
    ("openai", "api.openai.com", "openai-chat", "gpt-4.1", 2),
    ("anthropic", "api.anthropic.com", "anthropic", "claude-sonnet-4-5", 3),
    ("vllm", "10.0.0.4", "openai-chat", "qwen3-30b", 1),
)
TENANTS = ("search", "support", "billing", None)
# Outcomes, how many streams in a thousand have each, and the error.
OUTCOMES = {
    "completed": (951, None),
    "client_abort": (35, None),
    "http_error": (6, Error("before_stream", "rate_limit_error", None, 429)),
    "truncated": (5, None),
    "stream_error": (3, Error("in_stream", "overloaded_error")),
}
FAILING = "anthropic"
FAILURE_S = 720.0
SLOWER = 6.0
BROKEN_SHARE = 0.6
# Streams that differ in more than their id and their start: others repeat them.
KINDS = 4_000
BATCH = 2_000


def kinds(random_: random.Random, count: int, *, failing: bool) -> list[LedgerRow]:
    """Rows of streams; `failing`: as during the failure."""
    return [row_of(_record(random_, failing=failing)) for _ in range(count)]


def _record(random_: random.Random, *, failing: bool) -> Record:
    upstream, host, dialect, model, _ = random_.choices(MODELS, [row[-1] for row in MODELS])[0]
    hit = failing and upstream == FAILING
    first_s = random_.lognormvariate(-0.8, 0.5) * (SLOWER if hit else 1.0)
    outcome = random_.choices(list(OUTCOMES), [share for share, _ in OUTCOMES.values()])[0]
    if hit and random_.random() < BROKEN_SHARE:
        outcome = "stream_error"
    pace_s, tokens = random_.lognormvariate(-4.2, 0.35), random_.randint(20, 700)
    whole = outcome == "completed"
    length_s = pace_s * tokens * (1.0 if whole else random_.random())
    refused = outcome == "http_error"
    timing = make_timing(
        headers_s=first_s * 0.8,
        first_byte_s=first_s * 0.8,
        first_event_s=None if refused else first_s * 0.9,
        first_token_s=None if refused else first_s,
        first_content_s=None if refused else first_s,
        last_token_s=None if refused else first_s + length_s,
        end_s=first_s + length_s + 0.01,
        inter_token_latency_s=pace_s if whole else None,
    )
    return make_record(
        host=host,
        upstream=upstream,
        dialect=dialect,
        endpoint="/v1/messages" if dialect == "anthropic" else "/v1/chat/completions",
        request_model=model,
        response_model=model,
        tenant=random_.choice(TENANTS),
        outcome=outcome,
        status_code=429 if refused else 200,
        error=OUTCOMES[outcome][1],
        finish_reason="stop" if whole else None,
        finish_reason_raw="stop" if whole else None,
        timing=timing,
        usage=make_usage(random_.randint(50, 6_000), tokens) if whole else ABSENT,
    )


def at(row: LedgerRow, started_us: int, random_: random.Random) -> LedgerRow:
    """The same stream with another start and an id of its own."""
    started = datetime.fromtimestamp(started_us / 1e6, UTC)
    name = str(
        UUID(
            int=(started_us // 1_000) << 80
            | 7 << 76
            | random_.getrandbits(12) << 64
            | 2 << 62
            | random_.getrandbits(62)
        )
    )
    written = started.isoformat(timespec="microseconds").replace("+00:00", "Z")
    record = row.record.replace(row.stream_id.encode(), name.encode()).replace(_STARTED, written.encode())
    return replace(row, stream_id=name, started_us=started_us, day=written[:10], record=record)


_STARTED = b"2026-03-01T12:00:00.000000Z"  # of `make_record`


def rows_of(streams: int, days: float, now_s: float, seed: int = 1) -> Iterator[LedgerRow]:
    """Rows of streams in the order of their starts, evenly over the days before `now_s` (seconds since 1970)."""
    random_ = random.Random(seed)
    usual, failing = kinds(random_, KINDS, failing=False), kinds(random_, KINDS, failing=True)
    for number in range(streams):
        ago_s = days * 86_400 * (1 - (number + random_.random()) / streams)
        yield at(random_.choice(failing if ago_s < FAILURE_S else usual), int((now_s - ago_s) * 1e6), random_)


def fill(url: str, streams: int, days: float, now_s: float) -> None:
    """Writes the rows into a ledger, with the prices of the bundled list."""
    with open_ledger(url, prices=Prices()) as ledger:
        batch: list[LedgerRow] = []
        for row in rows_of(streams, days, now_s):
            batch.append(row)
            if len(batch) == BATCH:
                ledger.insert(batch)
                batch = []
        ledger.insert(batch)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fills the ledger that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=100_000)
    parser.add_argument("--days", type=float, default=30.0)
    options = parser.parse_args(arguments)
    fill(options.url, options.streams, options.days, time.time())
    return 0


if __name__ == "__main__":
    sys.exit(main())
