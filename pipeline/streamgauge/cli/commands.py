"""Every command: its words, module, sentence, examples, and the options that are not settings.

Settings are declared in `settings/declarations.py`. The parser (`parser.py`), the help (`help_text.py`) and shell completion
are made from both tables.
"""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from streamgauge.cli import epilogs, ledger_epilogs, settings_epilogs
from streamgauge.cli.ledger_options import AUDIT, BUDGETS, EXPORT, IMPORT, QUERY, RUN, RUN_PAIR
from streamgauge.cli.options import CSV, HTML, JSON, JSONL, TABLE, TEXT, Option, output
from streamgauge.settings.declarations import SETTINGS
from streamgauge.settings.types import Setting


@dataclass(frozen=True)
class Command:
    """A command that runs `streamgauge.cli.<module>`. `path`: its words; `epilog`: examples and notes.

    `takes`: the commands whose settings are options of this one, too; `loads`: whether it needs the settings.
    """

    path: str
    module: str
    about: str
    epilog: str
    options: tuple[Option, ...] = ()
    takes: tuple[str, ...] = ()
    loads: bool = True

    @property
    def settings(self) -> list[Setting]:
        """The settings that it has an option for."""
        paths = {self.path, *self.takes}
        return [setting for setting in SETTINGS.values() if not paths.isdisjoint(setting.commands)]


@dataclass(frozen=True)
class Group:
    """A word whose second word is the command."""

    path: str
    about: str
    epilog: str


class Arguments(SimpleNamespace):
    """What was written on the command line: the options that are not settings, as attributes, and these.

    `command`: the word or words that messages begin with; `action`: the second word; `serves`: the commands whose
    settings it uses; `loads`: whether it needs the settings; `settings`: the given settings, by name, as text or list of
    text.
    """

    command: str
    action: str
    serves: tuple[str, ...]
    module: str
    loads: bool
    config: Path | None
    settings: dict[str, Any]


HELP = ("-h", "--help")
CONFIG = Option("--config", "settings file (TOML); or set STREAMGAUGE_CONFIG in the environment", "FILE")


def _dialects() -> tuple[str, ...]:
    from streamgauge.core.dialects import BY_NAME  # decoders take time to import

    return ("auto", *BY_NAME)


_AGENT = Option(
    "--agent", "run no proxy: receive what the httpx and ASGI integrations capture in applications", kind=bool
)
_RECORDINGS = Option(
    "paths",
    "response bodies, HAR files, vcrpy cassettes, mitmproxy flows, packet captures or a tap's spool; the content shows which",
    "FILE|DIR",
    repeatable=True,
)
_DIALECT = Option(
    "--dialect",
    "API format of the files; auto: each content shows it",
    "NAME",
    default="auto",
    choices=_dialects,
)
_FILTERS = (
    Option("--stage", "only dead letters of this stage of a worker: decode, assemble, record or ledger", "NAME"),
    Option("--error-class", "only dead letters of this error class, such as frame, version or schema", "NAME"),
    Option("--partition", "only dead letters whose message came from this partition", "N", int),
    Option("--since", "only dead letters of the last SECONDS seconds", "SECONDS", float),
)
_LIST = (
    *_FILTERS,
    output(TABLE, JSON, JSONL),
    Option("--limit", "print at most N dead letters, oldest first", "N", int),
)
_SHOW = (
    Option("letter", "number of the dead letter, from the output of `list`", "NUMBER", int, required=True),
    Option(
        "--output",
        "form of the output; json and jsonl print all bytes, in base64",
        "FORM",
        default=TEXT,
        choices=(TEXT, JSON, JSONL),
    ),
)
_RETRY = (
    Option("letters", "numbers from the output of `list`", "NUMBER", int, repeatable=True),
    Option("--all", "every dead letter that matches the filters", kind=bool),
    *_FILTERS,
    Option("--dry-run", "print what would be sent back, but send nothing", kind=bool),
    output(TEXT, JSON),
)
_RULES = (
    Option("--objective", "an objective that differs from its default; repeatable", "NAME=NUMBER", repeatable=True),
    Option(
        "--runbooks",
        "address below which the pages of docs/runbooks are published, for the links of alerts",
        "URL",
        default="docs/runbooks",
    ),
    Option(
        "--output",
        "form of the output: rules for Prometheus, or a specification of the objectives for Sloth",
        "FORM",
        default="prometheus",
        choices=("prometheus", "sloth"),
    ),
)
_SETTINGS_OF = Option(
    "of",
    "command whose settings are shown; without it all settings",
    "COMMAND",
    repeatable=True,
)
_SETTINGS_FILES = Option("paths", "settings files (TOML)", "FILE", repeatable=True, required=True)
_DOCTOR = (
    Option(
        "--through",
        "address at which clients reach the tap, such as that of a load balancer: shows whether a proxy before the tap"
        " buffers",
        "URL",
    ),
    Option(
        "--serve",
        "where the doctor serves its slow stream, if the upstream `doctor` leads there through a proxy; else the address of"
        " that upstream",
        "HOST:PORT",
    ),
    Option("--prometheus", "address of the Prometheus server that scrapes this installation", "URL"),
    Option("--check-timeout", "time limit of each check", "SECONDS", float, default=20.0),
    output(TEXT, JSON),
)
_ASSETS = (
    Option("directory", "directory to write into; made if it is missing", "DIR", required=True),
    Option("--overwrite", "replace files that differ", kind=bool),
)
_TOP = (
    Option(
        "address",
        "admin port of `up`, `tap`, `worker` or `demo`; https://HOST:PORT with TLS",
        "HOST:PORT",
        default="127.0.0.1:9464",
    ),
    Option("--once", "print once, and end", kind=bool),
    Option("--interval", "seconds between updates", "SECONDS", float, default=2.0),
    output(TABLE, JSON),
)


def _doctor(*commands: str) -> Command:
    """The checks of one command; of several: of the one that the settings fit."""
    alone = len(commands) == 1
    of = f"`{commands[0]}`" if alone else "an installation"
    about = f"check what would stop {of} from working, and say how to cure it"
    path = f"doctor {commands[0]}" if alone else "doctor"
    return Command(path, "doctor", about, settings_epilogs.DOCTOR_EPILOG, _DOCTOR, commands)


def _packets(command: str) -> Command:
    about = f"like `{command}`, with packets of an interface or a file instead of the proxy"
    return Command(f"{command} packets", "packets", about, epilogs.PACKETS_EPILOG)


COMMANDS = {
    command.path: command
    for command in (
        Command(
            "up",
            "up",
            "run everything on one host, without Kafka: proxy, metrics, records",
            epilogs.UP_EPILOG,
            (_AGENT,),
        ),
        _packets("up"),
        Command("tap", "tap", "run the proxy, and send what it captures to Kafka", epilogs.TAP_EPILOG, (_AGENT,)),
        _packets("tap"),
        Command("worker", "worker", "make records and metrics of what taps sent to Kafka", epilogs.WORKER_EPILOG),
        Command("top", "top", "show the open streams of a running process, in the terminal", epilogs.TOP_EPILOG, _TOP),
        Command(
            "replay",
            "replay",
            "make records of recorded streams: SSE, HAR, cassettes, packet captures",
            epilogs.REPLAY_EPILOG,
            (
                _RECORDINGS,
                _DIALECT,
                output(TABLE, JSON, JSONL),
            ),
        ),
        Command(
            "recount",
            "recount",
            "count output tokens of captured streams again, beside what providers reported",
            epilogs.RECOUNT_EPILOG,
            (
                _RECORDINGS,
                _DIALECT,
                Option("--vocabularies", "directory with published vocabulary files, searched before packages", "DIR"),
                output(TABLE, JSON, JSONL),
            ),
        ),
        Command(
            "demo",
            "demo",
            "send simulated traffic through a real proxy, and check the records",
            epilogs.DEMO_EPILOG,
            (Option("--serve", "repeat the scenarios until Ctrl-C", kind=bool), output(TABLE, JSON)),
        ),
        Command(
            "ledger query",
            "ledger",
            "print records, or totals of streams, tokens and cost",
            ledger_epilogs.QUERY_EPILOG,
            QUERY,
        ),
        Command(
            "ledger export",
            "ledger_export",
            "write records as JSON lines, CSV or Parquet",
            ledger_epilogs.EXPORT_EPILOG,
            EXPORT,
        ),
        Command(
            "ledger import",
            "ledger_import",
            "store records of files, such as those of `replay`",
            ledger_epilogs.IMPORT_EPILOG,
            IMPORT,
        ),
        Command(
            "ledger budgets",
            "ledger_budgets",
            "show what budgets have spent this month, with a forecast",
            ledger_epilogs.BUDGETS_EPILOG,
            BUDGETS,
        ),
        Command("audit", "audit", "hold the ledger against what providers bill", epilogs.AUDIT_EPILOG, AUDIT),
        Command("audit list", "audit", "list the kept runs", epilogs.AUDIT_EPILOG, (output(TABLE, JSON, CSV),)),
        Command("audit show", "audit", "show a kept run", epilogs.AUDIT_EPILOG, (RUN, output(TABLE, JSON, CSV, HTML))),
        Command(
            "audit diff",
            "audit",
            "compare two kept runs of one period",
            epilogs.AUDIT_EPILOG,
            (RUN_PAIR, output(TABLE, JSON, CSV)),
        ),
        Command(
            "rules generate",
            "rules",
            "print alert and recording rules for Prometheus, for your objectives",
            epilogs.RULES_EPILOG,
            _RULES,
        ),
        Command(
            "config show",
            "settings",
            "print the settings of a command, and where each value comes from",
            settings_epilogs.CONFIG_EPILOG,
            (_SETTINGS_OF, output(TABLE, JSON)),
            takes=tuple(dict.fromkeys(command for setting in SETTINGS.values() for command in setting.commands)),
        ),
        Command(
            "config check",
            "settings",
            "report every fault of a settings file, and start nothing",
            settings_epilogs.CONFIG_EPILOG,
            (_SETTINGS_FILES, output(TEXT, JSON)),
            loads=False,
        ),
        _doctor("up", "tap", "worker"),
        _doctor("up"),
        _doctor("tap"),
        _doctor("worker"),
        Command(
            "assets",
            "assets",
            "write dashboards, alert rules and JSON Schemas of this version into a directory",
            epilogs.ASSETS_EPILOG,
            _ASSETS,
        ),
        Command(
            "topics create",
            "topics",
            "create missing topics and report how existing ones differ",
            epilogs.TOPICS_EPILOG,
            (output(TEXT, JSON),),
        ),
        Command(
            "topics describe",
            "topics",
            "show the existing topics",
            epilogs.TOPICS_EPILOG,
            (output(TABLE, JSON, JSONL),),
        ),
        Command("deadletter list", "deadletter", "list dead letters, oldest first", epilogs.DEADLETTER_EPILOG, _LIST),
        Command(
            "deadletter show",
            "deadletter",
            "show one dead letter: source, reason and content",
            epilogs.DEADLETTER_EPILOG,
            _SHOW,
        ),
        Command(
            "deadletter retry",
            "deadletter",
            "send dead letters back to the topic that they came from",
            epilogs.DEADLETTER_EPILOG,
            _RETRY,
        ),
    )
}
GROUPS = {
    group.path: group
    for group in (
        Group(
            "ledger", "print, export or import records; totals of tokens and cost by team", ledger_epilogs.QUERY_EPILOG
        ),
        Group("config", "print settings and their sources, or check a settings file", settings_epilogs.CONFIG_EPILOG),
        Group("rules", "print alert and recording rules for Prometheus", epilogs.RULES_EPILOG),
        Group("topics", "create or describe the topics in Kafka", epilogs.TOPICS_EPILOG),
        Group(
            "deadletter",
            "list, show or send back dead letters: messages that could not be processed",
            epilogs.DEADLETTER_EPILOG,
        ),
    )
}


def second_words(first: str) -> list[str]:
    """The second words of the commands that begin with this word."""
    return [path.partition(" ")[2] for path in COMMANDS if path.startswith(f"{first} ")]


def first_words() -> dict[str, str]:
    """The first word of every command, with its sentence, in the order of the help."""
    known = {path: command.about for path, command in COMMANDS.items()}
    firsts = dict.fromkeys(path.partition(" ")[0] for path in COMMANDS)
    return {first: known.get(first) or GROUPS[first].about for first in firsts}


def options_of(path: str) -> list[Option | Setting]:
    """The options and arguments of a command, in the order of the help; none if there is no such command."""
    command = COMMANDS.get(path)
    return [*command.options, CONFIG, *command.settings] if command else []


def flags_of(one: Option | Setting) -> tuple[str, ...]:
    """The words that are written for an option."""
    return (one.name,) if isinstance(one, Option) else (one.flag, *one.aliases)


def is_switch(one: Option | Setting) -> bool:
    """Whether an option has no value."""
    return one.kind is bool if isinstance(one, Option) else one.type.is_switch


def is_argument(one: Option | Setting) -> bool:
    """Whether it is an argument, which is given by its position."""
    return isinstance(one, Option) and one.is_argument
