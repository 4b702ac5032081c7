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
generate_docs.py   writes the table as dashboards/METRICS.md
http_server.py   the admin port: metrics and health
panel.py panels.py grafana.py   the panels of the dashboard, and the dashboard as Grafana's JSON
"""
