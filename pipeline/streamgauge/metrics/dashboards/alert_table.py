"""A table of the alerts that are pending or fire."""

from streamgauge.metrics.dashboards.panel import ALERTS, Column, Query, Table
from streamgauge.metrics.rule_files import alerts, rule_groups

_LABELS = ("severity", "job", "instance", "upstream", "model")


def alert_table() -> Table:
    """The alerts of our rules, whatever the variables select: an alert on what is missing has no labels to select by."""
    ours = "|".join(sorted({alert.name for alert in alerts(rule_groups())}))
    labels = ", ".join(("alertname", *_LABELS))
    states, times = ALERTS
    state = f'max by ({labels}, alertstate) ({states}{{alertname=~"{ours}"}})'
    since = f'max by ({labels}) ({times}{{alertname=~"{ours}"}})'
    return Table(
        title="Alerts",
        help="Alerts of the whole installation that are pending or fire. docs/runbooks has a page for each.",
        queries=(Query(f"{state} * on ({labels}) group_left () {since} * 1000", "{{alertname}} {{alertstate}}"),),
        labels={"alertname": Column("alert"), "alertstate": Column("state"), **{one: Column(one) for one in _LABELS}},
        values=(Column("since", "dateTimeFromNow"),),
        height=6,
        no_value="no alert is pending or fires",
    )
