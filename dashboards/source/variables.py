"""The variables that all dashboards have, as Grafana's JSON. Links between dashboards carry their values along.

A dashboard hides those that none of its queries uses, so that their values survive a visit.
"""

from collections.abc import Sequence

from dashboards.source.panel import Variable
from streamgauge.metrics.declarations import Metric
from streamgauge.metrics.objectives import Objectives
from streamgauge.metrics.table import FIRST_TOKEN, INTER_TOKEN

Json = dict[str, object]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
# The time per output token that is fast enough (seconds): 20 tokens a second, twice as fast as people read.
TPOT_OBJECTIVE = 0.05
_HIDDEN = 2
_REFRESH_WITH_TIME = 2
_SORT_BY_NAME = 1

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
NAMES = ("datasource", *_CHOICES, *_OBJECTIVES)


def variables(used: str, further: Sequence[Variable]) -> list[Json]:
    """The variables of a dashboard. `used`: the text of all its queries."""
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0},
        *(_choice(label, label, query, f"${label}" in used, every) for label, (query, every) in _CHOICES.items()),
        *(
            _objective(name, label, metric, default, help, f"${name}" in used)
            for name, (label, metric, default, help) in _OBJECTIVES.items()
        ),
        *(_further(variable) for variable in further),
    ]


def link_variables(*changed: str) -> str:
    """The part of an address that carries the dashboard's time range and all variables along, except those `changed`."""
    return "&".join(["${__url_time_range}", *(f"${{{name}:queryparam}}" for name in NAMES if name not in changed)])


def _choice(name: str, label: str, query: str, shown: bool, every: str | None) -> Json:
    multiple: Json = {"text": ["All"], "value": ["$__all"]}
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": _REFRESH_WITH_TIME,
        "sort": _SORT_BY_NAME,
        "hide": 0 if shown else _HIDDEN,
        **({"includeAll": True, "allValue": every, "multi": True, "current": multiple} if every else {}),
    }


def _objective(name: str, label: str, metric: Metric, default: float, help: str, shown: bool) -> Json:
    """Offers the bounds of a histogram's buckets: only for these the share within the objective can be counted.

    Raises ValueError if the default is none of them.
    """
    if default not in metric.bounds:
        raise ValueError(f"the objective {default:g} is no bound of the buckets of {metric.name}")
    options = [{"text": f"{bound:g} s", "value": str(bound), "selected": bound == default} for bound in metric.bounds]
    return {
        "name": name,
        "label": label,
        "description": f"{help} Offered are the bounds of the buckets of {metric.name}.",
        "type": "custom",
        "query": ",".join(f"{option['text']} : {option['value']}" for option in options),
        "options": options,
        "current": {"text": f"{default:g} s", "value": str(default)},
        "hide": 0 if shown else _HIDDEN,
    }


def _further(variable: Variable) -> Json:
    if variable.query is not None:
        return {**_choice(variable.name, variable.label, variable.query, True, None), "description": variable.help}
    empty: Json = {"text": "", "value": ""}
    return {
        "name": variable.name,
        "label": variable.label,
        "description": variable.help,
        "type": "textbox",
        "query": "",
        "current": empty,
        "hide": 0,
    }
