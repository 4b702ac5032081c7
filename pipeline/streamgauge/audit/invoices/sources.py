"""Opens what finance brings: a file as it is, compressed by gzip, or the members of a ZIP archive. No format is known here.

Whether a file is compressed shows by its first bytes, never by its name.
"""

import gzip
import hashlib
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from streamgauge.audit.invoices.contract import BadTextError, repeated_name
from streamgauge.audit.invoices.values import shown

# What is read at a time (bytes): a file of any size takes some MiB.
CHUNK = 1024 * 1024
# Members that an archive may have: exports of a year are some hundred.
MAX_MEMBERS = 10_000
# What zipfile, gzip and the modules that they decompress by raise for bytes that are none of theirs.
_BROKEN = (
    zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, IndexError,
    NotImplementedError, OverflowError, RuntimeError, ValueError,
)  # fmt: skip
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
PARQUET = b"PAR1"
# What begins a file that has no rows an audit can read, and what to bring instead.
_NO_ROWS = {
    _ZIP: "it is an archive inside an archive: unpack it first",
    b"%PDF": "it is a PDF: bring the provider's export as CSV or JSON, which has a row for each day and model",
    b"\xd0\xcf\x11\xe0": "it is an Excel workbook of the old kind: save its sheet as CSV (UTF-8)",
}


class Source:
    """A file, or a member of an archive. `name`: for messages. Raises BadTextError and OSError while it is read.

    `sha256`: the digest of the file as it is stored (of a member: of its content), after `read` was exhausted.
    """

    def __init__(self, path: Path, member: str | None = None) -> None:
        self.path = path
        self.member = member
        self.name = str(path) if member is None else f"{path}/{member}"
        self.sha256 = ""

    def begin(self) -> bytes:
        """The first bytes of its content, four at most."""
        with self._opened() as content:
            return content.read(4)

    def read(self) -> Iterator[bytes]:
        """Its content, some of it at a time. Raises BadTextError if the bytes are not those of an earlier reading."""
        digest = hashlib.sha256()
        with self._opened(digest) as content:
            data = content.read(CHUNK)
            for begin, fault in _NO_ROWS.items():
                if data.startswith(begin):
                    raise BadTextError(fault)
            while data:
                yield data
                data = content.read(CHUNK)
        if self.sha256 not in ("", digest.hexdigest()):
            raise BadTextError("the file changed while the audit read it: run the audit again")
        self.sha256 = digest.hexdigest()

    @contextmanager
    def seekable(self) -> Iterator[BinaryIO]:
        """Its content, for a reader that moves to and fro."""
        for _ in self.read():  # for the digest
            pass
        with self._opened() as content:
            yield content

    @contextmanager
    def _opened(self, digest: "hashlib._Hash | None" = None) -> Iterator[BinaryIO]:
        """The content. `digest` takes the bytes that are read of the file as it is stored."""
        mode = self.path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            fault = "it is no regular file: an audit reads an invoice more than once, so save it as a file first"
            raise BadTextError(fault)
        try:
            with ExitStack() as opened:
                file: BinaryIO = opened.enter_context(self.path.open("rb"))
                is_gzip = self.member is None and file.read(2) == _GZIP
                file.seek(0)
                if self.member is not None:
                    archive = opened.enter_context(zipfile.ZipFile(file))
                    file = cast("BinaryIO", opened.enter_context(archive.open(self.member)))
                if digest is not None:
                    file = cast("BinaryIO", _Digested(file, digest))
                yield cast("BinaryIO", gzip.GzipFile(fileobj=file)) if is_gzip else file
        except BadTextError:  # of what reads the content
            raise
        except _BROKEN as error:
            what = "compressed file is damaged, or not whole" if self.member is None else "archive cannot be read"
            raise BadTextError(f"the {what}: {error}") from None


class _Digested:
    """A binary file that is read from its beginning to its end."""

    def __init__(self, file: BinaryIO, digest: "hashlib._Hash") -> None:
        self._file, self._digest = file, digest

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        data = self._file.read(size)
        self._digest.update(data)
        return data


def sources_of(path: Path) -> list[Source]:
    """The file itself, or the members of an archive in their order, without folders and what an operating system adds.

    Raises BadTextError for an archive that cannot be read. A file that cannot be opened is given: its reading says why.
    """
    if not path.is_file():
        return [Source(path)]
    try:
        with path.open("rb") as file:
            if file.read(4) != _ZIP:
                return [Source(path)]
        with zipfile.ZipFile(path) as archive:
            members = [entry for entry in archive.infolist() if entry.filename and not entry.filename.endswith("/")]
    except OSError:
        return [Source(path)]
    except _BROKEN as error:
        raise BadTextError(f"the archive cannot be read: {error}") from None
    names = [entry.filename for entry in members]
    if "xl/workbook.xml" in names:
        raise BadTextError("it is an Excel workbook: save its sheet as CSV (UTF-8)")
    if any(entry.flag_bits & 1 for entry in members):
        raise BadTextError("the archive has a password: unpack it first")
    if len(names) > MAX_MEMBERS:
        raise BadTextError(f"the archive has more than {MAX_MEMBERS} members")
    if (twice := repeated_name(names)) is not None:
        raise BadTextError(f"the archive has the member {shown(twice)} twice")
    kept = [name for name in names if not name.startswith("__MACOSX/") and not name.rpartition("/")[2].startswith(".")]
    if not kept:
        raise BadTextError("the archive has no file")
    return [Source(path, name) for name in kept]
