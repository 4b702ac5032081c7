"""Every command: its words, sentence, examples, module, and the options that are not settings.

Settings are declared in `settings/declarations.py`. Modules of commands and settings are imported when they are needed: help
and completion are quick, and work where the packages of a command's extra are missing.
"""

import sys
from collections.abc import Sequence
from typing import Any

import click

from streamgauge import __version__
from streamgauge.cli.parser import (
    CONTEXT,
    CSV,
    HTML,
    JSON,
    JSONL,
    TABLE,
    TEXT,
    Argument,
    Arguments,
    Command,
    Group,
    Names,
    PathType,
    commands_below,
)
from streamgauge.errors import USAGE
from streamgauge.runtime.redaction import redacted_text

PROGRAM = "streamgauge"


def _option(flag: str, about: str, metavar: str = "", **more: Any) -> click.Option:
    """An option with a value."""
    names = ["from_", flag] if flag == "--from" else [flag]  # `from` is a word of Python
    return click.Option(names, help=about, metavar=metavar or None, show_default=True, **more)


def _file(flag: str, about: str, metavar: str = "FILE", **more: Any) -> click.Option:
    """An option with a path, as text."""
    return _option(flag, about, metavar, type=click.Path(readable=False), **more)


def _switch(flag: str, about: str, **more: Any) -> click.Option:
    """An option without a value."""
    return click.Option([flag], help=about, is_flag=True, **more)


def _output(*forms: str, about: str = "form of the output") -> click.Option:
    """The option that selects the form of the output; the first one is the default."""
    return _option("--output", about, type=click.Choice(forms), default=forms[0])


def _paths(name: str, metavar: str, about: str, **more: Any) -> Argument:
    return Argument(name, metavar, about, many=True, type=PathType(), **more)


# --- a host without Kafka, taps and workers -------------------------------------------------------------------------

_AGENT = _switch("--agent", "run no proxy: receive what the httpx and ASGI integrations capture in applications")

_QUIET = _switch("--quiet", "print no line for each finished stream; without a terminal there is none")


def _packets(command: str) -> Command:
    return Command(
        f"{command} packets",
        f"like `{command}`, with packets of an interface or a file instead of the proxy",
        """\
examples:
  streamgauge up packets --interface lo --port 8000
      records the responses of a server on this host, without Kafka
  streamgauge tap packets --interface eth0 --port vllm=8000 --kafka broker:9092
  streamgauge tap packets --pcap capture.pcap --kafka broker:9092
      `streamgauge replay capture.pcap` prints the records of a file without a broker

An interface requires Linux and the capability CAP_NET_RAW. Only plain HTTP/1.1 can be read: run it on the host of the model
server, or where TLS has ended.
""",
        (_QUIET,) if command == "up" else (),
        module="packets",
    )


_UP = Group(
    "up",
    "run everything on one host, without Kafka: proxy, metrics, records",
    """\
examples:
  streamgauge up --upstream openai=https://api.openai.com
      clients use http://127.0.0.1:8080/openai/v1
  streamgauge up --upstream http://127.0.0.1:8000 --listen 0.0.0.0:8080
      a single upstream without a name: clients use the upstream's own paths
  streamgauge up --agent
      no proxy: receives what the httpx and ASGI integrations capture in applications with the same --data-dir

In a terminal each finished stream is a line on stdout: start (UTC), end of its id, model, outcome or error, time to the first
token, tokens, tokens a second, and cost. Metrics are at http://127.0.0.1:9464/metrics. `streamgauge ledger query` prints the
records.
""",
    (_AGENT, _QUIET),
    module="up",
    commands=[_packets("up")],
)
_TAP = Group(
    "tap",
    "run the proxy, and send what it captures to Kafka",
    """\
examples:
  streamgauge topics create --kafka broker:9092
      once, before the first tap and worker
  streamgauge tap --upstream openai=https://api.openai.com --kafka broker:9092
      clients use http://127.0.0.1:8080/openai/v1
  streamgauge tap --agent --kafka broker:9092
      no proxy: receives what the httpx and ASGI integrations capture in applications with the same --data-dir

A tap forwards traffic also while no broker is available. `streamgauge worker` makes the records.
""",
    (_AGENT,),
    module="tap",
    commands=[_packets("tap")],
    kafka=True,
)
_WORKER = Command(
    "worker",
    "make records and metrics of what taps sent to Kafka",
    """\
example:
  streamgauge worker --kafka broker:9092 --data-dir /var/lib/streamgauge

Metrics are at http://127.0.0.1:9465/metrics. `streamgauge ledger query` with the same --data-dir prints the records. Workers
share the partitions of the topics: start at most one for each partition.
""",
    module="worker",
    kafka=True,
)


def _orders() -> Sequence[str]:
    from streamgauge.top.streams import SORTS

    return tuple(SORTS)


_TOP = Command(
    "top",
    "show the streams of running processes, in the terminal",
    """\
examples:
  streamgauge top
      the streams of `up`, `tap` or `demo` on this host
  streamgauge top 127.0.0.1:9465
      those of a worker
  streamgauge top worker-1:9465 worker-2:9465 tap-1:9464
      one view of all workers and taps: their sums, and which process a stream is at
  streamgauge top https://worker-1.internal:9465 --admin-token-file token
      those of another host, whose admin port requires a token
  streamgauge top --once --filter outcome=truncated
      one picture, for scripts
  streamgauge top --output json | jq '.open.streams[] | select(.is_silent)'

It shows what the page at http://HOST:PORT/ shows. `?` lists the keys, `q` ends it. If stdout is not a terminal, it prints
once, COLUMNS wide (160).
""",
    (
        Argument(
            "addresses",
            "HOST:PORT",
            "admin ports of `up`, `tap`, `worker` or `demo`; https://HOST:PORT with TLS  [default: 127.0.0.1:9464]",
            many=True,
        ),
        _switch("--once", "print once, and end"),
        _option("--interval", "seconds between updates", "SECONDS", type=float, default=2.0),
        _option("--sort", "order of the streams", "NAME", type=Names(_orders), default="worst"),
        _option(
            "--filter", "only streams with these words, or FIELD=WORD (id, upstream, model, outcome, tenant)", "WORDS"
        ),
        _output(TABLE, JSON),
    ),
    module="top",
)

# --- recordings -----------------------------------------------------------------------------------------------------


def _dialects() -> Sequence[str]:
    from streamgauge.core.dialects import BY_NAME  # decoders take time to import

    return ("auto", *BY_NAME)


_RECORDINGS = _paths(
    "paths",
    "FILE|DIR",
    "response bodies, HAR files, vcrpy cassettes, mitmproxy flows, packet captures or a tap's spool; the content shows which",
)
_DIALECT = _option(
    "--dialect", "API format of the files; auto: each content shows it", "NAME", type=Names(_dialects), default="auto"
)
_REPLAY = Command(
    "replay",
    "make records of recorded streams: SSE, HAR, cassettes, packet captures",
    """\
examples:
  streamgauge replay recording.sse
  streamgauge replay recordings/ --output jsonl > records.jsonl
  streamgauge replay session.har tests/cassettes/ dump.flow capture.pcap
  streamgauge replay ~/.local/state/streamgauge/spool.sqlite
      what a tap captured and has not delivered
  streamgauge replay --kafka broker:9092
      what taps sent to Kafka and the topic still holds

Prints one record for each response body and each LLM exchange, in the order of the arguments (files of a directory by path),
then the records of what taps sent to Kafka.

Exit code 1: a file is damaged; all other files are replayed.
""",
    (_RECORDINGS, _DIALECT, _output(TABLE, JSON, JSONL)),
    module="replay",
)
_RECOUNT = Command(
    "recount",
    "count output tokens of captured streams again, beside what providers reported",
    """\
examples:
  streamgauge recount recording.sse
  streamgauge recount recordings/ --output jsonl | jq 'select(.difference > 20)'
  cat recording.sse | streamgauge recount -
  streamgauge recount --kafka broker:9092 --output jsonl
      what taps captured with --capture full and the topic still holds
  streamgauge recount --output jsonl > recounts.jsonl
      what `up --capture full --text-age SECONDS` keeps in the data directory
  streamgauge recount recording.sse --tokenizer llama-3.1-8b=tokenizer.json
      an open model, by the file that it publishes (needs `pip install tokenizers`)

Counts the generated text with the public tokenizer of its model. For other models, for masked captures, and for text above
1 MiB it gives the range that recorded streams of the model version show (low, high). Tokenizers need
`pip install 'streamgauge[recount]'`; nothing is downloaded when it runs.

Exit code 1: a file is damaged or a vocabulary is missing; all other streams are counted.
""",
    (
        _RECORDINGS,
        _DIALECT,
        _file("--vocabularies", "directory with published vocabulary files, searched before packages", "DIR"),
        _output(TABLE, JSON, JSONL),
    ),
    module="recount",
)
_DEMO = Command(
    "demo",
    "send simulated traffic through a real proxy, and check the records",
    """\
examples:
  streamgauge demo
      plays every scenario once, prints a summary, and exits with 0 if all results are as expected
  streamgauge demo --serve
      repeats the scenarios until Ctrl-C, so that you can look at the metrics
""",
    (_switch("--serve", "repeat the scenarios until Ctrl-C"), _output(TABLE, JSON)),
    module="demo",
)

# --- the ledger -----------------------------------------------------------------------------------------------------

_MONTH = _option("--month", "only records that started in this month, as in 2026-11", "MONTH")
_CHOSEN = (
    _option(
        "--since",
        "only records that started at TIME or later: a date (2026-11-01) or RFC 3339 (2026-11-01T09:30:00Z)",
        "TIME",
    ),
    _option(
        "--until",
        "only records that started before TIME; --since and --until exclude records without started_at",
        "TIME",
    ),
    _MONTH,
    _option("--timezone", "time zone of days and months, as in Europe/Berlin", "ZONE", default="UTC"),
    _option(
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
Measures for --where, with =, !=, <, <=, > or >=: ttft (time to the first token) and duration in seconds, cost in USD, status
(of HTTP). Write such a condition in quotes, since > and < are signs of the shell.
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
_LEDGER = Group(
    "ledger",
    "print, export or import records; totals of tokens and cost by team; prices",
    _QUERY_EXAMPLES,
    commands=[
        Command(
            "ledger query",
            "print records, or totals of streams, tokens and cost",
            _QUERY_EXAMPLES,
            (
                _output(TABLE, JSON, JSONL, CSV, HTML, about="form of the output; html: a page with totals (--by)"),
                _option("--limit", "print at most the first N lines", "N", type=int),
                _switch(
                    "--newest",
                    "print the newest first: records by started_at, totals by their latest record; else records come oldest"
                    " first, totals sorted by key",
                ),
                _option(
                    "--slowest",
                    "print the N records that waited longest for a first token (or for the end, without one), the slowest"
                    " first",
                    "N",
                    type=int,
                ),
                _option(
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
                _output(TEXT, JSON),
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
                _output(JSONL, CSV, "parquet"),
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
                _paths("paths", "FILE", "files with one record a line, - for stdin; or a gateway's log"),
                _option(
                    "--format",
                    "what the files hold: records, or what a gateway has logged",
                    type=click.Choice(("records", "litellm", "langfuse", "helicone")),
                    default="records",
                ),
                _option(
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
                _switch("--only-unpriced", "only records that have no cost"),
                _option("--reason", "why costs change, in one line; it is kept with the earlier costs", "TEXT"),
                _switch("--dry-run", "print what would change, and change nothing"),
                _output(TABLE, JSON, JSONL, CSV),
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
                _output(TABLE, JSON, JSONL, CSV),
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
                _output(TABLE, JSON, JSONL, CSV),
                _MONTH,
                _option("--timezone", "time zone of the month, as in Europe/Berlin; else that of the file", "ZONE"),
            ),
            module="ledger",
        ),
    ],
)

# --- the audit ------------------------------------------------------------------------------------------------------

_AUDIT_EXAMPLES = """\
examples:
  streamgauge audit --invoice bill.csv --from 2026-11-01 --to 2026-12-01
      November; for a provider's usage and costs give --invoice twice
  streamgauge audit --from 2026-11-01 --to 2026-12-01 --invoice b.csv --save
      keeps the result; with --settle-days 3 it is preliminary before 2026-12-04
  streamgauge audit list
  streamgauge audit show 2 --output html > november.html
  streamgauge audit show 2 --verify
      makes the run again, and says whether its bytes are the same
  streamgauge audit diff 1 2
      what arrived late, and what the provider issued again
  streamgauge audit claim 2 --cause retries_billed_twice > claim.csv

The format of an invoice shows by its columns or keys, also in gzip and ZIP. Known are the exports of OpenAI, Anthropic,
OpenRouter, DeepSeek, Fireworks and Groq, the bills of Azure, AWS and Google Cloud, and FOCUS of any provider.

The map is a TOML file with the tables [upstreams], [tenants] and [meters]; docs/guides/audit.md shows one. Without it, an
upstream is the provider of its own name, and keys are not compared.

The exit code is 0 if all that was compared agrees: nothing is undecided, what is unexplained is within the tolerance, and no
cause occurs but late_across_midnight and those that --scope or --accept name. It is 1 otherwise, and 2 if an invoice was
refused or nothing could be compared. That of `audit diff` is 1 if the runs differ, that of `audit
show --verify` if the bytes do, and that of `audit claim` if the ledger has not all of the streams any more.
"""
_FETCH_EXAMPLES = """\
examples:
  streamgauge audit fetch openai --month 2026-11 --key-file admin.key
      writes openai-usage-2026-11.jsonl, openai-embeddings-2026-11.jsonl and
      openai-costs-2026-11.jsonl, which `audit --invoice` reads
  streamgauge audit fetch anthropic --month 2026-11 --key-file admin.key

The key is an admin key of the organization, which a provider's console gives. It is sent to the provider alone, and never
printed. A page that fails is tried again, after the time that the answer asks for. A file appears when it is whole.
"""
_AUDIT = Group(
    "audit",
    "hold the ledger against what providers bill",
    _AUDIT_EXAMPLES,
    (
        _file(
            "--invoice",
            "what the provider exported: JSON, CSV or Parquet, also gzip or ZIP; all files of a provider are one invoice",
            multiple=True,
        ),
        _option("--from", "first day of the period, such as 2026-11-01", "DATE"),
        _option("--to", "day after the last one of the period", "DATE"),
        _option("--timezone", "time zone of the days, such as Europe/Berlin", "NAME", default="UTC"),
        _file("--map", "TOML file: providers of upstreams, keys of tenants, meters of clouds"),
        _option(
            "--cost",
            "which money of FOCUS is compared: what is billed, or with prepayments spread over the usage that they cover",
            type=click.Choice(("billed", "effective")),
            default="billed",
        ),
        _file("--rates", "TOML file: rates of exchange by day, for money in other currencies than USD"),
        _option("--tolerance-tokens", "tokens that may stay unexplained", "N", type=int, default=0),
        _option(
            "--tolerance-usd", "dollars that may stay unexplained, besides what an export rounds", "USD", default="0.01"
        ),
        _file("--scope", "TOML file: causes that are known, each with a limit and a last day; they are no news"),
        _option(
            "--accept",
            "a cause that is no news, whatever it amounts to, such as aborted_without_usage; repeatable",
            "CAUSE",
            multiple=True,
        ),
        _file("--recounts", "what `recount --output jsonl` printed: a finding where a reported count differs"),
        _option(
            "--settle-days",
            "days after the period until it may be closed; earlier results are preliminary",
            "N",
            type=int,
        ),
        _switch("--save", "keep the result in the ledger, with digests of records and invoices"),
        _output(TABLE, JSON, CSV, HTML),
    ),
    module="audit",
    commands=[
        Command(
            "audit list", "list the kept runs", _AUDIT_EXAMPLES, (_output(TABLE, JSON, CSV),), module="kept_audits"
        ),
        Command(
            "audit show",
            "show a kept run",
            _AUDIT_EXAMPLES,
            (
                Argument("number", "RUN", "number of a kept run, from the output of `audit list`", type=int),
                _switch("--verify", "make the run again with the same files, and say whether its bytes are the same"),
                _file("--invoice", "an invoice of the run that was moved; name all of them", multiple=True),
                _file("--map", "the map of the run, if it was moved; likewise the next three"),
                _file("--scope", "its file of known causes"),
                _file("--rates", "its rates of exchange"),
                _file("--recounts", "its recounts"),
                _output(TABLE, JSON, CSV, HTML),
            ),
            module="kept_audits",
        ),
        Command(
            "audit diff",
            "compare two kept runs of one period",
            _AUDIT_EXAMPLES,
            (
                Argument(
                    "numbers",
                    "RUN",
                    "numbers of two kept runs of one period, the earlier one first",
                    many=True,
                    type=int,
                ),
                _output(TABLE, JSON, CSV),
            ),
            module="kept_audits",
        ),
        Command(
            "audit claim",
            "write the streams that a kept run names for a cause, as CSV",
            _AUDIT_EXAMPLES,
            (
                Argument("number", "RUN", "number of a kept run, from the output of `audit list`", type=int),
                _option("--cause", "the cause, such as retries_billed_twice; or undecided", "CAUSE"),
                _option("--provider", "only streams of this provider", "NAME"),
                _option("--model", "only streams of this model, as the run names it", "NAME"),
                _file("--map", "the map of the run, if it was moved"),
                _file(
                    "--invoice",
                    "an export with a row for each request: what it bills for each stream; repeatable",
                    multiple=True,
                ),
            ),
            module="kept_audits",
        ),
        Command(
            "audit fetch",
            "get a provider's usage and costs of a month for --invoice",
            _FETCH_EXAMPLES,
            (
                Argument(
                    "provider",
                    "PROVIDER",
                    "openai or anthropic",
                    required=True,
                    type=click.Choice(("openai", "anthropic")),
                ),
                _option("--month", "month of UTC, such as 2026-11", "YYYY-MM"),
                _file("--key-file", "file that holds an admin key of the provider, readable by its owner alone"),
                _option("--directory", "where the files are written", "DIR", default="."),
                _option("--base-url", "another address of the provider's API, such as that of a proxy", "URL"),
            ),
            module="audit_fetch",
        ),
    ],
)

# --- rules, settings, checks ----------------------------------------------------------------------------------------

_RULES_EXAMPLES = """\
examples:
  streamgauge rules generate > streamgauge.yml
      the rules in dashboards/prometheus/rules
  streamgauge rules generate --objective unbroken=0.995 --objective ttft=2
  streamgauge rules generate --page https://gauge.internal:9465
  streamgauge rules generate --ledger postgresql://gauge@db/streamgauge
      alerts link to this page, and their commands read this ledger
  streamgauge rules generate --output sloth > slo.yml
      the same objectives for Sloth, which makes rules of its own

Objectives and their defaults:
  unbroken=0.99     share of streams that no error, reset, timeout or truncation
                    ends after they began
  ttft=5            time to the first token in seconds; a bound of its
                    histogram's buckets
  ttft_share=0.95   share of streams that keep this time
  usage=0.9         share of completed streams that report token usage;
                    0: no alert
"""
_RULES = Group(
    "rules",
    "print alert and recording rules for Prometheus",
    _RULES_EXAMPLES,
    commands=[
        Command(
            "rules generate",
            "print alert and recording rules for Prometheus, for your objectives",
            _RULES_EXAMPLES,
            (
                _option(
                    "--objective",
                    "an objective that differs from its default; repeatable",
                    "NAME=NUMBER",
                    multiple=True,
                ),
                _option(
                    "--page",
                    "admin port of `up` or of a worker, for the links of alerts to its page and to the runbooks there",
                    "URL",
                    default="http://127.0.0.1:9464",
                ),
                _option(
                    "--dashboards",
                    "address of Grafana, for the links of alerts",
                    "URL",
                    default="http://127.0.0.1:3000",
                ),
                _option(
                    "--runbooks",
                    "address below which the files of docs/runbooks are published, for the links of alerts"
                    "  [default: PAGE/runbooks]",
                    "URL",
                ),
                _option(
                    "--ledger",
                    "database for the commands that alerts name, without a password; without it they have --data-dir DIR",
                    "URL",
                ),
                _output(
                    "prometheus",
                    "sloth",
                    about="form of the output: rules for Prometheus, or a specification of the objectives for Sloth",
                ),
            ),
            module="rules",
        )
    ],
)
_CONFIG_EXAMPLES = """\
examples:
  streamgauge config show tap --config streamgauge.toml
      every setting of `tap`: its value, and the option, variable or file that it comes from
  streamgauge config show worker --output json
  streamgauge config check streamgauge.toml
      before a roll-out: exit code 0 without a fault, 2 with one

`config show` also takes every option of COMMAND that is a setting. Secrets are printed as ***. `config check` reads the named
files only, neither the environment nor the files that they name.
"""


def _with_settings() -> tuple[str, ...]:
    from streamgauge.settings.declarations import SETTINGS  # which take time to import

    return tuple(dict.fromkeys(command for setting in SETTINGS.values() for command in setting.commands))


_CONFIG = Group(
    "config",
    "print settings and their sources, or check a settings file",
    _CONFIG_EXAMPLES,
    commands=[
        Command(
            "config show",
            "print the settings of a command, and where each value comes from",
            _CONFIG_EXAMPLES,
            (
                Argument("of", "COMMAND", "command whose settings are shown; without it all settings", many=True),
                _output(TABLE, JSON),
            ),
            module="settings",
            takes=_with_settings,
        ),
        Command(
            "config check",
            "report every fault of a settings file, and start nothing",
            _CONFIG_EXAMPLES,
            (_paths("paths", "FILE", "settings files (TOML)", required=True), _output(TEXT, JSON)),
            module="settings",
            loads=False,
        ),
    ],
)
_DOCTOR_EXAMPLES = """\
examples:
  streamgauge doctor tap --config streamgauge.toml
      the checks of `tap` with these settings; run it on the host, and as the user, that will run the tap
  streamgauge doctor up --upstream openai=https://api.openai.com
  streamgauge doctor worker --kafka b:9092 --prometheus http://prometheus:9090
  streamgauge doctor tap --through https://llm.example.com --output json
      if the tap has --upstream doctor=http://127.0.0.1:9469, a slow stream is sent through it, and through that address

It also takes every option of `up`, `tap` or `worker` that is a setting. Without one of these words it checks `tap` or
`worker` if the settings name a broker, else `up`. Each line is ok, warn or fail, with what was seen and the cure. Nothing is
stored, sent to a topic or changed.

Exit codes: 0 no check failed, 1 a check failed (a warning is no failure), 2 wrong usage or settings.
"""
_DOCTOR_OPTIONS = (
    _option(
        "--through",
        "address at which clients reach the tap, such as that of a load balancer: shows whether a proxy before the tap"
        " buffers",
        "URL",
    ),
    _option(
        "--serve",
        "where the doctor serves its slow stream, if the upstream `doctor` leads there through a proxy; else the address of"
        " that upstream",
        "HOST:PORT",
    ),
    _option("--prometheus", "address of the Prometheus server that scrapes this installation", "URL"),
    _option("--check-timeout", "time limit of each check", "SECONDS", type=float, default=20.0),
    _output(TEXT, JSON),
)
_DOCTOR = Group(
    "doctor",
    "check what would stop an installation from working, and say how to cure it",
    _DOCTOR_EXAMPLES,
    _DOCTOR_OPTIONS,
    module="doctor",
    takes=("up", "tap", "worker"),
    commands=[
        Command(
            f"doctor {command}",
            f"check what would stop `{command}` from working, and say how to cure it",
            _DOCTOR_EXAMPLES,
            _DOCTOR_OPTIONS,
            module="doctor",
            takes=(command,),
        )
        for command in ("up", "tap", "worker")
    ],
)
_ASSETS = Command(
    "assets",
    "write dashboards, alert rules and JSON Schemas of this version into a directory",
    """\
examples:
  streamgauge assets streamgauge-assets
      dashboards/grafana has the dashboards and their provisioning; dashboards/prometheus has the rules of the default
      objectives, and examples of prometheus.yml and alertmanager.yml; schemas has those of records and audits
""",
    (
        Argument(
            "directory",
            "DIR",
            "directory to write into; made if it is missing",
            required=True,
            type=click.Path(readable=False),
        ),
        _switch("--overwrite", "replace files that differ"),
    ),
    module="assets",
)

# --- topics and dead letters ----------------------------------------------------------------------------------------

_TOPICS_EXAMPLES = """\
examples:
  streamgauge topics create --kafka broker:9092 --partitions 8
      creating again changes nothing; exit code 1: an existing topic differs
  streamgauge topics describe --kafka broker:9092
"""
_TOPICS = Group(
    "topics",
    "create or describe the topics in Kafka",
    _TOPICS_EXAMPLES,
    commands=[
        Command(
            "topics create",
            "create missing topics and report how existing ones differ",
            _TOPICS_EXAMPLES,
            (_output(TEXT, JSON),),
            module="topics",
        ),
        Command(
            "topics describe",
            "show the existing topics",
            _TOPICS_EXAMPLES,
            (_output(TABLE, JSON, JSONL),),
            module="topics",
        ),
    ],
    kafka=True,
)
_DEADLETTER_EXAMPLES = """\
examples:
  streamgauge deadletter list --kafka broker:9092 --since 3600
      the last hour
  streamgauge deadletter show 12 --kafka broker:9092
  streamgauge deadletter retry 12 13 --kafka broker:9092
  streamgauge deadletter retry --all --dry-run --kafka broker:9092
      prints what would be sent back

A dead letter is a message that a worker could not decode or process. Its number is its offset in the dead letter topic. A
dead letter that is sent back also stays in that topic until retention deletes it.
"""
_FILTERS = (
    _option("--stage", "only dead letters of this stage of a worker: decode, assemble, record or ledger", "NAME"),
    _option("--error-class", "only dead letters of this error class, such as frame, version or schema", "NAME"),
    _option("--partition", "only dead letters whose message came from this partition", "N", type=int),
    _option("--since", "only dead letters of the last SECONDS seconds", "SECONDS", type=float),
)
_DEADLETTER = Group(
    "deadletter",
    "list, show or send back dead letters: messages that could not be processed",
    _DEADLETTER_EXAMPLES,
    commands=[
        Command(
            "deadletter list",
            "list dead letters, oldest first",
            _DEADLETTER_EXAMPLES,
            (
                *_FILTERS,
                _output(TABLE, JSON, JSONL),
                _option("--limit", "print at most N dead letters, oldest first", "N", type=int),
            ),
            module="deadletter",
        ),
        Command(
            "deadletter show",
            "show one dead letter: source, reason and content",
            _DEADLETTER_EXAMPLES,
            (
                Argument(
                    "letter", "NUMBER", "number of the dead letter, from the output of `list`", required=True, type=int
                ),
                _output(TEXT, JSON, JSONL, about="form of the output; json and jsonl print all bytes, in base64"),
            ),
            module="deadletter",
        ),
        Command(
            "deadletter retry",
            "send dead letters back to the topic that they came from",
            _DEADLETTER_EXAMPLES,
            (
                Argument("letters", "NUMBER", "numbers from the output of `list`", many=True, type=int),
                _switch("--all", "every dead letter that matches the filters"),
                *_FILTERS,
                _switch("--dry-run", "print what would be sent back, but send nothing"),
                _output(TEXT, JSON),
            ),
            module="deadletter",
        ),
    ],
    kafka=True,
)

# --- the program ----------------------------------------------------------------------------------------------------


def _complete(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    """Installs or prints the completion of a shell, and ends."""
    if value is None or ctx.resilient_parsing:
        return
    from streamgauge.cli.completion import install_completion, script_of, shell_of

    try:
        shell = shell_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, option) from None
    click.echo(install_completion(shell) if option.name == "install_completion" else script_of(shell))
    ctx.exit()


def _completion(flag: str, about: str) -> click.Option:
    """An option of the program whose value is a shell; without a value it is that of the user."""
    return click.Option(
        [flag],
        help=about,
        metavar="[SHELL]",
        is_flag=False,
        flag_value="",
        is_eager=True,
        expose_value=False,
        callback=_complete,
    )


def _version(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given and not ctx.resilient_parsing:
        click.echo(f"{PROGRAM} {__version__}")
        ctx.exit()


STREAMGAUGE = Group(
    "",
    "measures streaming LLM responses: latency, outcome and token usage of each one",
    """\
examples:
  streamgauge demo
      shows what is measured, without an API key
  streamgauge up --upstream openai=https://api.openai.com
      then set the base URL of clients to http://127.0.0.1:8080/openai/v1
  streamgauge ledger query --newest --limit 10
      the latest records that `up` or a worker stored
  streamgauge replay recording.sse

`streamgauge COMMAND --help` shows the options of a command.

Each setting is an option, a variable STREAMGAUGE_<NAME> of the environment, and a key of the settings file
(--config FILE, TOML): --spool-age is STREAMGAUGE_SPOOL_AGE and spool_age; --port is short for --server-ports. An option comes
before a variable, a variable before the file. The sections Arguments and Options of a command's help list what is no setting.

Exit codes: 0 success, 1 finished and found a problem, 2 wrong usage or settings, 3 a required service is unavailable,
70 internal error, 75 a worker was stuck, 130 ended by Ctrl-C. A second signal ends a command at once, with 128 + its
number.
""",
    (
        click.Option(
            ["--version"], help="show the version", is_flag=True, is_eager=True, expose_value=False, callback=_version
        ),
        _completion(
            "--install-completion",
            "install completion of commands and options for this shell, or for bash, zsh or fish",
        ),
        _completion("--show-completion", "print the completion script of this shell, or of bash, zsh or fish"),
    ),
    commands=[
        _UP, _TAP, _WORKER, _TOP, _REPLAY, _RECOUNT, _DEMO, _LEDGER, _AUDIT, _RULES, _CONFIG, _DOCTOR, _ASSETS, _TOPICS,
        _DEADLETTER,
    ],
    context_settings=CONTEXT,
)  # fmt: skip
# The commands by their words, in the order of the help; and the words that are no command themselves.
COMMANDS = {command.path: command for command in commands_below(STREAMGAUGE)}
GROUPS = {group.path: group for group in STREAMGAUGE.commands.values() if isinstance(group, Group) and not group.module}


def parse(words: Sequence[str]) -> Arguments:
    """Reads the words after the program's name. Raises SystemExit after --help, or after an error, which it prints."""
    try:
        with STREAMGAUGE.make_context(PROGRAM, list(words)) as context:
            arguments = STREAMGAUGE.invoke(context)
    except click.exceptions.Exit as ended:
        raise SystemExit(ended.exit_code) from None
    except click.UsageError as error:
        if error.ctx is not None:
            sys.stderr.write(f"{error.ctx.get_usage()}\n")
        path = PROGRAM if error.ctx is None else error.ctx.command_path
        sys.stderr.write(redacted_text(f"{path}: error: {error.format_message()}\n"))
        raise SystemExit(USAGE) from None
    assert isinstance(arguments, Arguments)
    return arguments
