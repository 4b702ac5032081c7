"""Pages in every shape, compressed files and archives give the lines of the plain file, or are refused with what to bring."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.invoices import InvoiceError, InvoiceFile, InvoiceLine, open_invoices
from streamgauge.audit.invoices.json_rows import JsonRow, Page, rows_of
from tests.audit.invoices.reading import NAME, read, refusal
from tests.audit.invoices.samples import BY_NAME, DAY_S, SAMPLES, Sample, page
from tests.each import each

USAGE = BY_NAME["OpenAI usage (API)"]
DAY = 86_400


def usage_page(day: int, model: str, *, more: str | None = None) -> dict[str, Any]:
    """A page of one day of OpenAI's usage, with the cursor of the next one."""
    row = {**USAGE.rows[0], "model": model}
    text = page(
        [row],
        more={"has_more": more is not None, "next_page": more},
        start_time=DAY_S + day * DAY,
        end_time=DAY_S + day * DAY + DAY,
    )
    document: dict[str, Any] = json.loads(text)
    return document


FIRST, LAST = usage_page(0, "first", more="page_2"), usage_page(1, "last")
SHAPES: Mapping[str, str] = {
    "a list of pages": json.dumps([FIRST, LAST]),
    "a page a line": f"{json.dumps(FIRST)}\n{json.dumps(LAST)}\n",
    "one after another": json.dumps(FIRST) + json.dumps(LAST, indent=2),
    "a list of buckets": json.dumps(FIRST["data"] + LAST["data"]),
    "a bucket a line": "\n".join(json.dumps(bucket) for bucket in FIRST["data"] + LAST["data"]),
    "a page without cursors": json.dumps({"data": FIRST["data"] + LAST["data"]}),
    "lists of pages": json.dumps([FIRST]) + "\n" + json.dumps([LAST]),
}


def files_of(folder: Path, contents: Mapping[str, str | bytes]) -> list[InvoiceFile]:
    """Invoices with these contents, as one audit opens them."""
    for name, content in contents.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return open_invoices([folder / name for name in contents], {})


def lines_of(files: list[InvoiceFile]) -> list[InvoiceLine]:
    return [line for file in files for line in file.lines()]


@pytest.mark.parametrize("shape", SHAPES)
def test_pages_are_read_in_every_shape(shape: str) -> None:
    lines = read(SHAPES[shape])
    assert [(line.model, line.when[0]) for line in lines] == [
        ("first", DAY_S * 10**6),
        ("last", (DAY_S + DAY) * 10**6),
    ]
    assert {line.digest for line in lines} == {line.digest for line in read(SHAPES["a list of pages"])}


@pytest.mark.parametrize("shape", ["a list of pages", "a page a line"])
def test_pages_whose_last_one_is_missing_are_refused(shape: str) -> None:
    pages = [FIRST, usage_page(1, "second", more="page_3")]
    text = json.dumps(pages) if shape == "a list of pages" else "\n".join(map(json.dumps, pages))
    assert refusal(text).startswith(
        f"line {text.count(chr(10)) + 1}, field has_more: the page is not the last one: give the next one too"
    )


def test_pages_of_several_files_are_one_report(tmp_path: Path) -> None:
    pages = {"1": json.dumps(FIRST), "2": json.dumps(LAST)}
    assert [line.model for line in lines_of(files_of(tmp_path, pages))] == ["first", "last"]
    turned = {"2": pages["2"], "1": pages["1"]}
    assert [line.model for line in lines_of(files_of(tmp_path, turned))] == ["last", "first"]


def costs_page(day: int) -> dict[str, Any]:
    """A page of OpenAI's costs."""
    start = DAY_S + day * DAY
    text = page(BY_NAME["OpenAI costs (API)"].rows, start_time=start, end_time=start + DAY)
    document: dict[str, Any] = json.loads(text)
    return document


EMPTY: dict[str, Any] = json.loads(page([], start_time=DAY_S + DAY, end_time=DAY_S + 2 * DAY))


def test_a_last_page_of_days_without_usage_is_one(tmp_path: Path) -> None:
    for names in ("12", "21"):
        contents = {"1": json.dumps(FIRST), "2": json.dumps(EMPTY)}
        files = files_of(tmp_path, {name: contents[name] for name in names})
        assert [line.model for line in lines_of(files)] == ["first"]
        assert {file.format.name for file in files if file.format} == {"OpenAI usage (API)"}
        assert sum(len(file.covered) for file in files) == 2


def test_days_without_usage_alone_are_refused(tmp_path: Path) -> None:
    others: list[dict[str, Any]] = [usage_page(0, "whole"), usage_page(1, "same day", more="page_2"), {"data": []}]
    for other in others:
        _, empty = files_of(tmp_path, {"1": json.dumps(other), "2": json.dumps(EMPTY)})
        with pytest.raises(InvoiceError, match="no row with content"):
            list(empty.lines())


@pytest.mark.parametrize(
    "other", [usage_page(2, "later"), usage_page(0, "same day"), {"data": []}, costs_page(1), {"data": [1]}]
)
def test_a_page_that_another_file_does_not_continue_is_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    files = files_of(tmp_path, {"1": json.dumps(FIRST), "2": json.dumps(other)})
    with pytest.raises(InvoiceError, match="the page is not the last one"):
        lines_of(files)


def test_an_empty_bucket_is_covered_and_a_missing_one_is_not(tmp_path: Path) -> None:
    empty = {"object": "bucket", "start_time": DAY_S + DAY, "end_time": DAY_S + 2 * DAY, "results": []}
    later = usage_page(3, "later")["data"]
    (file,) = files_of(tmp_path, {"1": json.dumps([*FIRST["data"], empty, *later])})
    list(file.lines())
    days = [((span.start_us // 10**6 - DAY_S) // DAY, (span.end_us // 10**6 - DAY_S) // DAY) for span in file.covered]
    assert days == [(0, 2), (3, 4)]


def test_an_error_of_the_api_is_said() -> None:
    assert "it is an error of the provider's API: " in refusal('{"error": {"message": "Invalid admin key"}}')


@pytest.mark.parametrize("text", ["[1]", '"x"', "[[]]", '{"data": [[1]]}', '{"data": [], "data": []}'])
def test_other_documents_are_refused(text: str) -> None:
    assert refusal(text)


def test_answers_for_one_row_each_are_rows_of_one_file() -> None:
    sample = BY_NAME["OpenRouter generations (API)"]
    first, second = ({**sample.rows[0], "id": name} for name in ("gen-1", "gen-2"))
    answers = [{"data": first}, {"data": second}]
    for text in ("\n".join(map(json.dumps, answers)), json.dumps(answers), json.dumps({"data": [first, second]})):
        assert [line.request_id for line in read(text)] == ["gen-1", "gen-2"]


# --- compressed ------------------------------------------------------------------------------------------------------


def zipped(members: Mapping[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return content.getvalue()


@each(SAMPLES, lambda sample: sample.name)
def test_a_compressed_file_gives_the_lines_of_the_plain_one(sample: Sample, tmp_path: Path) -> None:
    plain = read(sample.text())
    for content in (gzip.compress(sample.text().encode()), zipped({"export/bill": sample.text()})):
        files = files_of(tmp_path, {"compressed": content})
        assert lines_of(files) == plain
        assert lines_of(files) == plain  # it can be read again
        assert len(files[0].sha256) == 64


def test_each_member_of_an_archive_is_a_file(tmp_path: Path) -> None:
    usage, costs = BY_NAME["OpenAI usage (API)"].text(), BY_NAME["OpenAI costs (API)"].text()
    content = zipped(
        {"a/usage.json": usage, "a/costs.json": costs, "__MACOSX/a/._usage.json": b"\0", "a/.DS_Store": b""}
    )
    files = files_of(tmp_path, {"export.zip": content})
    assert [str(file.path.relative_to(tmp_path)) for file in files] == [
        "export.zip/a/usage.json",
        "export.zip/a/costs.json",
    ]
    assert lines_of(files) == [*read(usage), *read(costs)]
    assert [file.format.name for file in files if file.format] == ["OpenAI usage (API)", "OpenAI costs (API)"]


def test_an_error_in_an_archive_names_the_member(tmp_path: Path) -> None:
    files = files_of(tmp_path, {"export.zip": zipped({"read.txt": "Hello"})})
    with pytest.raises(InvoiceError, match=r"export\.zip/read\.txt: line 1: no known export"):
        lines_of(files)


def test_gzip_of_several_members_is_read_whole() -> None:
    text = BY_NAME["FOCUS"].text().encode()
    assert read(gzip.compress(text[:50], mtime=0) + gzip.compress(text[50:], mtime=0)) == read(text)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (gzip.compress(USAGE.text().encode(), mtime=0)[:-9], "the compressed file is damaged, or not whole"),
        (gzip.compress(USAGE.text().encode(), mtime=0)[:40], "the compressed file is damaged, or not whole"),
        (b"\x1f\x8b" + b"x" * 30, "the compressed file is damaged, or not whole"),
        (b"PK\x03\x04" + b"x" * 30, "the archive cannot be read"),
        (zipped({"xl/workbook.xml": "<a/>"}), "it is an Excel workbook: save its sheet as CSV"),
        (zipped({"inner.zip": zipped({"a": "b"})}), "it is an archive inside an archive: unpack it first"),
        (zipped({".hidden": "b"}), "the archive has no file"),
        (b"%PDF-1.7", "it is a PDF: bring the provider's export as CSV or JSON"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "it is an Excel workbook of the old kind"),
    ],
    ids=(
        "gzip that ends early",
        "gzip of 40 bytes",
        "gzip of nothing",
        "zip of nothing",
        "xlsx",
        "zip in a zip",
        "hidden file",
        "pdf",
        "xls",
    ),
)
def test_what_cannot_be_read_is_refused_with_what_to_bring(content: bytes, fault: str) -> None:
    assert fault in refusal(content)


def test_an_archive_with_a_password_is_refused() -> None:
    content = bytearray(zipped({"a": "b"}))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    assert "the archive has a password: unpack it first" in refusal(bytes(content))


def test_an_archive_whose_member_has_no_name_is_refused() -> None:
    """zipfile fails on such a name. Fuzzing found it."""
    content = bytearray(zipped({"a": "b"}))
    entry = content.index(b"PK\x01\x02")
    content[entry + 28 : entry + 32] = b"\0\0\1\0"  # the length of the name, and of what follows it
    assert "the archive has no file" in refusal(bytes(content))


def _each_source() -> list[Callable[[bytes], bytes]]:
    return [gzip.compress, lambda data: zipped({"a": data})]


@given(place=st.integers(0, 10_000), cut=st.integers(0, 30), put=st.binary(max_size=8), form=st.integers(0, 1))
def test_any_damage_to_a_compressed_file_is_read_or_refused(place: int, cut: int, put: bytes, form: int) -> None:
    data = _each_source()[form](USAGE.text().encode())
    start = place % len(data)
    try:
        read(data[:start] + put + data[start + cut :])
    except InvoiceError as error:
        assert NAME in str(error)


@given(
    shape=st.sampled_from(sorted(SHAPES)), cuts=st.lists(st.integers(0, 2_000), max_size=8)
)  # fmt: skip
def test_any_split_of_any_shape_gives_the_same_rows(shape: str, cuts: list[int]) -> None:
    text = SHAPES[shape]
    ends = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(ends)]
    assert rows(pieces) == rows([text])


def rows(pieces: list[str]) -> list[tuple[JsonRow, dict[str, object]]]:
    document = Page()
    return [(row._replace(bucket=dict(row.bucket)), dict(document)) for row in rows_of(pieces, document)]
