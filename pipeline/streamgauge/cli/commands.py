"""Every command: its words, module, sentence, examples, and the options that are not settings.

The options that are settings are declared in `streamgauge.config`. The parser (`parser.py`), the help (`help_text.py`) and
shell completion are made from both tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from streamgauge.config import SETTINGS
from streamgauge.setting_types import Setting

# How a command prints rows. json: one JSON document; jsonl: one JSON document a line.
TABLE, CSV, TEXT, JSON, JSONL = "table", "csv", "text", "json", "jsonl"


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
        """Its name in the parsed arguments."""
        return self.name.lstrip("-").replace("-", "_")

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


EPILOG = """\
examples:
  streamgauge demo
      shows what is measured, without an API key
  streamgauge up --upstream openai=https://api.openai.com
      then set the base URL of clients to http://127.0.0.1:8080/openai/v1
  streamgauge ledger query --newest --limit 10
      the latest records that `up` or a worker stored
  streamgauge replay recording.sse

`streamgauge COMMAND --help` shows the options of a command.

Each setting is an option, a variable STREAMGAUGE_<NAME> of the environment, and a key of the settings file
(--config FILE, TOML): --spool-age is STREAMGAUGE_SPOOL_AGE and spool_age. An option comes before a variable, a variable
before the file. The sections Arguments and Options of a command's help list what is no setting.

Exit codes: 0 success, 1 finished and found a problem, 2 wrong usage or settings, 3 a required service is unavailable,
70 internal error, 75 a worker was stuck, 130 ended by Ctrl-C. A second signal ends a command at once, with 128 + its
number.
"""

_UP_EPILOG = """\
examples:
  streamgauge up --upstream openai=https://api.openai.com
      clients use http://127.0.0.1:8080/openai/v1
  streamgauge up --upstream http://127.0.0.1:8000 --listen 0.0.0.0:8080
      a single upstream without a name: clients use the upstream's own paths
  streamgauge up --agent
      no proxy: receives what the httpx and ASGI integrations capture in applications with the same --data-dir

Metrics are at http://127.0.0.1:9464/metrics. `streamgauge ledger query` prints the records.
"""

_TAP_EPILOG = """\
examples:
  streamgauge topics create --kafka broker:9092
      once, before the first tap and worker
  streamgauge tap --upstream openai=https://api.openai.com --kafka broker:9092
      clients use http://127.0.0.1:8080/openai/v1
  streamgauge tap --agent --kafka broker:9092
      no proxy: receives what the httpx and ASGI integrations capture in applications with the same --data-dir

A tap forwards traffic also while no broker is available. `streamgauge worker` makes the records.
"""

_PACKETS_EPILOG = """\
examples:
  streamgauge up packets --interface lo --port 8000
      records the responses of a server on this host, without Kafka
  streamgauge tap packets --interface eth0 --port vllm=8000 --kafka broker:9092
  streamgauge tap packets --pcap capture.pcap --kafka broker:9092
      `streamgauge replay capture.pcap` prints the records of a file without a broker

An interface requires Linux and the capability CAP_NET_RAW. Only plain HTTP/1.1 can be read: run it on the host of the model
server, or where TLS has ended.
"""

_WORKER_EPILOG = """\
example:
  streamgauge worker --kafka broker:9092 --data-dir /var/lib/streamgauge

Metrics are at http://127.0.0.1:9465/metrics. `streamgauge ledger query` with the same --data-dir prints the records. Workers
share the partitions of the topics: start at most one for each partition.
"""

_REPLAY_EPILOG = """\
examples:
  streamgauge replay recording.sse
  streamgauge replay recordings/ --output jsonl > records.jsonl
  streamgauge replay session.har tests/cassettes/ dump.flow capture.pcap
  streamgauge replay ~/.local/state/streamgauge/spool.sqlite
      what a tap captured and has not delivered
  streamgauge replay --kafka broker:9092
      what taps sent to Kafka and the topic still holds

Prints one record for each response body and each LLM exchange, in the order of the arguments (files of a directory by path),
then the records of what taps sent to Kafka.

Exit code 1: a file is damaged; all other files are replayed.
"""

_DEMO_EPILOG = """\
examples:
  streamgauge demo
      plays every scenario once, prints a summary, and exits with 0 if all results are as expected
  streamgauge demo --serve
      repeats the scenarios until Ctrl-C, so that you can look at the metrics
"""

LEDGER_EPILOG = """\
examples:
  streamgauge ledger query --newest --limit 20
      the latest records, as a table
  streamgauge ledger query --by tenant,model --since 2026-11-01
      totals of tokens since November by tenant and model
  streamgauge ledger query --where outcome=truncated --where tenant=river
  streamgauge ledger query --output jsonl | jq .outcome

Keys for --by and --where: day, model, request_model, response_model, tap, upstream, dialect, endpoint, outcome,
finish_reason, tenant, credential_id, service_tier, usage_source, request_digest, attempt, response_id, resumed_from.
The attributes of records (--attribute of `up` and `tap`) are keys, too.

Totals: with_usage counts the streams that reported usage; a stream without usage adds nothing to the token sums.
input_tokens includes input_cached_tokens, output_tokens includes reasoning_tokens. A sum is null (an empty cell) if no
stream reported that number. Tokens of a resumed stream count once, in the group of the stream's first record.

If two taps capture one request, it has two records: select one tap with --where tap=NAME.
"""

_TOPICS_EPILOG = """\
examples:
  streamgauge topics create --kafka broker:9092 --partitions 8
      creating again changes nothing; exit code 1: an existing topic differs
  streamgauge topics describe --kafka broker:9092
"""

_DEADLETTER_EPILOG = """\
examples:
  streamgauge deadletter list --kafka broker:9092 --since 3600
      the last hour
  streamgauge deadletter show 12 --kafka broker:9092
  streamgauge deadletter retry 12 13 --kafka broker:9092
  streamgauge deadletter retry --all --dry-run --kafka broker:9092
      prints what would be sent back

A dead letter is a message that a worker could not decode or process. Its number is its offset in the dead letter topic. A
dead letter that is sent back also stays in that topic until retention deletes it.
"""

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
_QUERY = (
    output(TABLE, JSON, JSONL, CSV),
    Option("--limit", "print at most the first N lines", "N", int),
    Option(
        "--newest",
        "print the newest first: records by started_at, totals by their latest record; else records come oldest first, "
        "totals sorted by key",
        kind=bool,
    ),
    Option("--by", "print totals for each value of these keys, such as day, model or tenant", "KEY[,KEY...]"),
    Option(
        "--since",
        "only records that started at TIME or later: a UTC date (2026-11-01) or RFC 3339 (2026-11-01T09:30:00Z)",
        "TIME",
    ),
    Option(
        "--until",
        "only records that started before TIME; --since and --until exclude records without started_at",
        "TIME",
    ),
    Option(
        "--where",
        "only records with this value (KEY= for null); repeatable: all keys must match, each with any of its values",
        "KEY=VALUE",
        repeatable=True,
    ),
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


def _packets(command: str) -> Command:
    about = f"like `{command}`, with packets of an interface or a file instead of the proxy"
    return Command(f"{command} packets", "packets", about, _PACKETS_EPILOG)


COMMANDS = {
    command.path: command
    for command in (
        Command(
            "up",
            "up",
            "run everything on one host, without Kafka: proxy, metrics, records",
            _UP_EPILOG,
            (_AGENT,),
        ),
        _packets("up"),
        Command("tap", "tap", "run the proxy, and send what it captures to Kafka", _TAP_EPILOG, (_AGENT, _CHILD)),
        _packets("tap"),
        Command("worker", "worker", "make records and metrics of what taps sent to Kafka", _WORKER_EPILOG),
        Command(
            "replay",
            "replay",
            "make records of recorded streams: SSE, HAR, cassettes, packet captures",
            _REPLAY_EPILOG,
            (
                _RECORDINGS,
                Option(
                    "--dialect",
                    "API format of the files; auto: each content shows it",
                    "NAME",
                    default="auto",
                    choices=_dialects,
                ),
                output(TABLE, JSON, JSONL),
            ),
        ),
        Command(
            "demo",
            "demo",
            "send simulated traffic through a real proxy, and check the records",
            _DEMO_EPILOG,
            (Option("--serve", "repeat the scenarios until Ctrl-C", kind=bool), output(TABLE, JSON)),
        ),
        Command("ledger query", "ledger", "print records, or totals of streams and tokens", LEDGER_EPILOG, _QUERY),
        Command(
            "topics create",
            "topics",
            "create missing topics and report how existing ones differ",
            _TOPICS_EPILOG,
            (output(TEXT, JSON),),
        ),
        Command("topics describe", "topics", "show the existing topics", _TOPICS_EPILOG, (output(TABLE, JSON, JSONL),)),
        Command("deadletter list", "deadletter", "list dead letters, oldest first", _DEADLETTER_EPILOG, _LIST),
        Command(
            "deadletter show",
            "deadletter",
            "show one dead letter: source, reason and content",
            _DEADLETTER_EPILOG,
            _SHOW,
        ),
        Command(
            "deadletter retry",
            "deadletter",
            "send dead letters back to the topic that they came from",
            _DEADLETTER_EPILOG,
            _RETRY,
        ),
    )
}
GROUPS = {
    group.path: group
    for group in (
        Group("ledger", "print stored records, or totals of tokens by team, model, day, ...", LEDGER_EPILOG),
        Group("topics", "create or describe the topics in Kafka", _TOPICS_EPILOG),
        Group(
            "deadletter",
            "list, show or send back dead letters: messages that could not be processed",
            _DEADLETTER_EPILOG,
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
