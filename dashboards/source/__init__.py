"""Generates METRICS.md and the dashboards for Grafana: `python -m dashboards.source.generate`, or `make generated`.

overview.py latency.py errors.py usage.py pipeline.py one_stream.py   the dashboards as data, one module each
money.py       the rows of costs, budgets and audits, and what other dashboards say about money
panel.py       what a dashboard consists of: rows, panels, queries, thresholds
queries.py     parts of queries, with the variables as their scope
variables.py   the variables that all dashboards have
panel_json.py dashboard_json.py   all of it as Grafana's JSON
generate.py    METRICS.md from the table of metrics, and the files of all

Only a checkout has this package: a wheel has the generated files.
"""
