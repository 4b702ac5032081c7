"""`streamgauge recount`: counts the output tokens of captured streams again, beside what the provider reported."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from streamgauge.cli.parser import TABLE, Arguments
from streamgauge.cli.replay import Replaying, recordings_of
from streamgauge.cli.tables import MAX_WIDTH, print_json, print_rows
from streamgauge.core.record import Record
from streamgauge.errors import DONE, FOUND, UsageFault
from streamgauge.recount.output import Outputs
from streamgauge.recount.recount import Recount, recount
from streamgauge.recount.vocabularies import Tokenizers
from streamgauge.settings.declarations import Settings
from streamgauge.spool.text_store import TEXTS

# Columns of the table: what fits a terminal. JSON has all fields.
_COLUMNS = (
    ("stream_id", "stream_id"),
    ("model", "model"),
    ("tokenizer", "tokenizer"),
    ("reported", "output_tokens_reported"),
    ("recounted", "output_tokens_recounted"),
    ("difference", "difference"),
    ("low", "low"),
    ("high", "high"),
)


def run(settings: Settings, args: Arguments) -> int:
    """Prints a recount for each record that `replay` would print, in the same order.

    Returns 1 if a vocabulary is missing; otherwise as `replay` does.
    """
    texts = settings.data_dir / TEXTS
    if not args.paths and settings.kafka is None and texts.is_file():
        files, of_topic = [texts], False
    elif not args.paths and settings.kafka is None:
        raise UsageFault(
            f"nothing to recount: name files or directories, or a broker with --kafka; {texts} would have the texts of "
            "`up --capture full --text-age SECONDS`"
        )
    else:
        files, of_topic = recordings_of(settings, args)
    folder = None if args.vocabularies is None else Path(args.vocabularies)
    if folder is not None and not folder.is_dir():
        raise UsageFault(f"--vocabularies: there is no directory {folder}")
    tokenizers = Tokenizers(folder, [(file.model, file.path) for file in settings.tokenizer])
    outputs = Outputs(tokenizers.of)
    # Nothing is stored, so masking the text of files would only lose it. Bundles stay as their tap captured them.
    full = dataclasses.replace(settings, capture="full")
    dialect = None if args.dialect == "auto" else args.dialect
    replaying = Replaying(full, dialect, command="recount", assembler=outputs.assembler)
    recounts = _recounts(replaying.records(files, of_topic=of_topic), outputs, tokenizers)
    if args.output == TABLE:
        rows = [[getattr(line, field) for _, field in _COLUMNS] for line in recounts]
        if rows:
            print_rows([name for name, _ in _COLUMNS], rows, TABLE, MAX_WIDTH)
    else:
        print_json((msgspec.json.encode(line).decode() for line in recounts), args.output)
    sys.stdout.flush()  # keeps the order if both streams go to one place
    for sentence in tokenizers.missing.values():
        sys.stderr.write(f"streamgauge recount: {sentence}\n")
    return max(replaying.exit_code, FOUND if tokenizers.missing else DONE)


def _recounts(records: Iterator[Record], outputs: Outputs, tokenizers: Tokenizers) -> Iterator[Recount]:
    for record in records:
        yield recount(record, outputs.take(record), tokenizers.name_of)
