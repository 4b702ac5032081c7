"""What must hold for invoices and gateway logs of any bytes: lines or one sentence, and the same ones each time."""

import gzip
import io
import json
import re
import tempfile
import zipfile
from pathlib import Path

from streamgauge.audit.amounts import KINDS
from streamgauge.audit.gateway_logs import LOGS, Unreadable, records_of
from streamgauge.audit.invoices import InvoiceError, InvoiceLine, open_invoices
from streamgauge.audit.invoices.values import MAX_COUNT
from streamgauge.audit.result import CHARGES
from streamgauge.core.record import encode_record
from streamgauge.recorder.stream_id import derived_stream_id
from tests.audit.invoices.samples import SAMPLES
from tests.audit.test_gateway_logs import ROWS
from tests.fuzz.drawn import Drawn

_NAMES = sorted(LOGS)


def check_invoice(data: bytes) -> None:
    """Reads a file of any content twice; asserts that both results are equal, and that each line is whole."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "bill"
        path.write_bytes(data)
        lines, fault = _lines(path)
        assert (lines, fault) == _lines(path)
        for line in lines:
            _check_line(line)


def _lines(path: Path) -> tuple[list[InvoiceLine], str]:
    lines: list[InvoiceLine] = []
    try:
        for file in open_invoices([path], {}):
            lines += file.lines()
    except InvoiceError as error:
        assert str(error).startswith(str(path))
        return lines, str(error)
    return lines, ""


def _check_line(line: InvoiceLine) -> None:
    assert line.provider
    assert line.charge is None or (line.charge in CHARGES and line.tokens is None)
    assert line.kind is None or line.kind in KINDS
    assert re.fullmatch("[A-Z]{3}", line.currency)
    assert line.tokens is None or all(abs(count) <= MAX_COUNT for count in line.tokens)
    assert line.tokens is not None or line.usd is not None
    assert len(line.digest) == 16


def check_gateway_log(data: bytes) -> None:
    """Reads a log of any content twice; asserts that both results are equal, and that each record can be stored."""
    drawn = Drawn(data)
    name = drawn.one_of(_NAMES)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "log"
        path.write_bytes(drawn.rest())
        assert _records(path, name) == _records(path, name)


def _records(path: Path, name: str) -> tuple[list[object], str]:
    found: list[object] = []
    try:
        for record in records_of(path, name, "openai", derived_stream_id):
            found.append(record if record is None or isinstance(record, Unreadable) else encode_record(record))
    except InvoiceError as error:
        return found, str(error)
    return found, ""


def _archive(text: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bill", text)
    return content.getvalue()


def invoice_seeds() -> list[bytes]:
    """One of each format, and of each way to pack it."""
    texts = [sample.text() for sample in SAMPLES]
    return [*(text.encode() for text in texts), gzip.compress(texts[0].encode()), _archive(texts[0])]


def gateway_log_seeds() -> list[bytes]:
    """One of each log."""
    return [bytes((_NAMES.index(name),)) + json.dumps([row]).encode() for name, row in ROWS.items()]
