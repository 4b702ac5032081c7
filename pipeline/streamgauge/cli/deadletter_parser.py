"""The options of `streamgauge deadletter`."""

import argparse

# What is no setting of them all.
NOT_SETTINGS = {"letter", "letters", "stage", "error_class", "partition", "since", "all", "dry_run"}

EPILOG = """\
examples:
  streamgauge deadletter list --kafka broker:9092 --since 3600
  streamgauge deadletter list --kafka broker:9092 --output jsonl | jq .error_class
  streamgauge deadletter show 12 --kafka broker:9092
  streamgauge deadletter retry 12 13 --kafka broker:9092
  streamgauge deadletter retry --all --error-class version --dry-run --kafka broker:9092
A letter's number is its offset in the dead letter topic. What is sent back stays there too, until retention takes it.
"""


def list_options(parser: argparse.ArgumentParser) -> None:
    """Which letters, and how they are printed."""
    _filters(parser)
    parser.add_argument("--output", choices=["table", "jsonl"], default="table")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N letters, the oldest first")


def show_options(parser: argparse.ArgumentParser) -> None:
    """One letter."""
    parser.add_argument("letter", type=int, metavar="LETTER", help="its number, as `list` prints it")
    parser.add_argument(
        "--output", choices=["text", "jsonl"], default="text", help="jsonl has the bytes whole, in base64"
    )


def retry_options(parser: argparse.ArgumentParser) -> None:
    """Which letters, and whether it is meant."""
    parser.add_argument("letters", type=int, nargs="*", metavar="LETTER", help="their numbers, as `list` prints them")
    parser.add_argument("--all", action="store_true", help="every letter that the filters leave")
    _filters(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what would be sent back, and send nothing")


def _filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stage", metavar="NAME", help="decode, assemble, record or ledger")
    parser.add_argument("--error-class", metavar="NAME", help="as frame, version, schema")
    parser.add_argument("--partition", type=int, metavar="N", help="that the message came from")
    parser.add_argument("--since", type=float, metavar="SECONDS", help="that came within so many seconds before now")
