"""Declarations of `rules`, `config`, `doctor` and `assets`, which prepare and check an installation."""

import click

from streamgauge.cli.commands.options import option, output, paths, switch
from streamgauge.cli.parser import JSON, TABLE, TEXT, Argument, Command, Group

_RULES_EXAMPLES = """\
examples:
  streamgauge rules generate > streamgauge.yml
      the rules in dashboards/prometheus/rules
  streamgauge rules generate --objective unbroken=0.995 --objective ttft=2
  streamgauge rules generate --page https://gauge.internal:9465
  streamgauge rules generate --ledger postgresql://gauge@db/streamgauge
      alerts link to this page, and their commands read this ledger
  streamgauge rules generate --output sloth > slo.yml
      the same objectives for Sloth, which makes rules of its own

Objectives and their defaults:
  unbroken=0.99     share of streams that no error, reset, timeout or truncation
                    ends after they began
  ttft=5            time to the first token, reasoning included, in seconds;
                    a bound of its histogram's buckets
  ttft_share=0.95   share of streams that keep this time
  usage=0.9         share of completed streams that report token usage;
                    0: no alert
"""
RULES = Group(
    "rules",
    "print alert and recording rules for Prometheus",
    _RULES_EXAMPLES,
    commands=[
        Command(
            "rules generate",
            "print alert and recording rules for Prometheus, for your objectives",
            _RULES_EXAMPLES,
            (
                option(
                    "--objective",
                    "an objective that differs from its default; repeatable",
                    "NAME=NUMBER",
                    multiple=True,
                ),
                option(
                    "--page",
                    "admin port of `up` or of a worker, for the links of alerts to its page and to the runbooks there",
                    "URL",
                    default="http://127.0.0.1:9464",
                ),
                option(
                    "--dashboards",
                    "address of Grafana, for the links of alerts",
                    "URL",
                    default="http://127.0.0.1:3000",
                ),
                option(
                    "--runbooks",
                    "address below which the files of docs/runbooks are published, for the links of alerts"
                    "  [default: PAGE/runbooks]",
                    "URL",
                ),
                option(
                    "--ledger",
                    "database for the commands that alerts name, without a password; without it they have --data-dir DIR",
                    "URL",
                ),
                output(
                    "prometheus",
                    "sloth",
                    about="form of the output: rules for Prometheus, or a specification of the objectives for Sloth",
                ),
            ),
            module="rules",
        )
    ],
)
_CONFIG_EXAMPLES = """\
examples:
  streamgauge config show tap --config streamgauge.toml
      every setting of `tap`: its value, and the option, variable or file that it comes from
  streamgauge config show worker --output json
  streamgauge config check streamgauge.toml
      before a roll-out: exit code 0 without a fault, 2 with one

`config show` also takes every option of COMMAND that is a setting. Secrets are printed as ***. `config check` reads the named
files only, neither the environment nor the files that they name.
"""


def _with_settings() -> tuple[str, ...]:
    from streamgauge.settings.declarations import SETTINGS  # which take time to import

    return tuple(dict.fromkeys(command for setting in SETTINGS.values() for command in setting.commands))


CONFIG = Group(
    "config",
    "print settings and their sources, or check a settings file",
    _CONFIG_EXAMPLES,
    commands=[
        Command(
            "config show",
            "print the settings of a command, and where each value comes from",
            _CONFIG_EXAMPLES,
            (
                Argument("of", "COMMAND", "command whose settings are shown; without it all settings", many=True),
                output(TABLE, JSON),
            ),
            module="settings",
            takes=_with_settings,
        ),
        Command(
            "config check",
            "report every fault of a settings file, and start nothing",
            _CONFIG_EXAMPLES,
            (paths("paths", "FILE", "settings files (TOML)", required=True), output(TEXT, JSON)),
            module="settings",
            loads=False,
        ),
    ],
)
_DOCTOR_EXAMPLES = """\
examples:
  streamgauge doctor tap --config streamgauge.toml
      the checks of `tap` with these settings; run it on the host, and as the user, that will run the tap
  streamgauge doctor up --upstream openai=https://api.openai.com
  streamgauge doctor worker --kafka b:9092 --prometheus http://prometheus:9090
  streamgauge doctor tap --through https://llm.example.com --output json
      if the tap has --upstream doctor=http://127.0.0.1:9469, a slow stream is sent through it, and through that address

It also takes every option of `up`, `tap` or `worker` that is a setting. Without one of these words it checks `tap` or
`worker` if the settings name a broker, else `up`. Each line is ok, warn or fail, with what was seen and the cure. Nothing is
stored, sent to a topic or changed.

Exit codes: 0 no check failed, 1 a check failed (a warning is no failure), 2 wrong usage or settings.
"""
_DOCTOR_OPTIONS = (
    option(
        "--through",
        "address at which clients reach the tap, such as that of a load balancer: shows whether a proxy before the tap"
        " buffers",
        "URL",
    ),
    option(
        "--serve",
        "where the doctor serves its slow stream, if the upstream `doctor` leads there through a proxy; else the address of"
        " that upstream",
        "HOST:PORT",
    ),
    option("--prometheus", "address of the Prometheus server that scrapes this installation", "URL"),
    option("--check-timeout", "time limit of each check", "SECONDS", type=float, default=20.0),
    output(TEXT, JSON),
)
DOCTOR = Group(
    "doctor",
    "check what would stop an installation from working, and say how to cure it",
    _DOCTOR_EXAMPLES,
    _DOCTOR_OPTIONS,
    module="doctor",
    takes=("up", "tap", "worker"),
    commands=[
        Command(
            f"doctor {command}",
            f"check what would stop `{command}` from working, and say how to cure it",
            _DOCTOR_EXAMPLES,
            _DOCTOR_OPTIONS,
            module="doctor",
            takes=(command,),
        )
        for command in ("up", "tap", "worker")
    ],
)
ASSETS = Command(
    "assets",
    "write dashboards, alert rules and JSON Schemas of this version into a directory",
    """\
examples:
  streamgauge assets streamgauge-assets
      dashboards/grafana has the dashboards and their provisioning; dashboards/prometheus has the rules of the default
      objectives, and examples of prometheus.yml and alertmanager.yml; schemas has those of records and audits
""",
    (
        Argument(
            "directory",
            "DIR",
            "directory to write into; made if it is missing",
            required=True,
            type=click.Path(readable=False),
        ),
        switch("--overwrite", "replace files that differ"),
    ),
    module="assets",
)
