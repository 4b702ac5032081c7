"""The interface of a supervisor and its child processes: settings, messages, signals, and sentences for the operator.

A supervisor writes a child's settings to its stdin as a line of JSON: a dataclass, which may hold paths. The child answers on
its stdout with `ready`, or with a `StartFailure` as a line of JSON. Further lines to a collector's stdin are a `Status` or a
`Stop`. The end of stdin means that the supervisor has ended.
"""

import contextlib
import logging
import signal
import sys
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from streamgauge.errors import UNAVAILABLE, USAGE, StreamgaugeError, Unavailable, UsageFault
from streamgauge.runtime.log_time import log_with_times, rfc3339
from streamgauge.runtime.redaction import redacted_text


def leave_terminal_to_parent(level: int = logging.WARNING) -> None:
    """Ignore the signals of terminals, and log with times: a child ends when its parent requests it, or has ended itself.
    `level`: of the logging module.

    Children share their parent's session (decision 18). The kernel also sends SIGHUP, with a SIGCONT, when the parent ends
    while the child is stopped, and SIGTTOU for a line that is written to a terminal set to `tostop`.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    log_with_times(level)


def say(sentence: str) -> None:
    """Write a sentence for the operator to stderr, which a child shares with its supervisor."""
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed: a tap must not end for it
        sys.stderr.write(f"{rfc3339()} streamgauge: {redacted_text(sentence)}\n")
        sys.stderr.flush()


class Status(msgspec.Struct, frozen=True, tag="status"):
    """The state of a supervisor's children. `serving`: a relay accepts requests, or an agent's collector accepts data from
    taps; `processes`: the name and the process id of each process but the collector.
    """

    serving: bool
    processes: list[tuple[str, int]]


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """A request to stop, in seconds of the monotonic clock: open streams may go on until `streams_end_s`, and the data has to
    be written or delivered until `end_s`.
    """

    streams_end_s: float
    end_s: float


class StartFailure(msgspec.Struct, frozen=True):
    """Why a child did not start: a sentence for the operator, and the exit code of the command."""

    sentence: str
    exit_code: int

    def error(self) -> StreamgaugeError:
        """The error that the child raised, for the command to raise."""
        kinds: dict[int, type[StreamgaugeError]] = {USAGE: UsageFault, UNAVAILABLE: Unavailable}
        return kinds.get(self.exit_code, StreamgaugeError)(self.sentence)


READY = b"ready"

_MESSAGE: msgspec.json.Decoder[Status | Stop] = msgspec.json.Decoder(Status | Stop)
_START_FAILURE = msgspec.json.Decoder(StartFailure)


def decode_message(line: bytes) -> Status | Stop:
    """A message to a collector. Raises msgspec.DecodeError."""
    return _MESSAGE.decode(line)


def start_failure(line: bytes) -> StartFailure | None:
    """The failure that a child reports in its first line; None if the line is something else."""
    try:
        return _START_FAILURE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def write_to_supervisor(line: bytes) -> None:
    """Write `READY`, or an encoded StartFailure, to stdout."""
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


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
