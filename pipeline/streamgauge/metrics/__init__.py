"""The metrics for Prometheus.

table.py       every metric declared once: name, kind, help, labels, buckets, its share of the page
declarations.py   the types of metrics and labels, and the limits of the page
prometheus.py  the exporter: our own counts behind a prometheus_client collector
attribute_labels.py   the labels that --metric-attribute adds
series.py      the counts: series within the budgets of their labels
observe.py     what a record adds
rate_limits.py   the rate limits of the newest responses, as gauges; table_limits.py has their rows
resumed_usage.py   what a record's usage adds: a resumed stream counts once
tap.py         a tap's counters as a source of metrics
table_health.py   rows of the table: the health of taps and workers
objectives.py  what streams promise, for alerts
rules.py rules_*.py rule_files.py   alert and recording rules, and their files for Prometheus and Sloth
generate_docs.py   writes the table as dashboards/METRICS.md
http_server.py   the admin port: metrics and health
panel.py panel_queries.py panels.py panels_workers.py   the panels of the dashboard
grafana.py     the dashboard as Grafana's JSON
"""
