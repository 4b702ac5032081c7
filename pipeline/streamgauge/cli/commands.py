"""Every command: its words, module, sentence, examples, and the options that are not settings.

The options that are settings are declared in `streamgauge.config`. The parser (`parser.py`), the help (`help_text.py`) and
shell completion are made from both tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from streamgauge.cli import epilogs, ledger_epilogs
from streamgauge.config import SETTINGS
from streamgauge.setting_types import Setting

# How a command prints rows. json: one JSON document; jsonl: one JSON document a line.
TABLE, CSV, TEXT, JSON, JSONL, HTML = "table", "csv", "text", "json", "jsonl", "html"


@dataclass(frozen=True)
class Option:
    """An option that is not a setting, or an argument (its name does not begin with a dash).

    `kind`: str, int, float, or bool for a switch; `choices`: the allowed words, or a function that gives them, for those
    whose modules take time to import; `repeatable`: the value is a list.
    """

    name: str
    about: str
    metavar: str = ""
    kind: type = str
    default: object = None
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    repeatable: bool = False
    required: bool = False
    hidden: bool = False

    @property
    def key(self) -> str:
        """Its name in the parsed arguments; a word of Python (--from) gets an underscore after it."""
        name = self.name.lstrip("-").replace("-", "_")
        return f"{name}_" if iskeyword(name) else name

    @property
    def is_argument(self) -> bool:
        """Whether it is given by its position."""
        return not self.name.startswith("-")

    def words(self) -> tuple[str, ...]:
        """Every allowed word; empty if any is allowed."""
        return self.choices() if callable(self.choices) else self.choices


@dataclass(frozen=True)
class Command:
    """A command that runs `streamgauge.cli.<module>`. `path`: its words; `epilog`: examples and notes."""

    path: str
    module: str
    about: str
    epilog: str
    options: tuple[Option, ...] = ()

    @property
    def settings(self) -> list[Setting]:
        """The settings that it has an option for."""
        return [setting for setting in SETTINGS.values() if self.path in setting.commands]


@dataclass(frozen=True)
class Group:
    """A word whose second word is the command."""

    path: str
    about: str
    epilog: str


class Arguments(SimpleNamespace):
    """What was written on the command line: the options that are not settings, as attributes, and these.

    `command`: the word or words that messages begin with; `action`: the second word; `settings`: the given settings, by
    name, as text or list of text.
    """

    command: str
    action: str
    module: str
    config: Path | None
    settings: dict[str, Any]


CONFIG = Option("--config", "settings file (TOML); or set STREAMGAUGE_CONFIG in the environment", "FILE")


def output(*choices: str) -> Option:
    """The option that selects the form of the output; its first choice is the default."""
    return Option("--output", "form of the output", "FORM", default=choices[0], choices=choices)


def _dialects() -> tuple[str, ...]:
    from streamgauge.core.dialects import BY_NAME  # decoders take time to import

    return ("auto", *BY_NAME)


_AGENT = Option(
    "--agent", "run no proxy: receive what the httpx and ASGI integrations capture in applications", kind=bool
)
# For taps in applications: the agent ends when its stdin ends.
_CHILD = Option("--child", "end when stdin ends", kind=bool, hidden=True)
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
_MONTH = Option("--month", "only records that started in this month, as in 2026-11", "MONTH")
_TIMEZONE = Option("--timezone", "time zone of days and months, as in Europe/Berlin", "ZONE", default="UTC")
_CHOSEN = (
    Option(
        "--since",
        "only records that started at TIME or later: a date (2026-11-01) or RFC 3339 (2026-11-01T09:30:00Z)",
        "TIME",
    ),
    Option(
        "--until",
        "only records that started before TIME; --since and --until exclude records without started_at",
        "TIME",
    ),
    _MONTH,
    _TIMEZONE,
    Option(
        "--where",
        "only records with this value (KEY= for null); repeatable: all keys must match, each with any of its values",
        "KEY=VALUE",
        repeatable=True,
    ),
)
_QUERY = (
    output(TABLE, JSON, JSONL, CSV),
    Option("--limit", "print at most the first N lines", "N", int),
    Option(
        "--newest",
        "print the newest first: records by started_at, totals by their latest record; else records come oldest first, "
        "totals sorted by key",
        kind=bool,
    ),
    Option("--by", "print totals for each value of these keys, such as month, model or tenant", "KEY[,KEY...]"),
    *_CHOSEN,
)
_EXPORT = (
    Option("file", "file to write; - for stdout", "FILE", required=True),
    output(JSONL, CSV, "parquet"),
    *_CHOSEN,
)
_IMPORT = (Option("paths", "files with one record a line; - for stdin", "FILE", repeatable=True),)
_BUDGETS = (
    Option("file", "TOML file of budgets", "FILE", required=True),
    output(TABLE, JSON, JSONL, CSV),
    _MONTH,
    _TIMEZONE,
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
_AUDIT = (
    Option(
        "--invoice",
        "what the provider exported, JSON or CSV; repeatable: all files of a provider are one invoice",
        "FILE",
        repeatable=True,
    ),
    Option("--from", "first day of the period, such as 2026-11-01", "DATE"),
    Option("--to", "day after the last one of the period", "DATE"),
    Option("--timezone", "time zone of the days, such as Europe/Berlin", "NAME", default="UTC"),
    Option("--map", "TOML file: providers of upstreams, keys of tenants, meters of FOCUS", "FILE"),
    Option("--tolerance-tokens", "tokens that may stay unexplained", "N", int, default=0),
    Option(
        "--tolerance-usd", "dollars that may stay unexplained, besides what an export rounds", "USD", default="0.01"
    ),
    Option("--settle-days", "days after the period until it may be closed; earlier results are preliminary", "N", int),
    Option("--save", "keep the result in the ledger, with digests of records and invoices", kind=bool),
    output(TABLE, JSON, CSV, HTML),
)
_RUN = Option("number", "number of a kept run, from the output of `audit list`", "RUN", int)
_RUN_PAIR = Option(
    "numbers", "numbers of two kept runs of one period, the earlier one first", "RUN", int, repeatable=True
)


_TOP = (
    Option("address", "admin port of `up`, `tap`, `worker` or `demo`", "HOST:PORT", default="127.0.0.1:9464"),
    Option("--once", "print once, and end", kind=bool),
    Option("--interval", "seconds between updates", "SECONDS", float, default=2.0),
    output(TABLE, JSON),
)


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
        Command(
            "tap", "tap", "run the proxy, and send what it captures to Kafka", epilogs.TAP_EPILOG, (_AGENT, _CHILD)
        ),
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
            "count the output tokens of captured streams again, beside what providers reported",
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
            _QUERY,
        ),
        Command(
            "ledger export",
            "ledger_export",
            "write records as JSON lines, CSV or Parquet",
            ledger_epilogs.EXPORT_EPILOG,
            _EXPORT,
        ),
        Command(
            "ledger import",
            "ledger_import",
            "store records of files, such as those of `replay`",
            ledger_epilogs.IMPORT_EPILOG,
            _IMPORT,
        ),
        Command(
            "ledger budgets",
            "ledger_budgets",
            "show what budgets have spent this month, with a forecast",
            ledger_epilogs.BUDGETS_EPILOG,
            _BUDGETS,
        ),
        Command("audit", "audit", "hold the ledger against what providers bill", epilogs.AUDIT_EPILOG, _AUDIT),
        Command("audit list", "audit", "list the kept runs", epilogs.AUDIT_EPILOG, (output(TABLE, JSON, CSV),)),
        Command("audit show", "audit", "show a kept run", epilogs.AUDIT_EPILOG, (_RUN, output(TABLE, JSON, CSV, HTML))),
        Command(
            "audit diff",
            "audit",
            "compare two kept runs of one period",
            epilogs.AUDIT_EPILOG,
            (_RUN_PAIR, output(TABLE, JSON, CSV)),
        ),
        Command(
            "rules generate",
            "rules",
            "print alert and recording rules for Prometheus, for your objectives",
            epilogs.RULES_EPILOG,
            _RULES,
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
