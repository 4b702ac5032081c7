"""An invoice file: reads it piece by piece, tells its format by its columns or keys, and names line and field of an error."""

import codecs
import hashlib
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from streamgauge.audit.invoices.contract import (
    BadFieldError,
    BadTextError,
    Format,
    InvoiceError,
    InvoiceLine,
    Meters,
    Row,
)
from streamgauge.audit.invoices.csv_rows import CsvRows
from streamgauge.audit.invoices.json_rows import rows_of
from streamgauge.audit.invoices.values import SemicolonCells, shown

# What is read at a time (bytes): a file of any size takes some MiB.
CHUNK = 1024 * 1024
_DIGEST_BYTES = 16


class InvoiceFile:
    """An invoice. `formats`: all formats that are known; `meters`: the operator's table for FOCUS.

    `lines` may be called again. After it was read whole, `format` is its format, `sha256` the digest of its bytes, and
    `rows` the number of its lines with content.
    """

    def __init__(self, path: Path, formats: Sequence[Format], meters: Meters) -> None:
        self.path = path
        self.format: Format | None = None
        self.sha256 = ""
        self.rows = 0
        self._formats = formats
        self._meters = meters
        self._line = 0  # lines that were decoded

    def lines(self) -> Iterator[InvoiceLine]:
        """Its lines, in its order. Raises InvoiceError, which an operator can act on."""
        self.rows, self._line = 0, 0
        try:
            chunks = self._chunks()
            first = next(chunks, "")
            whole = _with(first, chunks)
            if first.lstrip()[:1] in ("{", "["):
                yield from self._json(whole)
            else:
                yield from self._csv(whole)
        except BadTextError as error:
            raise InvoiceError(str(self.path), str(error), error.line) from None
        except UnicodeDecodeError:
            raise InvoiceError(str(self.path), "the text is not UTF-8: export it as UTF-8", self._line + 1) from None
        except OSError as error:
            raise InvoiceError(str(self.path), f"the file cannot be read: {error.strerror}") from None
        if not self.rows:
            raise InvoiceError(str(self.path), "the file has no row with content: there is nothing to compare")

    def _chunks(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8-sig")("strict")
        digest = hashlib.sha256()
        mode = self.path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise BadTextError(
                "it is no regular file: an audit reads an invoice more than once, so save it as a file first"
            )
        with self.path.open("rb") as file:
            while data := file.read(CHUNK):
                digest.update(data)
                if b"\0" in data:
                    line = self._line + data[: data.index(b"\0")].count(b"\n") + 1
                    raise BadTextError("the text is not UTF-8: it has NUL bytes; export it as UTF-8", line)
                try:
                    text = decoder.decode(data)
                except UnicodeDecodeError as error:
                    self._line += error.object[: error.start].count(b"\n")
                    raise
                yield text
                self._line += text.count("\n")
            yield decoder.decode(b"", final=True)
        if self.sha256 not in ("", digest.hexdigest()):
            raise BadTextError("the file changed while the audit read it: run the audit again")
        self.sha256 = digest.hexdigest()

    def _csv(self, chunks: Iterator[str]) -> Iterator[InvoiceLine]:
        def known(header: Sequence[str]) -> bool:
            return self._csv_format(header) is not None

        rows = CsvRows(chunks, known)
        export = self._csv_format(rows.header)
        if export is None:
            raise InvoiceError(str(self.path), self._unknown(rows.header), 1)
        for name in sorted(export.required - set(rows.header)):
            raise InvoiceError(str(self.path), f"the column is missing; this is the export {export.name}", 1, name)
        self.format = export
        order = sorted(rows.header)
        for number, values in rows:
            cells: Mapping[str, object] = SemicolonCells(values) if rows.delimiter == ";" else values
            yield from self._line_of(Row(cells, meters=self._meters), number, "", order)

    def _csv_format(self, header: Sequence[str]) -> Format | None:
        return next((export for export in self._formats if not export.is_json and export.signs <= set(header)), None)

    def _json(self, chunks: Iterator[str]) -> Iterator[InvoiceLine]:
        page: dict[str, object] = {}
        keys: tuple[str, ...] = ()
        order: list[str] = []
        for line, path, values, bucket in rows_of(chunks, page):
            is_same = self.format is not None and _is_of(self.format, values)
            export = self.format if is_same else self._json_format(values)
            if export is None:
                raise InvoiceError(str(self.path), self._unknown(values), line, path)
            if self.format not in (None, export):
                raise InvoiceError(str(self.path), f"a row of {export.name} among rows of another export", line, path)
            self.format = export
            if keys != tuple(values):
                keys, order = tuple(values), sorted(values)
                for name in sorted(export.required - values.keys()):
                    raise InvoiceError(
                        str(self.path), f"it is missing; this is the export {export.name}", line, f"{path}.{name}"
                    )
            yield from self._line_of(Row(values, bucket, self._meters), line, f"{path}.", order)
        if page.get("has_more") not in (None, False) or page.get("next_page") is not None:
            fault = "the page is not the last one: export all pages, or a shorter time with a larger limit"
            raise InvoiceError(str(self.path), fault, None, "has_more")

    def _json_format(self, values: Mapping[str, object]) -> Format | None:
        return next((export for export in self._formats if export.is_json and _is_of(export, values)), None)

    def _line_of(self, row: Row, number: int, path: str, order: Sequence[str]) -> Iterator[InvoiceLine]:
        assert self.format is not None
        try:
            line = self.format.read(row)
        except BadFieldError as error:
            field = error.field if error.field in row.bucket else path + error.field
            raise InvoiceError(str(self.path), str(error), number, field) from None
        if line is not None:
            self.rows += 1
            parts = [f"{name}={_spelled(row.values[name])}" for name in order]
            parts += [f"{name}={_spelled(row.bucket[name])}" for name in sorted(row.bucket)]
            text = "\x1f".join((self.format.name, *parts)).encode("utf-8", "surrogatepass")
            yield line._replace(digest=hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest())

    def _unknown(self, names: "Sequence[str] | Mapping[str, object]") -> str:
        unknown = ", ".join(shown(name) for name in sorted(names)[:6])
        known = ", ".join(sorted(export.name for export in self._formats))
        return f"no known export has these columns or keys: {unknown}; known are {known}"


def _is_of(export: Format, values: Mapping[str, object]) -> bool:
    """Whether a row has the keys of a JSON format."""
    return export.object_name in (None, values.get("object")) and export.signs <= values.keys()


def _spelled(value: object) -> str:
    """A value as text, the same for every order of keys."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}={_spelled(value[name])}" for name in sorted(value)) + "}"
    return repr(value)


def _with(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest
