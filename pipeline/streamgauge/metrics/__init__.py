"""What Prometheus sees.

table.py       every metric declared once: name, kind, help, labels, buckets, its share of the page
prometheus.py  the exporter: counts of our own behind a prometheus_client collector
observe.py     what a record adds
continued.py   what its usage adds: a continued stream counts once
document.py    the table as dashboards/METRICS.md
panels.py grafana.py   the panels of the dashboard, and the dashboard as Grafana's JSON
"""
