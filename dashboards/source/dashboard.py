"""A dashboard: its rows, and the variables and links that all of ours have.

A dashboard hides the variables that none of its queries uses, so that links to other dashboards carry their values along.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.dashboard import RowPanel, VariableHide, VariableOption

from dashboards.source.panel import DATASOURCE, Panel
from streamgauge.metrics.rule_files import PAGE as PAGE_SERIES

# The oldest schema that the dashboards fit: Grafana 11 has it, and later ones convert it. The SDK would write its newest.
_SCHEMA_VERSION = 39
_TAG = "streamgauge"
# What a dashboard consists of.
_Part = model.Panel | RowPanel

_SCOPE = 'job=~"$job",instance=~"$instance"'
# Label -> what to ask for its values, and the matcher of "All". Every series has a job and an instance.
_CHOICES = {
    "job": ("label_values(streamgauge_build_info, job)", ".+"),
    "instance": ('label_values(streamgauge_build_info{job=~"$job"}, instance)', ".+"),
    "upstream": (f"label_values(streamgauge_streams_total{{{_SCOPE}}}, upstream)", ".*"),
    "model": (f'label_values(streamgauge_streams_total{{{_SCOPE},upstream=~"$upstream"}}, model)', ".*"),
    "tenant": (f"label_values(streamgauge_streams_total{{{_SCOPE}}}, tenant)", ".*"),
}
VARIABLES = ("datasource", *_CHOICES)
# A hidden variable: the address of the page, as the rules record it (`rules generate --page`).
PAGE = "page"


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


@dataclass(frozen=True)
class Row:
    """Panels under a heading, without one if `title` is empty. `collapsed`: a click on the heading shows them."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, kw_only=True)
class Dashboard(Builder[model.Dashboard]):
    """A dashboard. `name`: of its file and its address; `hours`: how far it looks back."""

    name: str
    title: str
    help: str
    rows: tuple[Row, ...]
    hours: int = 3

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
            .link(_page_link("The streams now", ""))
            .link(_page_link("Runbooks", "runbooks/"))
            .variables(list(self._variables()))
        )
        for row in self.rows:
            if row.title:
                builder.with_row(build.Row(row.title))
            for panel in row.panels:
                builder.with_panel(panel)
        dashboard = builder.build()
        dashboard.schema_version = _SCHEMA_VERSION
        for number, part in enumerate(dashboard.panels or (), 1):
            part.id_val = number
        dashboard.panels = _collapsed(dashboard.panels or [], {row.title for row in self.rows if row.collapsed})
        for link in dashboard.links or ():
            link.placement = None  # type: ignore[assignment]  # else the SDK moves every link into a menu
        for variable in (dashboard.templating and dashboard.templating.list_val) or ():
            variable.auto = variable.auto_min = variable.auto_count = None  # defaults of another kind of variable
        return dashboard

    def _variables(self) -> Iterator[Builder[model.VariableModel]]:
        used = "\n".join(query.expression for panel in self.panels for query in panel.queries)

        def hide(name: str) -> VariableHide:
            return VariableHide.DONT_HIDE if f"${name}" in used else VariableHide.HIDE_VARIABLE

        source = build.DatasourceVariable("datasource").label("Data source").hide(VariableHide.DONT_HIDE)
        yield source.type("prometheus")
        for name, (query, every) in _CHOICES.items():
            variable = choice(name, name, query).hide(hide(name)).multi(True).include_all(True).all_value(every)
            yield variable.current(VariableOption(text=["All"], value=["$__all"]))
        yield choice(PAGE, PAGE, f"label_values({PAGE_SERIES}, page)").hide(VariableHide.HIDE_VARIABLE)


def _collapsed(panels: list[_Part], titles: Collection[str]) -> list[_Part]:
    """The panels with those of collapsed rows inside of their row, and the rows below moved up."""
    kept: list[_Part] = []
    row: RowPanel | None = None
    up = 0
    for panel in panels:
        at = panel.grid_pos
        assert at is not None
        if isinstance(panel, RowPanel):
            row = panel if panel.title in titles else None
            panel.collapsed = row is not None
        elif row is not None:
            row.panels.append(panel)
            continue
        if isinstance(panel, RowPanel) and kept:
            above = [one.grid_pos for one in kept if one.grid_pos is not None]
            up = at.y - max(one.y + one.h for one in above)
        at.y -= up
        kept.append(panel)
    return kept


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


def _page_link(title: str, path: str) -> build.DashboardLink:
    """A link to the page of streams, which knows single ones."""
    link = build.DashboardLink(title).type(model.DashboardLinkType.LINK).url(f"${{{PAGE}}}/{path}").target_blank(True)
    return link.tooltip("On the admin port, by the address that the alert rules have").icon("bolt")
