"""Dashboards for Grafana, and the configuration of Prometheus. source/ generates what is generated here."""
