"""The options of `streamgauge ledger query`."""

import argparse

# Options that are not settings.
NOT_SETTINGS = {"limit", "by", "newest", "since", "until", "where"}

EPILOG = """\
examples:
  streamgauge ledger query --newest --limit 20
  streamgauge ledger query --by tenant,model --since 2026-11-01 --until 2026-12-01
      tokens of November by tenant and model
  streamgauge ledger query --newest --where outcome=truncated --where outcome=upstream_reset
  streamgauge ledger query --output jsonl | jq .outcome
Keys for --by and --where: day, model, request_model, response_model, tap, upstream, dialect, endpoint, outcome,
finish_reason, tenant, credential_id, service_tier, usage_source, request_digest, attempt, response_id, resumed_from.
Totals: with_usage counts the streams that reported usage; a stream without usage adds nothing to the token sums.
input_tokens includes input_cached_tokens, output_tokens includes reasoning_tokens. A sum is null (an empty cell) if no
stream reported that number. Tokens of a resumed stream count once, in the group of the stream's first record.
If two taps capture one request, it has two records: select one tap with --where tap=NAME.
"""


def query_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `ledger query`: selection, order and output."""
    parser.add_argument("--output", choices=["table", "jsonl", "csv"], default="table")
    parser.add_argument("--limit", type=int, metavar="N", help="print at most the first N lines")
    parser.add_argument(
        "--newest",
        action="store_true",
        help="print the newest first: records by started_at, totals by their latest record (default: oldest record first, "
        "totals sorted by key)",
    )
    parser.add_argument(
        "--by", metavar="KEY[,KEY...]", help="print totals for each day, model, tenant, ... (see below)"
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="only records that started at TIME or later: a UTC date (2026-11-01) or RFC 3339 (2026-11-01T09:30:00Z)",
    )
    parser.add_argument(
        "--until",
        metavar="TIME",
        help="only records that started before TIME; --since and --until exclude records without started_at",
    )
    parser.add_argument(
        "--where",
        action="append",
        metavar="KEY=VALUE",
        help="only records with this value (KEY= for null); repeatable: all keys must match, each with any of its values",
    )
