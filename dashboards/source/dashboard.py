"""A dashboard: its rows, and the variables and links that all of ours have.

A dashboard hides the variables that none of its queries uses, so that links to other dashboards carry their values along.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.dashboard import VariableHide, VariableOption

from dashboards.source.panel import DATASOURCE, Panel
from streamgauge.metrics.declarations import Metric
from streamgauge.metrics.objectives import Objectives
from streamgauge.metrics.table import FIRST_TOKEN, INTER_TOKEN

# The time per output token that is fast enough (seconds): 20 tokens a second, twice as fast as people read.
TPOT_OBJECTIVE = 0.05

# The oldest schema that the dashboards fit: Grafana 11 has it, and later ones convert it. The SDK would write its newest.
_SCHEMA_VERSION = 39
_TAG = "streamgauge"

_SCOPE = 'job=~"$job",instance=~"$instance"'
# Label -> what to ask for its values, and the matcher of "All". Every series has a job and an instance.
_CHOICES = {
    "job": ("label_values(streamgauge_build_info, job)", ".+"),
    "instance": ('label_values(streamgauge_build_info{job=~"$job"}, instance)', ".+"),
    "upstream": (f"label_values(streamgauge_streams_total{{{_SCOPE}}}, upstream)", ".*"),
    "model": (f'label_values(streamgauge_streams_total{{{_SCOPE},upstream=~"$upstream"}}, model)', ".*"),
    "tenant": (f"label_values(streamgauge_streams_total{{{_SCOPE}}}, tenant)", ".*"),
}
_OBJECTIVES = {
    "objective": (
        "TTFT objective",
        FIRST_TOKEN,
        Objectives().ttft,
        "The time to the first token, reasoning included, that is fast enough.",
    ),
    "tpot_objective": ("TPOT objective", INTER_TOKEN, TPOT_OBJECTIVE, "The time per output token that is fast enough."),
}
VARIABLES = ("datasource", *_CHOICES, *_OBJECTIVES)


def link_variables(*changed: str) -> str:
    """The part of an address that carries the dashboard's time range and all variables along, except those `changed`."""
    kept = (f"${{{name}:queryparam}}" for name in VARIABLES if name not in changed)
    return "&".join(["${__url_time_range}", *kept])


def choice(name: str, label: str, query: str) -> build.QueryVariable:
    """A variable that offers the values of a query."""
    return (
        build.QueryVariable(name)
        .label(label)
        .hide(VariableHide.DONT_HIDE)
        .datasource(DATASOURCE)
        .query({"query": query, "refId": name})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
    )


def _objective(name: str, label: str, metric: Metric, default: float, help: str) -> build.CustomVariable:
    """A variable that offers the bounds of a histogram's buckets: only for these the share within it can be counted.

    Raises ValueError if the default is none of them.
    """
    if default not in metric.bounds:
        raise ValueError(f"the objective {default:g} is no bound of the buckets of {metric.name}")
    options = [VariableOption(bound == default, f"{bound:g} s", str(bound)) for bound in metric.bounds]
    return (
        build.CustomVariable(name)
        .label(label)
        .description(f"{help} Offered are the bounds of the buckets of {metric.name}.")
        .values(",".join(f"{option.text} : {option.value}" for option in options))
        .options(options)
        .current(VariableOption(text=f"{default:g} s", value=str(default)))
    )


def text_field(name: str, label: str) -> build.TextBoxVariable:
    """A variable that is a field of text, empty at first."""
    variable = build.TextBoxVariable(name).label(label).hide(VariableHide.DONT_HIDE)
    return variable.default_value("").current(VariableOption(text="", value=""))


@dataclass(frozen=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Dashboard(Builder[model.Dashboard]):
    """A dashboard. `name`: of its file and its address; `hours`: how far it looks back.

    `variables`: those that it has besides those of all dashboards.
    """

    name: str
    title: str
    help: str
    rows: tuple[Row, ...]
    hours: int = 3
    variables: tuple[Builder[model.VariableModel], ...] = ()

    @property
    def uid(self) -> str:
        """What its address ends with."""
        return f"streamgauge-{self.name}"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, in order."""
        return tuple(panel for row in self.rows for panel in row.panels)

    def json(self) -> str:
        """The dashboard as Grafana's JSON. The same dashboard gives the same bytes."""
        return JSONEncoder(indent=2).encode(self.build()) + "\n"

    def build(self) -> model.Dashboard:
        """The dashboard of the SDK."""
        builder = (
            build.Dashboard(f"Streamgauge: {self.title}")
            .uid(self.uid)
            .description(self.help)
            .tags([_TAG, "llm"])
            .readonly()
            .tooltip(model.DashboardCursorSync.CROSSHAIR)
            .refresh("30s")
            .timezone("")
            .time(f"now-{self.hours}h", "now")
            .link(_links())
            .variables([*self._shared_variables(), *self.variables])
        )
        for row in self.rows:
            builder.with_row(build.Row(row.title))
            for panel in row.panels:
                builder.with_panel(panel)
        dashboard = builder.build()
        dashboard.schema_version = _SCHEMA_VERSION
        for number, part in enumerate(dashboard.panels or (), 1):
            part.id_val = number
        for link in dashboard.links or ():
            link.placement = None  # type: ignore[assignment]  # else the SDK moves every link into a menu
        for variable in (dashboard.templating and dashboard.templating.list_val) or ():
            variable.auto = variable.auto_min = variable.auto_count = None  # defaults of another kind of variable
        return dashboard

    def _shared_variables(self) -> Iterator[Builder[model.VariableModel]]:
        used = "\n".join(query.expression for panel in self.panels for query in panel.queries)

        def hide(name: str) -> VariableHide:
            return VariableHide.DONT_HIDE if f"${name}" in used else VariableHide.HIDE_VARIABLE

        source = build.DatasourceVariable("datasource").label("Data source").hide(VariableHide.DONT_HIDE)
        yield source.type("prometheus")
        for name, (query, every) in _CHOICES.items():
            variable = choice(name, name, query).hide(hide(name)).multi(True).include_all(True).all_value(every)
            yield variable.current(VariableOption(text=["All"], value=["$__all"]))
        for name, (label, metric, default, help) in _OBJECTIVES.items():
            yield _objective(name, label, metric, default, help).hide(hide(name))


def _links() -> build.DashboardLink:
    """Links to all dashboards. They keep the time range and the values of all variables."""
    return (
        build.DashboardLink("Streamgauge")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([_TAG])
        .tooltip("The other dashboards, with the same time range and variables")
        .icon("external link")
        .url("")
        .include_vars(True)
        .keep_time(True)
    )
