"""Streamgauge: how fast every LLM token stream came, how it ended, and what it used.

records.py         public: the record for readers
settings/          all settings, each declared once, and the types of their values
errors.py          errors that an operator can correct, and exit codes
cli/               the command line, one module a command
core/              pure: captured reads in, records out
taps/              where streams are captured; httpx.py and asgi.py are public
recorder/          the part of the collector that turns messages of taps into bundles
spool/             the bounded queue on disk between the recorder and Kafka or the ledger; the balance of reads
kafka/             spool -> Kafka; topics, dead letters, and all that talks to a broker
worker/            Kafka -> assembler -> records; faust/ and watchdog/; local.py: spool -> assembler -> ledger, without Kafka
ledger/            stores records, in SQLite or PostgreSQL
prices/            what a record costs: list prices, and those of the operator
spans/             the ledger's new records as OpenTelemetry spans
audit/             compares the ledger with what providers bill; invoices/ reads their exports
recount/           output tokens counted again with public tokenizers
doctor/            checks what would stop an installation from working, and says how to cure it
live/              the page on the admin port: open streams, timelines, the last hour
top/               the view of `streamgauge top`: the answers of several admin ports, in the terminal
metrics/           every metric declared once; the exporter and its HTTP server
runtime/           child processes, listening sockets, the data directory, secrets, reports of bugs

The demo is a package beside it: `streamgauge_demo`.
"""

__version__ = "0.1.0"
