"""Declarations of `audit` and its commands."""

import click

from streamgauge.cli.commands.options import file_option, option, output, switch
from streamgauge.cli.parser import CSV, HTML, JSON, TABLE, Argument, Command, Group

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
AUDIT = Group(
    "audit",
    "hold the ledger against what providers bill",
    _AUDIT_EXAMPLES,
    (
        file_option(
            "--invoice",
            "what the provider exported: JSON, CSV or Parquet, also gzip or ZIP; all files of a provider are one invoice",
            multiple=True,
        ),
        option("--from", "first day of the period, such as 2026-11-01", "DATE"),
        option("--to", "day after the last one of the period", "DATE"),
        option("--timezone", "time zone of the days, such as Europe/Berlin", "NAME", default="UTC"),
        file_option("--map", "TOML file: providers of upstreams, keys of tenants, meters of clouds"),
        option(
            "--cost",
            "which money of FOCUS is compared: what is billed, or with prepayments spread over the usage that they cover",
            type=click.Choice(("billed", "effective")),
            default="billed",
        ),
        file_option("--rates", "TOML file: rates of exchange by day, for money in other currencies than USD"),
        option("--tolerance-tokens", "tokens that may stay unexplained", "N", type=int, default=0),
        option(
            "--tolerance-usd", "dollars that may stay unexplained, besides what an export rounds", "USD", default="0.01"
        ),
        file_option("--scope", "TOML file: causes that are known, each with a limit and a last day; they are no news"),
        option(
            "--accept",
            "a cause that is no news, whatever it amounts to, such as aborted_without_usage; repeatable",
            "CAUSE",
            multiple=True,
        ),
        file_option("--recounts", "what `recount --output jsonl` printed: a finding where a reported count differs"),
        option(
            "--settle-days",
            "days after the period until it may be closed; earlier results are preliminary",
            "N",
            type=int,
        ),
        switch("--save", "keep the result in the ledger, with digests of records and invoices"),
        output(TABLE, JSON, CSV, HTML),
    ),
    module="audit",
    commands=[
        Command("audit list", "list the kept runs", _AUDIT_EXAMPLES, (output(TABLE, JSON, CSV),), module="kept_audits"),
        Command(
            "audit show",
            "show a kept run",
            _AUDIT_EXAMPLES,
            (
                Argument("number", "RUN", "number of a kept run, from the output of `audit list`", type=int),
                switch("--verify", "make the run again with the same files, and say whether its bytes are the same"),
                file_option("--invoice", "an invoice of the run that was moved; name all of them", multiple=True),
                file_option("--map", "the map of the run, if it was moved; likewise the next three"),
                file_option("--scope", "its file of known causes"),
                file_option("--rates", "its rates of exchange"),
                file_option("--recounts", "its recounts"),
                output(TABLE, JSON, CSV, HTML),
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
                output(TABLE, JSON, CSV),
            ),
            module="kept_audits",
        ),
        Command(
            "audit claim",
            "write the streams that a kept run names for a cause, as CSV",
            _AUDIT_EXAMPLES,
            (
                Argument("number", "RUN", "number of a kept run, from the output of `audit list`", type=int),
                option("--cause", "the cause, such as retries_billed_twice; or undecided", "CAUSE"),
                option("--provider", "only streams of this provider", "NAME"),
                option("--model", "only streams of this model, as the run names it", "NAME"),
                file_option("--map", "the map of the run, if it was moved"),
                file_option(
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
                option("--month", "month of UTC, such as 2026-11", "YYYY-MM"),
                file_option("--key-file", "file that holds an admin key of the provider, readable by its owner alone"),
                option("--directory", "where the files are written", "DIR", default="."),
                option("--base-url", "another address of the provider's API, such as that of a proxy", "URL"),
            ),
            module="audit_fetch",
        ),
    ],
)
