"""Reads the text of an invoice in a test."""

from pathlib import Path
from tempfile import TemporaryDirectory

from streamgauge.audit.invoices import InvoiceError, InvoiceLine, Meters, open_invoices

NAME = "bill"


def read(text: str | bytes, meters: Meters | None = None) -> list[InvoiceLine]:
    """The lines of an invoice, or of all members of an archive. Raises InvoiceError."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return [line for file in open_invoices([path], meters or {}) for line in file.lines()]


def refusal(text: str | bytes, meters: Meters | None = None) -> str:
    """What the reader says of a bad invoice, without the folder of its file."""
    try:
        lines = read(text, meters)
    except InvoiceError as error:
        assert error.exit_code == 2
        return str(error).rpartition(f"/{NAME}")[2].removeprefix(": ")
    raise AssertionError(f"it was accepted: {lines}")
