"""Secrets that the environment or a file gives: passwords, tokens, URLs with a password. No repr, log or error has one."""

import logging
from pathlib import Path

# The most that is read of such a file (bytes), as the operator may give the wrong file, which may be large. Secrets are far
# shorter.
_MAX_SECRET = 4096


def read_secret(file: Path, kind: str = "password") -> str:
    """The one line of a file, without its line break. `kind`: names the secret in sentences.

    Raises ValueError with a sentence for a file that cannot be read, or does not hold exactly one line.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_SECRET + 1).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"the {kind} in {file} is not UTF-8") from None
    except OSError as fault:
        name, hint = (f" {file}", "") if _is_path(file) else ("", f" (path not shown, because it may be the {kind})")
        raise ValueError(f"the {kind} file{name} cannot be read: {fault.strerror}{hint}") from None
    if not text or "\0" in text or "\n" in text or len(text) > _MAX_SECRET:
        raise ValueError(f"the {kind} file {file} does not contain exactly one line with a {kind}")
    return text


def _is_path(file: Path) -> bool:
    """Whether this is certainly a path, and not a secret that an operator gave instead of its file."""
    directory = file.parent
    try:
        return file.exists() or (directory.is_dir() and directory not in (Path.cwd(), Path(file.anchor)))
    except OSError:  # too long for a file name
        return False


_LOG = logging.getLogger(__name__)


class Secret:
    """A secret, or the file that holds one. `kind`: as in "password".

    `now` reads the file again; if that fails, it logs why once and returns the last one read. Raises ValueError for a file
    that cannot be read or does not hold exactly one line.
    """

    def __init__(self, kind: str, text: str | None = None, file: Path | None = None) -> None:
        self._kind, self._file = kind, file
        self._last = text if file is None else self._checked(read_secret(file, kind))
        self._warned = ""
        if not self._last:
            raise ValueError(f"the {kind} is empty")
        self._checked(self._last)

    def now(self) -> str:
        """The secret as it is at present."""
        if self._file is not None:
            try:
                self._last, self._warned = self._checked(read_secret(self._file, self._kind)), ""
            except ValueError as fault:
                if str(fault) != self._warned:  # it is read for each connection
                    self._warned = str(fault)
                    _LOG.warning("%s; the previous %s stays in use", fault, self._kind)
        assert self._last is not None
        return self._last

    def _checked(self, text: str) -> str:
        """The secret, if this kind of secret may look like that. Raises ValueError, which does not quote it."""
        return text

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(...)" if self._file is None else f"{name}(in {str(self._file)!r})"
