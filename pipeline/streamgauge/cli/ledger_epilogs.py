"""What the help of the `ledger` commands says at its end: examples and notes."""

QUERY_EPILOG = """\
examples:
  streamgauge ledger query --newest --limit 20
      the latest records, as a table
  streamgauge ledger query --by tenant,model --month 2026-11
      tokens and cost of November by tenant and model
  streamgauge ledger query --by month,tenant --tenants tenants.toml
      also records from before that file existed, by their credential_id
  streamgauge ledger query --by day --timezone Europe/Berlin
  streamgauge ledger query --by session
      calls, tokens, cost and longest wait of each session (--attribute session=HEADER of `up` and `tap`)
  streamgauge ledger query --where outcome=truncated --where tenant=river
  streamgauge ledger query --by day --ledger sqlite:///a --ledger sqlite:///b
  streamgauge ledger query --output jsonl | jq .outcome

Keys for --by and --where: day, model, month, request_model, response_model, tap, upstream, dialect, endpoint, outcome,
finish_reason, tenant, credential_id, service_tier, usage_source, request_digest, attempt, response_id, resumed_from,
trace_id, upstream_host, cost_unknown.
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

EXPORT_EPILOG = """\
examples:
  streamgauge ledger export november.csv --output csv --month 2026-11
  streamgauge ledger export - --where tenant=river | gzip > river.jsonl.gz
  streamgauge ledger export records.parquet --output parquet
      requires the package pyarrow

JSON lines are the records as the ledger stores them, with their cost; `ledger import` reads them. CSV and Parquet have the
ledger's columns; Parquet has the record as well. Records come oldest first.
"""

IMPORT_EPILOG = """\
examples:
  streamgauge replay recordings/ --output jsonl | streamgauge ledger import -
  streamgauge ledger import records.jsonl --ledger postgresql://db/streamgauge
      copies a ledger that `ledger export records.jsonl` wrote; records keep their cost

Each stream is stored once: importing a file again changes nothing. A record without a cost gets the price of its day.

Exit code 1: a line is no record, or the ledger has another record of that stream, which stays; all others are stored.
"""

BUDGETS_EPILOG = """\
examples:
  streamgauge ledger budgets budgets.toml
  streamgauge ledger budgets budgets.toml --month 2026-10 --output json

The file is TOML: a table [[budget]] for each budget, with month_usd and one key, such as tenant = "search". Keys are tenant,
model, request_model, response_model, upstream, dialect, endpoint, tap, credential_id, service_tier, or an attribute.

The forecast goes on as the month went so far; there is none on the first day. Streams of without_price and without_usage
are in no cost.

Exit code 1: a budget is spent.
"""
