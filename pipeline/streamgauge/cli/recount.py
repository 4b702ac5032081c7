"""`streamgauge recount`: counts the output tokens of captured streams again, beside what the provider reported."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from streamgauge.cli.parser import TABLE, Arguments
from streamgauge.cli.replay import Replaying, recordings_of
from streamgauge.cli.tables import MAX_WIDTH, print_json, print_rows
from streamgauge.core.record import Record
from streamgauge.errors import DONE, FOUND, UsageFault
from streamgauge.recount.models import tokenizer_name
from streamgauge.recount.output import Outputs
from streamgauge.recount.recount import Recount, recount
from streamgauge.recount.vocabularies import MissingVocabulary, tokenizer
from streamgauge.settings.declarations import Settings

if TYPE_CHECKING:
    from streamgauge.recount.tokenizer import Tokenizer

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
    files, of_topic = recordings_of(settings, args)
    vocabularies = _Vocabularies(None if args.vocabularies is None else Path(args.vocabularies))
    outputs = Outputs(vocabularies.of)
    # Nothing is stored, so masking the text of files would only lose it. Bundles stay as their tap captured them.
    full = dataclasses.replace(settings, capture="full")
    dialect = None if args.dialect == "auto" else args.dialect
    replaying = Replaying(full, dialect, command="recount", assembler=outputs.assembler)
    recounts = _recounts(replaying.records(files, of_topic=of_topic), outputs)
    if args.output == TABLE:
        rows = [[getattr(one, field) for _, field in _COLUMNS] for one in recounts]
        if rows:
            print_rows([name for name, _ in _COLUMNS], rows, TABLE, MAX_WIDTH)
    else:
        print_json((msgspec.json.encode(one).decode() for one in recounts), args.output)
    return max(replaying.exit_code, vocabularies.report())


def _recounts(records: Iterator[Record], outputs: Outputs) -> Iterator[Recount]:
    for record in records:
        yield recount(record, outputs.take(record))


class _Vocabularies:
    """The tokenizers of models, and what was missing."""

    def __init__(self, folder: Path | None) -> None:
        if folder is not None and not folder.is_dir():
            raise UsageFault(f"--vocabularies: there is no directory {folder}")
        self._folder = folder
        self._missing: dict[str, str] = {}

    def of(self, model: str | None) -> "Tokenizer | None":
        """The tokenizer of a model; None if it has no public one, or its vocabulary is missing."""
        name = tokenizer_name(model)
        if name is None or name in self._missing:
            return None
        try:
            return tokenizer(name, self._folder)
        except MissingVocabulary as error:
            self._missing[name] = str(error)
            return None

    def report(self) -> int:
        """Prints what was missing; returns the exit code."""
        sys.stdout.flush()  # keeps the order if both streams go to one place
        for sentence in self._missing.values():
            sys.stderr.write(f"streamgauge recount: {sentence}\n")
        return FOUND if self._missing else DONE
