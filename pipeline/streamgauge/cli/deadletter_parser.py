"""The options of `streamgauge deadletter`."""

import argparse

# Options that are not settings.
NOT_SETTINGS = {"letter", "letters", "stage", "error_class", "partition", "since", "all", "dry_run"}

EPILOG = """\
examples:
  streamgauge deadletter list --kafka broker:9092 --since 3600
  streamgauge deadletter list --kafka broker:9092 --output jsonl | jq .error_class
  streamgauge deadletter show 12 --kafka broker:9092
  streamgauge deadletter retry 12 13 --kafka broker:9092
  streamgauge deadletter retry --all --error-class version --dry-run --kafka broker:9092
The number of a dead letter is its offset in the dead letter topic. A dead letter that is sent back also stays in that topic
until retention deletes it.
"""


def list_options(parser: argparse.ArgumentParser) -> None:
    """Adds the filters of `list` and its output options."""
    _filters(parser)
    parser.add_argument("--output", choices=["table", "jsonl"], default="table")
    parser.add_argument("--limit", type=int, metavar="N", help="print at most N dead letters, oldest first")


def show_options(parser: argparse.ArgumentParser) -> None:
    """Adds the number of one dead letter."""
    parser.add_argument(
        "letter", type=int, metavar="NUMBER", help="number of the dead letter, from the output of `list`"
    )
    parser.add_argument("--output", choices=["text", "jsonl"], default="text", help="jsonl prints all bytes, in base64")


def retry_options(parser: argparse.ArgumentParser) -> None:
    """Adds the selection of `retry`, and --dry-run."""
    parser.add_argument("letters", type=int, nargs="*", metavar="NUMBER", help="numbers from the output of `list`")
    parser.add_argument("--all", action="store_true", help="every dead letter that matches the filters")
    _filters(parser)
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent back, but send nothing")


def _filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stage", metavar="NAME", help="only this stage: decode, assemble, record or ledger")
    parser.add_argument("--error-class", metavar="NAME", help="only this error class, such as frame, version or schema")
    parser.add_argument("--partition", type=int, metavar="N", help="only messages that came from this partition")
    parser.add_argument("--since", type=float, metavar="SECONDS", help="only dead letters of the last SECONDS seconds")
