"""What Prometheus sees.

table.py       every metric declared once: name, kind, help, labels, buckets, its share of the page
prometheus.py  the exporter: counts of our own behind a prometheus_client collector
observe.py     what a record adds
resumed_usage.py   what its usage adds: a continued stream counts once
generate_docs.py   the table as dashboards/METRICS.md
http_server.py   the admin port: metrics and health
panels.py grafana.py   the panels of the dashboard, and the dashboard as Grafana's JSON
"""
