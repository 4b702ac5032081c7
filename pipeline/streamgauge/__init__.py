"""Streamgauge: how fast every LLM token stream came, how it ended, and what it used.

core/         pure: captured reads in, records out
taps/         where streams are captured: proxy, replay; recorder.py turns reads into segments
bundles.py    bundles as bytes
spool.py      the bounded disk queue between a tap and what comes after
topics.py kafka.py worker.py   the way through Kafka and Faust
local.py      the same without Kafka
records.py    the public face of the record
metrics/      every metric declared once; the exporter
ledger/       where records rest
demo/         a provider simulator, driven by the official clients
config.py cli.py   one settings tree, the command line
"""

__version__ = "0.1.0"
