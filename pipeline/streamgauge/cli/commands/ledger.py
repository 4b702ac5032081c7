"""Declarations of `ledger` and its commands."""

import click

from streamgauge.cli.commands.options import option, output, paths, switch
from streamgauge.cli.parser import CSV, HTML, JSON, JSONL, TABLE, TEXT, Argument, Command, Group

_MONTH = option("--month", "only records that started in this month, as in 2026-11", "MONTH")
_CHOSEN = (
    option(
        "--since",
        "only records that started at TIME or later: a date (2026-11-01) or RFC 3339 (2026-11-01T09:30:00Z)",
        "TIME",
    ),
    option(
        "--until",
        "only records that started before TIME; --since and --until exclude records without started_at",
        "TIME",
    ),
    _MONTH,
    option("--timezone", "time zone of days and months, as in Europe/Berlin", "ZONE", default="UTC"),
    option(
        "--where",
        "only records with this value (KEY= for null, KEY!=VALUE for all others), or with a measure above or below it, as in"
        " 'ttft>2'; repeatable: all keys must match, each with any of its values",
        "CONDITION",
        multiple=True,
    ),
)
_QUERY_EXAMPLES = """\
examples:
  streamgauge ledger query --newest --limit 20
      the latest records, as a table
  streamgauge ledger query --by tenant,model --month 2026-11
      tokens and cost of November by tenant and model
  streamgauge ledger query --by tenant --month 2026-11 --output html > nov.html
      a report to print or to send
  streamgauge ledger query --by month,tenant --tenants tenants.toml
      also records from before that file existed, by their credential_id
  streamgauge ledger query --by day --timezone Europe/Berlin
  streamgauge ledger query --by session
      calls, tokens, cost and longest wait of each session (--attribute session=HEADER of `up` and `tap`)
  streamgauge ledger query --where outcome=truncated --where tenant=river
  streamgauge ledger query --where 'status>=500' --since 2026-11-27
  streamgauge ledger query --slowest 10 --where 'ttft>2'
  streamgauge ledger query --by day --ledger sqlite:///a --ledger sqlite:///b
  streamgauge ledger query --output jsonl | jq .outcome

Keys for --by and --where: day, model, month, request_model, response_model, tap, upstream, dialect, endpoint, outcome,
finish_reason, tenant, credential_id, service_tier, usage_source, request_digest, attempt, response_id, resumed_from,
trace_id, upstream_host, cost_unknown, stream_id.
Measures for --where, with =, !=, <, <=, > or >=: ttft (time to the first token, reasoning included) and duration in seconds,
cost in USD, status (of HTTP). Write such a condition in quotes, since > and < are signs of the shell.
The attributes of records (--attribute of `up` and `tap`) are keys, too.

Totals: with_usage counts the streams that reported usage; a stream without usage adds nothing to the token sums, and is in
without_usage. unknown_share is their part of the streams. input_tokens includes input_cached_tokens, output_tokens includes
reasoning_tokens. The columns from input_uncached to input_audio are disjoint and add up to input_tokens; those from
output_text to output_audio add up to output_tokens. A sum is null (an empty cell) if no stream reported that number. Tokens
of a resumed stream count once, in the group of the stream's first record.

cost_usd is what the provider reported, else the price of the reported tokens when the stream started, of with_cost streams.
without_price counts the streams that it leaves out although they reported usage. The key cost_unknown gives the reason, which
is no_seller (the upstream's host is no seller's own, and --prices names none), no_deployment (the host does not show the kind
of deployment or the region: Azure, Databricks), no_model, no_tier_price, no_region_price, no_kind_price (audio, for example),
no_kinds (the response does not say how many tokens are images or cached audio), no_start or no_list; streams of no_usage
reported nothing. longest_wait_s is the longest time to a first token, or to the end of a stream without one.

If two taps capture one request, it has two records: select one tap with --where tap=NAME. Several ledgers must not hold the
same streams.
"""
LEDGER = Group(
    "ledger",
    "print, export or import records; totals of tokens and cost by team; prices",
    _QUERY_EXAMPLES,
    commands=[
        Command(
            "ledger query",
            "print records, or totals of streams, tokens and cost",
            _QUERY_EXAMPLES,
            (
                output(TABLE, JSON, JSONL, CSV, HTML, about="form of the output; html: a page with totals (--by)"),
                option("--limit", "print at most the first N lines", "N", type=int),
                switch(
                    "--newest",
                    "print the newest first: records by started_at, totals by their latest record; else records come oldest"
                    " first, totals sorted by key",
                ),
                option(
                    "--slowest",
                    "print the N records that waited longest for a first token (or for the end, without one), the slowest"
                    " first",
                    "N",
                    type=int,
                ),
                option(
                    "--by", "print totals for each value of these keys, such as month, model or tenant", "KEY[,KEY...]"
                ),
                *_CHOSEN,
            ),
            module="ledger",
        ),
        Command(
            "ledger show",
            "show one record: when, who, how it ended, times, tokens, cost, ids",
            """\
examples:
  streamgauge ledger show 101e75eb
      the id that `ledger query` prints in a terminal: the end of the stream's id
  streamgauge ledger show 01a1fbd1-e7c6-7660-841b-b8aa101e75eb --output json
      the whole record

ID is the id of a stream, or its beginning or its end, if no other stream has it. The attempts are the requests with the same
body within 15 minutes.

Exit code 1: the ledger has no such stream. 2: several streams have it; they are listed.
""",
            (
                Argument("id", "ID", "id of a stream, or its beginning or end", required=True),
                output(TEXT, JSON),
            ),
            module="ledger_show",
        ),
        Command(
            "ledger export",
            "write records as JSON lines, CSV or Parquet",
            """\
examples:
  streamgauge ledger export november.csv --output csv --month 2026-11
  streamgauge ledger export - --where tenant=river | gzip > river.jsonl.gz
  streamgauge ledger export records.parquet --output parquet
      requires the package pyarrow

JSON lines are the records as the ledger stores them, with their cost; `ledger import` reads them. CSV and Parquet have the
ledger's columns; Parquet has the record as well. Records come oldest first.
""",
            (
                Argument("file", "FILE", "file to write; - for stdout", required=True, type=click.Path(readable=False)),
                output(JSONL, CSV, "parquet"),
                *_CHOSEN,
            ),
            module="ledger",
        ),
        Command(
            "ledger import",
            "store records of files, such as those of `replay`",
            """\
examples:
  streamgauge replay recordings/ --output jsonl | streamgauge ledger import -
  streamgauge ledger import records.jsonl --ledger postgresql://db/streamgauge
      copies a ledger that `ledger export records.jsonl` wrote; records keep their cost
  streamgauge ledger import spend_logs.json --format litellm
      where no tap stands yet: records of the calls that a gateway has logged

Each stream is stored once: importing a file again changes nothing. A record without a cost gets the price of its day; for
records that are known, `ledger price` computes it again.

Exit code 1: a line is no record, or the ledger has another record of that stream, which stays; all others are stored.
""",
            (
                paths("paths", "FILE", "files with one record a line, - for stdin; or a gateway's log"),
                option(
                    "--format",
                    "what the files hold: records, or what a gateway has logged",
                    type=click.Choice(("records", "litellm", "langfuse", "helicone")),
                    default="records",
                ),
                option(
                    "--provider", "provider of the calls of a log that names none (Langfuse), such as openai", "NAME"
                ),
            ),
            module="ledger",
        ),
        Command(
            "ledger price",
            "compute the costs of stored records again",
            """\
examples:
  streamgauge ledger price --prices prices.toml --only-unpriced
      gives a cost to records that had no price when they were stored
  streamgauge ledger price --month 2026-11 --dry-run
      says what the prices of today would change in November, and changes nothing
  streamgauge ledger price --since 2026-11-15 --reason 'the list was wrong'
      with --where model=NAME for one model

Prices are those that `up` and `ledger import` use: the file of --prices, else the list that is installed, each at the time
when the stream started. What a provider reported itself is never replaced, and a record whose price is not known now keeps
the cost that it has. `ledger costs` shows the earlier costs. Kept audits, and metrics that were counted, stay as they are.

Records are changed in small transactions, beside a writer. If the command ends early, run it again: it continues.
""",
            (
                *_CHOSEN,
                switch("--only-unpriced", "only records that have no cost"),
                option("--reason", "why costs change, in one line; it is kept with the earlier costs", "TEXT"),
                switch("--dry-run", "print what would change, and change nothing"),
                output(TABLE, JSON, JSONL, CSV),
            ),
            module="ledger_price",
        ),
        Command(
            "ledger costs",
            "show the costs that a record had, or when costs were computed again",
            """\
examples:
  streamgauge ledger costs
      the times at which `ledger price` changed records, how many they were, and why
  streamgauge ledger costs 019ac2f0-0000-7000-8000-000000000000
      the costs of the record of this stream, the present one last
""",
            (
                Argument("stream", "STREAM", "id of a stream, from the output of `ledger query`"),
                output(TABLE, JSON, JSONL, CSV),
            ),
            module="ledger_price",
        ),
        Command(
            "ledger budgets",
            "show what budgets have spent this month, with a forecast",
            """\
examples:
  streamgauge ledger budgets budgets.toml
  streamgauge ledger budgets budgets.toml --month 2026-10 --output json

The file is TOML: a table [[budget]] for each budget, with month_usd and one key, such as tenant = "search". Keys are tenant,
model, request_model, response_model, upstream, dialect, endpoint, tap, credential_id, service_tier, or an attribute.

The forecast goes on as the month went so far; there is none on the first day. Streams of without_price and without_usage
are in no cost.

Exit code 1: a budget is spent.
""",
            (
                Argument("file", "FILE", "TOML file of budgets", required=True, type=click.Path(readable=False)),
                output(TABLE, JSON, JSONL, CSV),
                _MONTH,
                option("--timezone", "time zone of the month, as in Europe/Berlin; else that of the file", "ZONE"),
            ),
            module="ledger",
        ),
    ],
)
