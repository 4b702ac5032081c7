"""The terminal of `top`: reads keys without echo, and writes the lines that changed, so that a slow link carries little."""

import codecs
import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from rich.console import Console
from rich.text import Text

from streamgauge.top.keys import is_unfinished, keys_of

# How long the rest of an escape sequence may take (seconds): over a slow link it may come in two reads. A single escape
# character is the key.
REST_S = 0.1

# Another screen, without a cursor, and without a line break after the last column; and back.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J", "\x1b[?7h\x1b[?25h\x1b[?1049l"


class Terminal:
    """The terminal at stdin and stdout. `wake` may be called on any thread, and ends `keys` early."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: list[str] = []
        self._size = (0, 0)
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._stdin: int | None = None  # where keys come from
        self._before: list[Any] = []  # the attributes of that terminal before
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """The terminal's other screen. What the terminal was before is restored, also after SIGTERM."""
        if sys.stdin is not None and sys.stdin.isatty():
            self._stdin = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._stdin)
        handlers = {
            signal.SIGTERM: signal.signal(signal.SIGTERM, signal.default_int_handler),
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, self._resized),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._suspended),
        }
        try:
            self._enter()
            yield
        finally:
            self._leave()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(self._reader)
            os.close(self._writer)

    def _enter(self) -> None:
        if self._stdin is not None:
            tty.setcbreak(self._stdin)
        self._write(_ENTER)
        self._shown = []

    def _leave(self) -> None:
        self._write(_LEAVE)
        if self._stdin is not None:
            termios.tcsetattr(self._stdin, termios.TCSADRAIN, self._before)

    def wake(self) -> None:
        """Ends `keys` before its time."""
        with contextlib.suppress(OSError):  # full: it is awake; closed: it has ended
            os.write(self._writer, b".")

    def keys(self, patience_s: float) -> list[str]:
        """The keys that were pressed. Waits for one until `wake` is called, or `patience_s` (seconds) have passed.

        Raises KeyboardInterrupt once the terminal is gone.
        """
        stdin = self._stdin
        files = [self._reader] if stdin is None else [self._reader, stdin]
        ready, _, _ = select.select(files, [], [], patience_s)
        if self._reader in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 4_096)
        if stdin is None or stdin not in ready:
            return []
        text = self._read(stdin)
        while is_unfinished(text) and select.select([stdin], [], [], REST_S)[0]:
            text += self._read(stdin)
        return list(keys_of(text))

    def _read(self, stdin: int) -> str:
        got = os.read(stdin, 4_096)
        if not got:
            raise KeyboardInterrupt
        return self._decoder.decode(got)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return self._console.width, self._console.height

    def show(self, lines: Sequence[Text]) -> None:
        """Writes the lines that differ from those that are shown."""
        if self._size != self.size:
            self._size, self._shown = self.size, []
        rendered = [self._rendered(line) for line in lines]
        changed = [] if self._shown else ["\x1b[2J"]
        for at, text in enumerate(rendered):
            if at >= len(self._shown) or self._shown[at] != text:
                changed.append(f"\x1b[{at + 1};1H\x1b[2K{text}")
        changed += [f"\x1b[{at + 1};1H\x1b[2K" for at in range(len(rendered), len(self._shown))]
        self._shown = rendered
        if changed:
            self._write("".join(changed))

    def _rendered(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(line, end="", no_wrap=True, crop=True, highlight=False)
        return captured.get()

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()

    def _suspended(self, number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its screen and terminal back until `fg`."""
        self._leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # the process stops here
        signal.signal(number, self._suspended)
        self._enter()
        self.wake()

    def _resized(self, _number: int, _frame: FrameType | None) -> None:
        self.wake()
