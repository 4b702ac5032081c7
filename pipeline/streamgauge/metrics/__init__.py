"""The metrics for Prometheus.

table.py       every metric declared once: name, kind, help, labels, buckets
table_streams.py table_taps.py table_workers.py   the rows of the table, by the part that sets them
declarations.py   the types of metrics and labels, and the limits of the page
prometheus.py  the exporter: all metrics of a process, and its page
process.py     the standard metrics of the process as a source; table_process.py has their rows
attribute_labels.py   the labels that --metric-attribute adds
series.py      the counts: series within the budgets of the page
budgets.py     which names have series of their own, and which are counted under `other`
accept.py      the format that a scraper asks for
text_format.py   the page as text: the classic format, and OpenMetrics
protobuf_format.py   the page as protobuf, with native histograms
observe.py observation.py   what a record adds
table_otel.py observe_otel.py   the same under OpenTelemetry's names, where they are asked for
rate_limits.py   the rate limits of the newest responses, as gauges; table_limits.py has their rows
resumed_usage.py   what a record's usage adds: a resumed stream counts once
tap.py         a tap's counters as a source of metrics; table_added_time.py has the rows of the relay's own time
table_health.py   rows of the table: the health of taps and workers
objectives.py  what streams promise, for alerts
rules.py rules_*.py rule_files.py   alert and recording rules, and their files for Prometheus and Sloth
generate_docs.py   writes the table as dashboards/METRICS.md
http_server.py   the admin port: metrics and health
dashboards/    the dashboards for Grafana, as data and as JSON
"""
