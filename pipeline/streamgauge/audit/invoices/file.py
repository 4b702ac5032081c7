"""An invoice file: reads it piece by piece, tells its format by its columns or keys, and names line and field of an error."""

import codecs
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from streamgauge.audit.amounts import EXACT, ZERO_USD, usd_text
from streamgauge.audit.invoices.contract import (
    BadFieldError,
    BadTextError,
    Cost,
    Format,
    InvoiceError,
    InvoiceLine,
    Meters,
    OtherService,
    Row,
    Span,
    same,
)
from streamgauge.audit.invoices.csv_rows import CsvRows
from streamgauge.audit.invoices.json_rows import Page, rows_of
from streamgauge.audit.invoices.parquet_rows import ParquetRows
from streamgauge.audit.invoices.sources import PARQUET, Source
from streamgauge.audit.invoices.values import SemicolonCells, shown, span

_DIGEST_BYTES = 16
# The names of a bucket's times.
_TIMES = (("start_time", "end_time"), ("starting_at", "ending_at"))
_MINUTE_US = 60_000_000


class InvoiceFile:
    """An invoice. `formats`: all formats that are known; `meters`: the operator's table of meters; `cost`: see Cost.

    `lines` may be called again. After it was read whole, `format` is its format, `sha256` the digest of the file (of a
    member of an archive: of its content), `rows` the number of its rows with content, `covered` the spans of time that it
    has a row or an empty bucket of, and `notes` says what was left out.
    """

    def __init__(self, source: Source, formats: Sequence[Format], meters: Meters, cost: Cost = "billed") -> None:
        self.path = Path(source.name)
        self.format: Format | None = None
        self.rows = 0
        # The other files of the audit: one of them may have the pages that follow this file's.
        self.others: Sequence[InvoiceFile] = ()
        self._source = source
        self._formats = formats
        self._meters = meters
        self._cost = cost
        self._line = 0  # lines that were decoded
        self._currency: str | None = None
        self._covered = _Covered()
        self._other_services: dict[tuple[str, str], tuple[int, Decimal]] = {}

    @property
    def sha256(self) -> str:
        """The digest of its bytes; empty before it was read whole."""
        return self._source.sha256

    @property
    def covered(self) -> tuple[Span, ...]:
        """The spans that it has a row or an empty bucket of, in their order, joined. Rows that name a date have none."""
        return self._covered.spans()

    @property
    def notes(self) -> list[str]:
        """One sentence for each service and currency whose rows were left out."""
        found = sorted(self._other_services.items(), key=lambda one: (-abs(one[1][1]), one[0]))
        return [
            f"{self.path.name}: {rows} row{'' if rows == 1 else 's'} of {service} ({usd_text(amount)} {currency}) left out: "
            "it serves no models"
            for (service, currency), (rows, amount) in found
        ]

    def lines(self) -> Iterator[InvoiceLine]:
        """Its lines, in its order. Raises InvoiceError, which an operator can act on."""
        self.rows, self._line, self._currency = 0, 0, None
        self._covered, self._other_services = _Covered(), {}
        try:
            yield from self._lines()
        except BadTextError as error:
            raise InvoiceError(str(self.path), str(error), error.line) from None
        except UnicodeDecodeError:
            raise InvoiceError(str(self.path), "the text is not UTF-8: export it as UTF-8", self._line + 1) from None
        except OSError as error:
            raise InvoiceError(str(self.path), f"the file cannot be read: {error.strerror}") from None
        if not self.rows:
            # A page of days without usage says nothing of what it is: the page before it does.
            self.format = self.format or self._format_before()
            if self.format is None or not self.covered:
                raise InvoiceError(str(self.path), "the file has no row with content: there is nothing to compare")

    def _lines(self) -> Iterator[InvoiceLine]:
        if self._source.begin() == PARQUET:
            with self._source.seekable() as file:
                rows = ParquetRows(file)
                yield from self._table(self._table_format(rows.header), rows.header, rows)
            return
        chunks = self._chunks()
        first = next(chunks, "")
        whole = _with(first, chunks)
        if first.lstrip()[:1] in ("{", "["):
            yield from self._json(whole)
        else:
            yield from self._csv(whole)

    def continues(self, export: Format, end_us: int) -> bool:
        """Whether its pages follow those of a report of this format that end at this time (microseconds since 1970)."""
        start_us: int | None = None
        try:
            chunks = self._chunks()
            first = next(chunks, "")
            if first.lstrip()[:1] in ("{", "["):
                for row in rows_of(_with(first, chunks), Page()):
                    if start_us is None:
                        times = _times_of(row.bucket)
                        if times is None or times.start_us != end_us:
                            return False
                        start_us = times.start_us
                    if row.values is not None:
                        return _is_of(export, row.values)
        except (BadTextError, UnicodeDecodeError, OSError):
            pass  # its own reading says so
        return start_us is not None

    def open_end(self) -> tuple[Format, int] | None:
        """The format of a JSON report whose last page here has more, and when that page ends (microseconds since 1970)."""
        page, export, end_us = Page(), None, None
        try:
            chunks = self._chunks()
            first = next(chunks, "")
            if first.lstrip()[:1] not in ("{", "["):
                return None
            for row in rows_of(_with(first, chunks), page):
                if row.values is not None:
                    export = export or self._json_format(row.values)
                elif (times := _times_of(row.bucket)) is not None:
                    end_us = times.end_us
        except (BadTextError, UnicodeDecodeError, OSError):
            return None  # its own reading says so
        return (export, end_us) if export is not None and end_us is not None and _has_more(page) else None

    def _format_before(self) -> Format | None:
        """The format of the report in another file whose pages this one continues."""
        covered = self.covered
        for other in self.others if covered else ():
            if (found := other.open_end()) is not None and found[1] == covered[0].start_us:
                return found[0]
        return None

    def _chunks(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8-sig")("strict")
        for data in self._source.read():
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

    def _csv(self, chunks: Iterator[str]) -> Iterator[InvoiceLine]:
        def known(header: Sequence[str]) -> bool:
            return self._csv_format(header) is not None

        rows = CsvRows(chunks, known)
        cells: Iterable[tuple[int, Mapping[str, object]]] = rows
        if rows.delimiter == ";":
            cells = ((number, SemicolonCells(values)) for number, values in rows)
        yield from self._table(self._csv_format(rows.header), rows.header, cells)

    def _table(
        self, export: Format | None, header: Sequence[str], rows: Iterable[tuple[int, Mapping[str, object]]]
    ) -> Iterator[InvoiceLine]:
        """The lines of a table. Raises InvoiceError for one that is of no known format, or lacks a column."""
        if export is None:
            raise InvoiceError(str(self.path), self._unknown(header), 1)
        if export.refusal is not None:
            raise InvoiceError(str(self.path), f"it is {export.name}: {export.refusal}", 1)
        for name in sorted(export.required - set(map(export.spelled, header))):
            raise InvoiceError(str(self.path), f"the column is missing; this is the export {export.name}", 1, name)
        self.format = export
        order = sorted(header)
        for number, values in rows:
            yield from self._line_of(Row(values, meters=self._meters, cost=self._cost), number, "", order)

    def _table_format(self, header: Sequence[str]) -> Format | None:
        """The format of a table whose values may be records: that of a CSV file, else that of rows of JSON."""
        return self._csv_format(header) or self._json_format(dict.fromkeys(header))

    def _csv_format(self, header: Sequence[str]) -> Format | None:
        return next(
            (
                export
                for export in self._formats
                if not export.is_json and export.signs <= set(map(export.spelled, header))
            ),
            None,
        )

    def _json(self, chunks: Iterator[str]) -> Iterator[InvoiceLine]:
        page = Page()
        keys: tuple[str, ...] = ()
        order: list[str] = []
        end_us: int | None = None
        for line, path, values, bucket in rows_of(chunks, page):
            if values is None:
                if (times := _times_of(bucket)) is not None:
                    end_us = times.end_us
                    self._covered.add(times)
                continue
            is_same = self.format is not None and _is_of(self.format, values)
            export = self.format if is_same else self._json_format(values)
            if export is None:
                raise InvoiceError(str(self.path), self._unknown(values), line, path or None)
            if export.refusal is not None:
                raise InvoiceError(str(self.path), f"it is {export.name}: {export.refusal}", line, path or None)
            if self.format not in (None, export):
                raise InvoiceError(str(self.path), f"a row of {export.name} among rows of another export", line, path)
            self.format = export
            before = f"{path}." if path else ""
            if keys != tuple(values):
                keys, order = tuple(values), sorted(values)
                for name in sorted(export.required - values.keys()):
                    fault = f"it is missing; this is the export {export.name}"
                    raise InvoiceError(str(self.path), fault, line, f"{before}{name}")
            yield from self._line_of(Row(values, bucket, self._meters, self._cost), line, before, order)
        is_followed = end_us is not None and any(
            other.continues(self.format, end_us) for other in self.others if self.format is not None
        )
        if _has_more(page) and not is_followed:
            fault = "the page is not the last one: give the next one too (--invoice), or export with a larger limit"
            raise InvoiceError(str(self.path), fault, page.line, "has_more")

    def _json_format(self, values: Mapping[str, object]) -> Format | None:
        return next((export for export in self._formats if export.is_json and _is_of(export, values)), None)

    def _line_of(self, row: Row, number: int, path: str, order: Sequence[str]) -> Iterator[InvoiceLine]:
        """The lines of a row. `order`: the names of its values, sorted."""
        assert self.format is not None
        spelled = self.format.spelled
        if spelled is not same:
            row = replace(row, values={spelled(name): value for name, value in row.values.items()})
        try:
            found = self.format.read(row)
        except BadFieldError as error:
            own = next((name for name in order if spelled(name) == error.field), error.field)
            field = error.field if error.field in row.bucket else path + own
            raise InvoiceError(str(self.path), str(error), number, field) from None
        if found is None:
            if (times := _times_of(row.values)) is not None:
                self._covered.add(times)
            return
        self.rows += 1
        if isinstance(found, OtherService):
            key = found.name, found.currency
            rows, amount = self._other_services.get(key, (0, ZERO_USD))
            self._other_services[key] = rows + 1, EXACT.add(amount, found.amount)
            return
        values, names = row.values, order if spelled is same else list(map(spelled, order))
        parts = [f"{name}={_spelled(values[name])}" for name in names]
        if row.bucket:
            parts += [f"{name}={_spelled(row.bucket[name])}" for name in sorted(row.bucket)]
        for place, line in enumerate([found] if isinstance(found, InvoiceLine) else found):
            self._check_currency(line, number, path)
            if isinstance(line.when, Span):
                self._covered.add(line.when)
            text = "\x1f".join((self.format.name, *parts, *([str(place)] if place else []))).encode(
                "utf-8", "surrogatepass"
            )
            yield line._replace(digest=hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest())

    def _check_currency(self, line: InvoiceLine, number: int, path: str) -> None:
        """Refuse two currencies in a file whose rows are of one organization."""
        assert self.format is not None
        if line.usd is None or not self.format.one_currency:
            return
        self._currency = self._currency or line.currency
        if line.currency != self._currency:
            fault = f"the currency is {line.currency}, and that of earlier rows {self._currency}: an export has one"
            raise InvoiceError(str(self.path), fault, number, f"{path}currency")

    def _unknown(self, names: "Sequence[str] | Mapping[str, object]") -> str:
        if isinstance(names, Mapping) and names.get("error"):
            return f"it is an error of the provider's API: {shown(names['error'])}"
        if not names:
            return "it has no columns or keys"
        unknown = ", ".join(shown(name) for name in sorted(names)[:6])
        # A format's name begins with whose it is.
        known = ", ".join(sorted({export.name.split()[0] for export in self._formats if export.refusal is None}))
        fault = f"no known export has these columns or keys: {unknown}; known are exports of {known}"
        return (
            f"{fault} (docs/guides/audit.md lists them); of any other provider bring a table with the columns of FOCUS"
        )


def table_of(source: Source) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The rows of a CSV or JSON file, each with its line. Raises BadTextError, UnicodeDecodeError or OSError."""
    chunks = codecs.iterdecode(source.read(), "utf-8-sig")
    first = next(chunks, "")
    if first.lstrip()[:1] in ("{", "["):
        for row in rows_of(_with(first, chunks), Page()):
            if row.values is not None:
                yield row.line, row.values
        return
    yield from CsvRows(_with(first, chunks), lambda header: len(header) > 1)


class _Covered:
    """The spans of buckets: of whole minutes, so that rows for single requests are not held."""

    def __init__(self) -> None:
        self._spans: set[Span] = set()
        self._last: Span | None = None

    def add(self, times: Span) -> None:
        """Add a span, if it is that of a bucket."""
        if times == self._last:
            return
        self._last = times
        if not times.start_us % _MINUTE_US and not times.end_us % _MINUTE_US:
            self._spans.add(times)

    def spans(self) -> tuple[Span, ...]:
        """All spans in their order, joined where they touch."""
        joined: list[Span] = []
        for times in sorted(self._spans):
            if joined and times.start_us <= joined[-1].end_us:
                joined[-1] = Span(joined[-1].start_us, max(times.end_us, joined[-1].end_us))
            else:
                joined.append(times)
        return tuple(joined)


def _has_more(page: Page) -> bool:
    return page.get("has_more") not in (None, False) or page.get("next_page") is not None


def _times_of(values: Mapping[str, object]) -> Span | None:
    """The span of a bucket, or of a row without content; None if it names none."""
    for start, end in _TIMES:
        if start in values:
            try:
                return span(values, start, end)
            except BadFieldError:
                return None
    return None


def _is_of(export: Format, values: Mapping[str, object]) -> bool:
    """Whether a row has the keys of a JSON format."""
    name = values.get("object")
    if export.object_name is not None and not (isinstance(name, str) and re.fullmatch(export.object_name, name)):
        return False
    return export.signs <= values.keys()


def _spelled(value: object) -> str:
    """A value as text, the same for every order of keys."""
    if type(value) is str:  # most of them
        return repr(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}={_spelled(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_spelled, value)) + "]"
    return repr(value)


def _with(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest
