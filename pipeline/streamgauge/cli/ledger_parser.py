"""The options of `streamgauge ledger query`."""

import argparse

# Options that are no settings.
NOT_SETTINGS = {"limit", "by", "newest", "since", "until", "where"}

EPILOG = """\
examples:
  streamgauge ledger query --newest --limit 20
  streamgauge ledger query --by tenant,model --since 2026-11-01 --until 2026-12-01
      tokens of November by tenant and model
  streamgauge ledger query --newest --where outcome=truncated --where outcome=upstream_reset
  streamgauge ledger query --output jsonl | jq .outcome
Keys of --by and --where: day, model, request_model, response_model, tap, upstream, dialect, endpoint, outcome, finish_reason,
tenant, credential_id, service_tier, usage_source, request_digest, attempt, response_id, resumed_from.
Totals: with_usage is the number of streams whose tokens are in the sums, and a stream without usage adds nothing to them.
input_cached_tokens is part of input_tokens, reasoning_tokens is part of output_tokens. A sum is null (an empty cell) if no
stream reported the number. A stream and the requests that resumed it count their tokens once, at the stream's first record.
A call that two taps capture has two records: choose one tap with --where tap=NAME.
"""


def query_options(parser: argparse.ArgumentParser) -> None:
    """Which records, in which order, and how they are printed."""
    parser.add_argument("--output", choices=["table", "jsonl", "csv"], default="table")
    parser.add_argument("--limit", type=int, metavar="N", help="print at most N lines, the first ones of the order")
    parser.add_argument(
        "--newest",
        action="store_true",
        help="newest first by started_at; totals by their latest record (default: oldest first; totals by their keys)",
    )
    parser.add_argument("--by", metavar="KEY[,KEY...]", help="print totals by day, model, tenant, ... (see below)")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="records that started at TIME or later: a UTC date (2026-11-01) or an RFC 3339 time (2026-11-01T09:30:00Z)",
    )
    parser.add_argument(
        "--until", metavar="TIME", help="records that started before TIME; a range leaves out those without started_at"
    )
    parser.add_argument(
        "--where",
        action="append",
        metavar="KEY=VALUE",
        help="records with this value, KEY= for null; again: all keys must match, of one key any of its values",
    )
