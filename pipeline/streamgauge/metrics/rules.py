"""The parts of alert and recording rules for Prometheus. `rule_files.py` collects and writes them.

An alert has a page docs/runbooks/<name>.md, and a firing and a silent case in tests/dashboards/alert_cases.py.
"""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

# page: it needs an action now. ticket: it needs an action in the next days.
Severity = Literal["page", "ticket"]

# The words of a command that lists records of the upstream of an alert; the number of records follows.
QUERY = "ledger query --where upstream={{ $labels.upstream }}"

# A dashboard in dashboards/grafana, by the end of its address.
DashboardName = Literal["overview", "upstream", "usage", "pipeline"]


@dataclass(frozen=True)
class Alert:
    """An alert. `expr`: PromQL; `minutes`: how long it has to hold; the texts are Prometheus' templates.

    `command`: the words of a command that lists what the alert counts, without `streamgauge` and the ledger; or empty.
    """

    name: str
    expr: str
    minutes: float
    severity: Severity
    summary: str
    description: str
    command: str = ""


@dataclass(frozen=True)
class Recording:
    """A recording rule. `name`: LABELS:METRIC:OPERATION, as Prometheus' documentation advises."""

    name: str
    expr: str


@dataclass(frozen=True)
class RuleGroup:
    """Rules that Prometheus evaluates one after the other. `minutes`: how often; None for its default interval.

    `dashboard`: that of its alerts.
    """

    name: str
    rules: tuple[Alert | Recording, ...]
    dashboard: DashboardName
    minutes: float | None = None


@dataclass(frozen=True)
class Links:
    """Where the annotations of alerts lead. The defaults are the addresses of `up` and of Grafana on one host.

    `page`: an admin port, whose page shows the streams and which serves the runbooks; `dashboards`: Grafana; `runbooks`: the
    address below which the files of docs/runbooks are published instead; `ledger`: a database for commands, else DATA_DIR.
    Raises ValueError for an address that is no URL, and for a ledger's URL with a password, which the receivers of an
    alert would read.
    """

    page: str = "http://127.0.0.1:9464"
    dashboards: str = "http://127.0.0.1:3000"
    runbooks: str | None = None
    ledger: str | None = None

    def __post_init__(self) -> None:
        for option, url in (("--page", self.page), ("--dashboards", self.dashboards)):
            if not url.startswith(("http://", "https://")) or not urlsplit(url).hostname:
                raise ValueError(f"{option}: give a URL, as in https://host:port; {url} is none")
        if self.ledger is not None and urlsplit(self.ledger).password is not None:
            raise ValueError("--ledger: the receivers of an alert would read the password: leave it out of the URL")


class Durations:
    """Writes durations as PromQL does. `factor` multiplies each: a test against a real Prometheus shortens them."""

    def __init__(self, factor: float = 1.0) -> None:
        self._factor = factor

    def __call__(self, minutes: float) -> str:
        """A duration of so many minutes, such as `5m` or `1h30m`, at least a second."""
        seconds = max(1, round(minutes * 60 * self._factor))
        parts = []
        for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
            if count := seconds // size:
                parts.append(f"{count}{unit}")
                seconds -= count * size
        return "".join(parts)


def share_of(part: str, whole: str) -> str:
    """The share that an increase has in that of another metric, at most 1.

    Prometheus extrapolates each increase by itself, so that a part may come out larger than its whole.
    """
    return f"clamp_max({part} / {whole}, 1)"
