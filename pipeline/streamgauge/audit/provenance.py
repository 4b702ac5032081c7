"""What a result was made of: versions, digests and options, so that it can be made again."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from streamgauge import __version__
from streamgauge.audit.result import InvoiceUsed, Provenance
from streamgauge.errors import UsageFault


def provenance(
    price_list: str,
    ledger_sha256: str,
    invoices: Sequence[InvoiceUsed],
    options: Mapping[str, object],
    files: Mapping[str, str | None],
) -> Provenance:
    """The provenance of a result. Raises UsageFault if one of its files cannot be read.

    price_list: name and version of the installed list of prices. options: those that decide the result, by name; None for
    one that was not given. files: the paths of its other files, by option.
    """
    return Provenance(
        version=__version__,
        price_list=price_list,
        ledger_sha256=ledger_sha256,
        invoices=sorted(invoices, key=lambda invoice: (invoice.sha256, invoice.name)),
        options={name: str(value) for name, value in sorted(options.items()) if value is not None},
        files={option: digest_of(option, path) for option, path in sorted(files.items()) if path is not None},
    )


def digest_of(option: str, path: str) -> str:
    """The SHA-256 of the file of an option, in hexadecimal digits. Raises UsageFault if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageFault(f"{option} {path} cannot be read: {error.strerror}") from None
