"""A pseudo terminal with a command in it: keys go in, and the screen is read."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator

from tests.running import CLEAN, PATIENCE_S

_LINE = re.compile(r"\x1b\[(\d+);1H\x1b\[2K([^\x1b]*(?:\x1b\[[0-9;]*m[^\x1b]*)*)|\x1b\[2J")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
# Characters of a line with its styles.
_LONGEST_LINE = 8_000
_REST = re.compile(r"\x1b[^\x1b]*$")


class Screen:
    """The screen of a command that writes whole lines. `written`: how many characters it wrote."""

    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._shown: dict[int, str] = {}
        self._text = ""
        self.written = 0

    def press(self, text: str) -> None:
        """Sends keys."""
        os.write(self._terminal, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Changes the size of the terminal, as a window does."""
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def read(self, patience_s: float = 0.1) -> str:
        """What the command wrote since the last call; it changes the screen."""
        new = b""
        while select.select([self._terminal], [], [], patience_s)[0]:
            try:
                got = os.read(self._terminal, 65_536)
            except OSError:  # the command has ended
                break
            if not got:
                break
            new += got
        text = new.decode(errors="replace")
        self.written += len(text)
        self._text = (self._text + text)[-200_000:]
        rest = _REST.search(self._text)
        whole = self._text[: rest.start()] if rest is not None and not _STYLE.match(rest[0]) else self._text
        for found in _LINE.finditer(whole if text else ""):
            if found[1] is None:
                self._shown.clear()
            else:
                self._shown[int(found[1])] = found[2]
        return text

    @property
    def lines(self) -> list[str]:
        """The lines of the screen."""
        return [_STYLE.sub("", self._shown.get(number, "")) for number in range(1, max(self._shown, default=0) + 1)]

    @property
    def styled(self) -> list[str]:
        """The lines of the screen with the escape sequences of their styles. The command must be waiting: what it wrote last
        counts as a whole line.
        """
        found = [*_LINE.finditer(self._text[-_LONGEST_LINE:])]
        if found and found[-1][1] is not None:
            self._shown[int(found[-1][1])] = found[-1][2]
        return [self._shown.get(number, "") for number in range(1, max(self._shown, default=0) + 1)]

    @property
    def text(self) -> str:
        """The screen."""
        return "\n".join(self.lines)

    def wait_for(self, what: Callable[[str], object], name: str) -> str:
        """The screen, once `what` of it is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not what(self.text):
            assert time.monotonic() < deadline, f"no {name}:\n{self.text}"
            self.read()
        return self.text


@contextlib.contextmanager
def on_screen(*words: str, columns: int = 80, lines: int = 24) -> Iterator[Screen]:
    """`streamgauge top` with these words, in a pseudo terminal of this size; killed at the end if it still runs."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {name: value for name, value in CLEAN.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "streamgauge", "top", *words],
        stdin=its,
        stdout=its,
        stderr=its,
        env={**environment, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(its)
    try:
        yield Screen(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE_S)
        os.close(ours)
