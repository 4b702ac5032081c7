"""The billing audit: holds the ledger against the invoices of providers, and names the cause of each difference.

`invoices/` reads what providers export, `ours.py` what the ledger holds. Both are added up by cell: a day, a provider, a
model, a key and a tier. `reconcile.py` compares the cells, and tries the causes (`causes.py`, `money.py`, `moves.py`,
`zones.py`) on each difference.
`result.py` is the result: schemas/audit.v1.json. A provider's export needs a module in `invoices/` and a line in FORMATS.
"""
