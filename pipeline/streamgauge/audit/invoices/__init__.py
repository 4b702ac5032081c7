"""Reads what providers export. A new export needs a module here and a line in FORMATS.

Every reader is strict: it raises InvoiceError for what it does not know, and guesses no unit and no currency.

contract.py    lines of an invoice, and errors
charges.py     names what is billed beside tokens
file.py        finds the format of a file; csv_rows.py and json_rows.py: its rows; values.py: their values
openai.py anthropic.py anthropic_console.py openrouter.py   the providers' exports
focus.py       FOCUS, of any provider
"""

from pathlib import Path

from streamgauge.audit.invoices import anthropic, anthropic_console, focus, openai, openrouter
from streamgauge.audit.invoices.contract import Format, InvoiceError, InvoiceLine, Meter, Meters, Span
from streamgauge.audit.invoices.file import InvoiceFile

# Every known export. The first whose columns or keys a file has is the file's.
FORMATS: tuple[Format, ...] = (
    *openai.FORMATS,
    *anthropic.FORMATS,
    *anthropic_console.FORMATS,
    *openrouter.FORMATS,
    *focus.FORMATS,
)


def open_invoice(path: Path, meters: Meters) -> InvoiceFile:
    """The invoice at `path`, whose lines are read later. `meters`: the operator's table for FOCUS."""
    return InvoiceFile(path, FORMATS, meters)


__all__ = ["FORMATS", "Format", "InvoiceError", "InvoiceFile", "InvoiceLine", "Meter", "Meters", "Span", "open_invoice"]
