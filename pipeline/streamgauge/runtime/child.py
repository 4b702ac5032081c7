"""The interface of a command and its child processes: the child's settings, signals, and sentences for the operator.

A parent gives a child its settings as a line of JSON: a dataclass, which may hold paths.
"""

import contextlib
import signal
import sys
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from streamgauge.runtime.log_time import log_with_times, rfc3339
from streamgauge.runtime.redaction import redacted_text


def leave_terminal_to_parent() -> None:
    """Ignore the signals of terminals, and log with times: a child ends when its parent requests it, or has ended itself.

    Children share their parent's session (decision 18). The kernel also sends SIGHUP, with a SIGCONT, when the parent ends
    while the child is stopped, and SIGTTOU for a line that is written to a terminal set to `tostop`.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    log_with_times()


def say(sentence: str) -> None:
    """Write a sentence for the operator to stderr, which the child shares with its parent."""
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed: the child must not end for it
        sys.stderr.write(f"{rfc3339()} streamgauge: {redacted_text(sentence)}\n")
        sys.stderr.flush()


Settings = TypeVar("Settings")


def encode_settings(settings: object) -> bytes:
    """The settings as JSON, without a line break."""
    return msgspec.json.encode(settings, enc_hook=str)


def decode_settings(line: bytes, kind: type[Settings]) -> Settings:
    """The settings in a line of JSON. Raises msgspec.DecodeError if they are not of this kind."""
    return msgspec.json.decode(line, type=kind, dec_hook=_as_path)


def _as_path(kind: type, value: Any) -> Path:
    if kind is not Path or not isinstance(value, str):
        raise ValueError(f"{kind.__name__} expected")
    return Path(value)
