"""The command line: parses the arguments, loads the settings, runs one command. It is a contract for users' scripts.

Messages go to stderr, results to stdout. Exit codes are those of `errors.py`.
"""

import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamgauge.cli.commands import parse
from streamgauge.errors import BUG, DONE, INTERRUPTED, UNAVAILABLE, USAGE, StreamgaugeError
from streamgauge.runtime.redaction import redacted_text

if TYPE_CHECKING:
    from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code. Shows a traceback only if STREAMGAUGE_DEBUG is set."""
    _open_streams()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Records are JSON, whatever the locale. A name of a file may hold bytes that are not UTF-8.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except SystemExit as exited:  # the parser has printed its message
        return exited.code if isinstance(exited.code, int) else USAGE
    except Terminated:
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed it
        return DONE
    except OSError as error:
        _trace(error)
        sys.stderr.write(redacted_text(f"streamgauge: the operating system reports an error: {error}\n"))
        return UNAVAILABLE
    except Exception as error:  # noqa: BLE001 - an internal error, too, ends with one sentence
        return _report_bug(error)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _flush_output()


def _open_streams() -> None:
    """Replaces the standard streams that the process was started without (`>&-`), for which Python has None, by no device.

    Their descriptors are taken as well, also for children: a file or a socket that got one of them would receive what a
    library or a child prints.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    from pathlib import Path  # which takes time to import

    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free
    sys.stdin = sys.stdin or Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - until the process ends
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the process ends


def _run(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if instruction := os.environ.get("_STREAMGAUGE_COMPLETE"):  # a shell asks
        from streamgauge.cli.completion import complete

        return complete(instruction)
    args = parse(words)
    try:
        import importlib

        from streamgauge.cli.extras import check_extra
        from streamgauge.settings.declarations import Settings
        from streamgauge.settings.sources import load

        check_extra(args.command)
        settings = load(args.settings, args.config or _settings_file(), args.serves) if args.loads else Settings()
        command = importlib.import_module(f"streamgauge.cli.{args.module}")
        if not gc.isenabled():  # as in a process of its own (`__main__`)
            gc.freeze()  # what is imported stays: no collection has to visit it
            gc.enable()
        _raise_on_signals()
        return int(command.run(settings, args))
    except Terminated:
        # The exit code is that of an ordered stop (docs/reference/commands.md), which does not say that something is missing.
        sys.stderr.write(f"streamgauge {args.command}: SIGTERM ended it before it was done\n")
        return DONE
    except StreamgaugeError as error:
        _print_error(args.command, error)
        return error.exit_code


def _print_error(command: str, error: StreamgaugeError) -> None:
    import logging  # which takes time to import

    from streamgauge.runtime.log_time import logs_with_times

    sys.stdout.flush()  # keeps the order if both streams go to one place
    if logs_with_times():  # a command that stays: this is the last line of its log
        logging.getLogger("streamgauge").error("%s", redacted_text(f"{command}: {error}"))
    else:
        sys.stderr.write(redacted_text(f"streamgauge {command}: {error}\n"))


class Terminated(KeyboardInterrupt):
    """SIGTERM as an exception: asyncio and other libraries pass it on as they do Ctrl-C."""


def _raise_on_signals() -> None:
    """Makes signals raise an exception from here on. Not earlier, because an import may swallow that exception."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def _flush_output() -> None:
    """Flushes the output. If its reader has closed it, discards it: Python's own flush would exit with code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _settings_file() -> "Path | None":
    from pathlib import Path  # which takes time to import

    named = os.environ.get("STREAMGAUGE_CONFIG")
    return Path(named) if named else None


def _report_bug(error: Exception) -> int:
    _trace(error)
    sys.stderr.write(
        redacted_text(f"streamgauge: internal error: {type(error).__name__}: {error}\n")
        + "Please report it. STREAMGAUGE_DEBUG=1 shows the traceback.\n"
    )
    return BUG


def _trace(error: Exception) -> None:
    if os.environ.get("STREAMGAUGE_DEBUG"):
        import traceback

        sys.stderr.write(redacted_text("".join(traceback.format_exception(error))))
