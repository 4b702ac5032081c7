"""Reads what providers export. A new export needs a module here and a line in FORMATS.

Every reader is strict: it raises InvoiceError for what it does not know, and guesses no unit and no currency.

contract.py    lines of an invoice, and errors
charges.py     names what is billed beside tokens
sources.py     opens files, also compressed ones and members of archives
file.py        finds the format of a file; csv_rows.py json_rows.py parquet_rows.py: its rows; values.py: their values
openai.py anthropic.py anthropic_console.py openrouter.py deepseek.py fireworks.py groq.py   the providers' exports
azure.py aws.py google.py   the bills of clouds; focus.py: FOCUS, of any provider; meters.py: what their rows count
refused.py     files that are known and are no bill
"""

from collections.abc import Iterable
from pathlib import Path

from streamgauge.audit.invoices import (
    anthropic,
    anthropic_console,
    aws,
    azure,
    deepseek,
    fireworks,
    focus,
    google,
    groq,
    openai,
    openrouter,
    refused,
)
from streamgauge.audit.invoices.contract import (
    BadTextError,
    Cost,
    Format,
    InvoiceError,
    InvoiceLine,
    Meter,
    Meters,
    Span,
)
from streamgauge.audit.invoices.file import InvoiceFile
from streamgauge.audit.invoices.sources import sources_of

# Every known export. The first whose columns or keys a file has is the file's.
FORMATS: tuple[Format, ...] = (
    *openai.FORMATS,
    *anthropic.FORMATS,
    *anthropic_console.FORMATS,
    *openrouter.FORMATS,
    *deepseek.FORMATS,
    *fireworks.FORMATS,
    *groq.FORMATS,
    *azure.FORMATS,
    *aws.FORMATS,
    *google.FORMATS,
    *focus.FORMATS,
    *refused.FORMATS,
)


def open_invoices(paths: Iterable[Path], meters: Meters, cost: Cost = "billed") -> list[InvoiceFile]:
    """The invoices at `paths`, one for each member of an archive; their lines are read later. Pages of one report may be in
    several files. `meters`: the operator's table for the rows of clouds. Raises InvoiceError for a damaged archive.
    """
    files: list[InvoiceFile] = []
    for path in paths:
        try:
            files += (InvoiceFile(source, FORMATS, meters, cost) for source in sources_of(path))
        except BadTextError as error:
            raise InvoiceError(str(path), str(error)) from None
    for file in files:
        file.others = [other for other in files if other is not file]
    return files


__all__ = [
    "FORMATS",
    "Format",
    "InvoiceError",
    "InvoiceFile",
    "InvoiceLine",
    "Meter",
    "Meters",
    "Span",
    "open_invoices",
]
