"""The metrics for Prometheus.

table.py       every metric declared once: name, kind, help, labels, buckets; and which take labels of attributes
declarations.py   the types of metrics and labels, and the limits of the page
prometheus.py  the exporter: all metrics of a process, and its page in the format that a scraper asks for
process.py     the standard metrics of the process as a source
tap.py         a tap's counters as a source
series.py      the counts: series within the budgets of the page
budgets.py     which names have series of their own, and which are counted under `other`
text_format.py   the page as text: the classic format, and OpenMetrics
protobuf_format.py   the page as protobuf, with native histograms
observe.py observation.py   what a record adds
otel_names.py  the same under OpenTelemetry's names, where they are asked for
calls.py       calls of JSON-RPC: of tools and of other agents
rate_limits.py   the rate limits of the newest responses, as gauges
resumed_usage.py   what a record's usage adds: a resumed stream counts once
objectives.py  the objectives of streams, for alerts
rules.py       the parts of alert and recording rules. A threshold stands in the alert's `expr`; the alerts:
               rules_slo.py       broken streams and time to first token, by burn rate
               rules_streams.py   the other alerts on an upstream
               rules_taps.py      reads, spool, disk, broker, clock
               rules_workers.py   lag, dead letters, storing in the ledger, spans
               rules_money.py     costs, budgets, audit
               rules_presence.py  processes or metrics that are missing
rule_files.py  the rules as files for Prometheus and Sloth
http_server.py   the admin port: metrics and health
admin_access.py   access to it: its token, guesses of the token, its certificate
admin_log.py   what was read from it and what it refused: the admin log, and refusals

dashboards/source of the repository generates METRICS.md and the dashboards from these.
"""
