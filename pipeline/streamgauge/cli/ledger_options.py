"""The options of `ledger` and `audit` that are not settings."""

from streamgauge.cli.options import CSV, HTML, JSON, JSONL, TABLE, Option, output

_MONTH = Option("--month", "only records that started in this month, as in 2026-11", "MONTH")
_TIMEZONE = Option("--timezone", "time zone of days and months, as in Europe/Berlin", "ZONE", default="UTC")
_CHOSEN = (
    Option(
        "--since",
        "only records that started at TIME or later: a date (2026-11-01) or RFC 3339 (2026-11-01T09:30:00Z)",
        "TIME",
    ),
    Option(
        "--until",
        "only records that started before TIME; --since and --until exclude records without started_at",
        "TIME",
    ),
    _MONTH,
    _TIMEZONE,
    Option(
        "--where",
        "only records with this value (KEY= for null); repeatable: all keys must match, each with any of its values",
        "KEY=VALUE",
        repeatable=True,
    ),
)
QUERY = (
    output(TABLE, JSON, JSONL, CSV),
    Option("--limit", "print at most the first N lines", "N", int),
    Option(
        "--newest",
        "print the newest first: records by started_at, totals by their latest record; else records come oldest first, "
        "totals sorted by key",
        kind=bool,
    ),
    Option("--by", "print totals for each value of these keys, such as month, model or tenant", "KEY[,KEY...]"),
    *_CHOSEN,
)
EXPORT = (
    Option("file", "file to write; - for stdout", "FILE", required=True),
    output(JSONL, CSV, "parquet"),
    *_CHOSEN,
)
IMPORT = (Option("paths", "files with one record a line; - for stdin", "FILE", repeatable=True),)
BUDGETS = (
    Option("file", "TOML file of budgets", "FILE", required=True),
    output(TABLE, JSON, JSONL, CSV),
    _MONTH,
    Option("--timezone", "time zone of the month, as in Europe/Berlin; else that of the file", "ZONE"),
)
AUDIT = (
    Option(
        "--invoice",
        "what the provider exported, JSON or CSV; repeatable: all files of a provider are one invoice",
        "FILE",
        repeatable=True,
    ),
    Option("--from", "first day of the period, such as 2026-11-01", "DATE"),
    Option("--to", "day after the last one of the period", "DATE"),
    Option("--timezone", "time zone of the days, such as Europe/Berlin", "NAME", default="UTC"),
    Option("--map", "TOML file: providers of upstreams, keys of tenants, meters of FOCUS", "FILE"),
    Option("--tolerance-tokens", "tokens that may stay unexplained", "N", int, default=0),
    Option(
        "--tolerance-usd", "dollars that may stay unexplained, besides what an export rounds", "USD", default="0.01"
    ),
    Option("--recounts", "what `recount --output jsonl` printed: a finding where a reported count differs", "FILE"),
    Option("--settle-days", "days after the period until it may be closed; earlier results are preliminary", "N", int),
    Option("--save", "keep the result in the ledger, with digests of records and invoices", kind=bool),
    output(TABLE, JSON, CSV, HTML),
)
RUN = Option("number", "number of a kept run, from the output of `audit list`", "RUN", int)
RUN_PAIR = Option(
    "numbers", "numbers of two kept runs of one period, the earlier one first", "RUN", int, repeatable=True
)
