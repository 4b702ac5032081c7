"""Generates METRICS.md and the dashboards for Grafana: `python -m dashboards.source.generate`, or `make generated`.

overview.py upstream.py usage.py pipeline.py   the dashboards as data, one module each
dashboard.py   a dashboard: its rows, and the variables and links that all have
panel.py       the kinds of panels, and how Grafana's Foundation SDK builds them
queries.py     parts of queries, with the variables as their scope
generate.py    METRICS.md from the table of metrics, and the files of all

Only a checkout has this package: a wheel has the generated files.
"""
