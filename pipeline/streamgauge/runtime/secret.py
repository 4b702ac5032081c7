"""A secret that the environment or a file gives, such as a password or a token. It is in no repr, log line or error."""

import logging
from pathlib import Path

from streamgauge.runtime.secret_file import read_secret

_LOG = logging.getLogger(__name__)


class Secret:
    """A secret, or the file that holds one. `what`: its kind, as in "password".

    `now` reads the file again; if that fails, it logs why once and returns the last one read. Raises ValueError for a file
    that cannot be read or does not hold exactly one line.
    """

    def __init__(self, what: str, text: str | None = None, file: Path | None = None) -> None:
        self._what, self._file = what, file
        self._last = text if file is None else self._checked(read_secret(file, what))
        self._warned = ""
        if not self._last:
            raise ValueError(f"the {what} is empty")
        self._checked(self._last)

    def now(self) -> str:
        """The secret as it is at present."""
        if self._file is not None:
            try:
                self._last, self._warned = self._checked(read_secret(self._file, self._what)), ""
            except ValueError as fault:
                if str(fault) != self._warned:  # it is read for each connection
                    self._warned = str(fault)
                    _LOG.warning("%s; the previous %s stays in use", fault, self._what)
        assert self._last is not None
        return self._last

    def _checked(self, text: str) -> str:
        """The secret, if this kind of secret may look like that. Raises ValueError, which does not quote it."""
        return text

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(...)" if self._file is None else f"{name}(in {str(self._file)!r})"
