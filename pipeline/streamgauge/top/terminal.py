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
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """The terminal's other screen. What the terminal was before is restored, also after SIGTERM."""
        stdin = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        before = None if stdin is None else termios.tcgetattr(stdin)
        handlers = {
            signal.SIGTERM: signal.signal(signal.SIGTERM, signal.default_int_handler),
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, self._resized),
        }
        try:
            if stdin is not None:
                tty.setcbreak(stdin)
            self._write(_ENTER)
            yield
        finally:
            self._write(_LEAVE)
            if stdin is not None and before is not None:
                termios.tcsetattr(stdin, termios.TCSADRAIN, before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(self._reader)
            os.close(self._writer)

    def wake(self) -> None:
        """Ends `keys` before its time."""
        with contextlib.suppress(OSError):  # full: it is awake; closed: it has ended
            os.write(self._writer, b".")

    def keys(self, patience_s: float) -> list[str]:
        """The keys that were pressed. Waits for one until `wake` is called, or `patience_s` (seconds) have passed.

        Raises KeyboardInterrupt once the terminal is gone.
        """
        stdin = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
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

    def _resized(self, _number: int, _frame: FrameType | None) -> None:
        self.wake()
