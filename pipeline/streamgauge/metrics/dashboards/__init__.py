"""The dashboards for Grafana, as data. `make generated` writes them to dashboards/grafana.

overview.py latency.py errors.py usage.py pipeline.py one_stream.py   the dashboards, one module each
panel.py       what a dashboard consists of: rows, panels, queries
queries.py     parts of queries, with the variables as their scope
variables.py   the variables that all dashboards have
panel_json.py dashboard_json.py   all of it as Grafana's JSON
"""
