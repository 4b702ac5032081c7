"""Declarations of `topics` and `deadletter`, which read and write topics in Kafka."""

from streamgauge.cli.commands.options import option, output, switch
from streamgauge.cli.parser import JSON, JSONL, TABLE, TEXT, Argument, Command, Group

_TOPICS_EXAMPLES = """\
examples:
  streamgauge topics create --kafka broker:9092 --partitions 8
      creating again changes nothing; exit code 1: an existing topic differs
  streamgauge topics describe --kafka broker:9092
"""
TOPICS = Group(
    "topics",
    "create or describe the topics in Kafka",
    _TOPICS_EXAMPLES,
    commands=[
        Command(
            "topics create",
            "create missing topics and report how existing ones differ",
            _TOPICS_EXAMPLES,
            (output(TEXT, JSON),),
            module="topics",
        ),
        Command(
            "topics describe",
            "show the existing topics",
            _TOPICS_EXAMPLES,
            (output(TABLE, JSON, JSONL),),
            module="topics",
        ),
    ],
    kafka=True,
)
_DEADLETTER_EXAMPLES = """\
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
_FILTERS = (
    option("--stage", "only dead letters of this stage of a worker: decode, assemble, record or ledger", "NAME"),
    option("--error-class", "only dead letters of this error class, such as frame, version or schema", "NAME"),
    option("--partition", "only dead letters whose message came from this partition", "N", type=int),
    option("--since", "only dead letters of the last SECONDS seconds", "SECONDS", type=float),
)
DEADLETTER = Group(
    "deadletter",
    "list, show or send back dead letters: messages that could not be processed",
    _DEADLETTER_EXAMPLES,
    commands=[
        Command(
            "deadletter list",
            "list dead letters, oldest first",
            _DEADLETTER_EXAMPLES,
            (
                *_FILTERS,
                output(TABLE, JSON, JSONL),
                option("--limit", "print at most N dead letters, oldest first", "N", type=int),
            ),
            module="deadletter",
        ),
        Command(
            "deadletter show",
            "show one dead letter: source, reason and content",
            _DEADLETTER_EXAMPLES,
            (
                Argument(
                    "letter", "NUMBER", "number of the dead letter, from the output of `list`", required=True, type=int
                ),
                output(TEXT, JSON, JSONL, about="form of the output; json and jsonl print all bytes, in base64"),
            ),
            module="deadletter",
        ),
        Command(
            "deadletter retry",
            "send dead letters back to the topic that they came from",
            _DEADLETTER_EXAMPLES,
            (
                Argument("letters", "NUMBER", "numbers from the output of `list`", many=True, type=int),
                switch("--all", "every dead letter that matches the filters"),
                *_FILTERS,
                switch("--dry-run", "print what would be sent back, but send nothing"),
                output(TEXT, JSON),
            ),
            module="deadletter",
        ),
    ],
    kafka=True,
)
