"""The billing audit: compares the ledger with the invoices of providers, and names the cause of each difference.

Both sides are added up by cell: a day, a provider, a model, a key and a tier. `reconcile.py` compares the cells, and tries
the causes on each difference. A provider's export needs a module in `invoices/` and a line in FORMATS.

period.py       the days of an audit; mapping.py: the operator's map of upstreams and keys; keys.py: keys without a map;
                rates_file.py: rates of exchange
ours.py         the ledger's records and streams; our_sums.py: their sums; resumed.py: counts resumed
                streams once
theirs.py       the invoices' side, read by invoices/; repeated.py: equal rows; request_rows.py: rows for one request
steps.py        adds up the ledger's next steps ahead, in threads
tables.py       the temporary database, for millions of rows and streams
cells.py        cells; amounts.py: exact tokens and money
reconcile.py    adds up and compares; explain.py: which cause is tried when
causes.py       causes that predict tokens; moves.py: streams billed in another cell; subsets.py: streams that add up
bounds.py       causes that only bounds limit; habits.py: what other cells show of a provider
money.py        causes in money; zones.py: invoices in another time zone
findings.py     what records show without an invoice; recounts.py: results of `recount`
gateway_logs.py makes records of what gateways have logged
fetch.py        gets a provider's usage and costs of a month from its admin API
conclude.py     makes the result, and checks it; result.py: the result, as schemas/audit.v1.json describes it
scope.py        what is known beforehand; provenance.py: what a result was made of
totals.py       sums by provider; parts.py: sums by cause and model, and by day
rows.py page.py   the result as rows and as an HTML page; cause_texts.py: names of causes, and what to do;
                shown_amounts.py: rounded money
runs.py         kept runs; verification.py: made again; claims.py: the streams of a cause
"""
