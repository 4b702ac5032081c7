"""The command line: parses the arguments, loads the settings, runs one command. It is a contract for users' scripts.

Messages go to stderr, results to stdout. Exit codes are those of `errors.py`.
"""

import argparse
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from streamgauge import __version__
from streamgauge.cli import deadletter_parser, ledger_parser
from streamgauge.cli.kafka_parser import TOPICS_EPILOG, create_options, kafka_options
from streamgauge.cli.parser import PACKETS, Commands, Parser
from streamgauge.cli.settings_sources import load
from streamgauge.cli.tap_parser import admin_options, capture_options, data_dir_option, tap_options
from streamgauge.config import WORKER_ADMIN_PORT
from streamgauge.core.dialects import BY_NAME
from streamgauge.errors import BUG, DONE, INTERRUPTED, UNAVAILABLE, USAGE, StreamgaugeError
from streamgauge.runtime.redaction import redacted_text

_EPILOG = """\
examples:
  streamgauge up --upstream openai=https://api.openai.com --upstream anthropic=https://api.anthropic.com
      then point clients at http://127.0.0.1:8080/openai/v1 and http://127.0.0.1:8080/anthropic
  streamgauge ledger query --output jsonl --limit 10
  streamgauge replay recording.sse
  streamgauge demo

Each setting can be an option, STREAMGAUGE_<NAME> in the environment, or a key of the settings file (--config, TOML).
Options only: --agent, --dialect, --output, --serve, and the filters of `ledger query` and `deadletter`.
Exit codes: 0 success, 1 finished and found a problem, 2 wrong usage or settings, 3 a required service is unavailable,
70 internal error, 75 a worker was stuck, 130 ended by Ctrl-C.
"""

_UP_EPILOG = """\
examples:
  streamgauge up --upstream openai=https://api.openai.com
      clients use http://127.0.0.1:8080/openai/v1
  streamgauge up --upstream http://127.0.0.1:8000 --listen 0.0.0.0:8080
      a single upstream without a name: clients use the upstream's own paths
  streamgauge up --agent
      relays nothing: an agent for taps in applications (httpx, ASGI), which must use the same data directory
metrics: http://127.0.0.1:9464/metrics    records: streamgauge ledger query --output jsonl
"""

_TAP_EPILOG = """\
examples:
  streamgauge topics create --kafka broker:9092
  streamgauge tap --upstream openai=https://api.openai.com --kafka broker:9092 --workers 2
  streamgauge tap --agent --kafka broker:9092
      relays nothing: an agent for taps in applications (httpx, ASGI), which must use the same data directory
"""

_PACKETS_EPILOG = """\
examples:
  streamgauge up packets --interface lo --port 8000
      records the responses of a server on this host, without Kafka; requires the capability CAP_NET_RAW
  streamgauge tap packets --interface eth0 --port vllm=8000,embed=8001 --kafka broker:9092
  streamgauge tap packets --pcap capture.pcap --kafka broker:9092
      (without a broker: streamgauge replay capture.pcap prints the records)
The capture reads only plain HTTP/1.1: run it where TLS is already terminated, on the host of the model server.
"""

_WORKER_EPILOG = """\
example:
  streamgauge worker --kafka broker:9092 --data-dir /var/lib/streamgauge
Workers share the partitions: start up to one for each partition, each with its own --data-dir.
"""

_REPLAY_EPILOG = """\
examples:
  streamgauge replay recording.sse
  streamgauge replay recordings/ --output jsonl > records.jsonl
  streamgauge replay session.har tests/cassettes/ dump.flow capture.pcap
  streamgauge replay ~/.local/state/streamgauge/spool.sqlite
  streamgauge replay --kafka broker:9092
Prints one record for each response body and each LLM exchange, in the order of the arguments (files of a directory by path),
then the records of the segments topic, from its beginning to its current end.
Exit code 1: a file is damaged; all other files are replayed.
"""

_DEMO_EPILOG = """\
examples:
  streamgauge demo            plays every scenario once, prints a summary, exits 0 if all results are as expected
  streamgauge demo --serve    repeats the scenarios until Ctrl-C
"""

# Options that are not settings and are not passed to `settings_sources.load`.
NOT_SETTINGS = {
    "agent",
    "child",
    "command",
    "action",
    "config",
    "module",
    "paths",
    "dialect",
    "output",
    "serve",
    *deadletter_parser.NOT_SETTINGS,
    *ledger_parser.NOT_SETTINGS,
}


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    about = "Measures streaming LLM responses: latency, outcome and token usage of each one."
    parser = Parser(prog="streamgauge", description=about, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"streamgauge {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (_add_up, _add_tap, _add_worker, _add_replay, _add_demo, _add_ledger, _add_topics, _add_deadletter):
        add(commands)
    return parser


def _command(commands: Commands, name: str, module: str, about: str, epilog: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=about, description=about[0].upper() + about[1:] + ".", epilog=epilog
    )
    parser.set_defaults(module=module)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (TOML)")
    return parser


def _add_up(commands: Commands) -> None:
    up = _command(commands, "up", "up", "capture, assemble and store streams on one host, without Kafka", _UP_EPILOG)
    tap_options(up)
    _ledger_option(up)
    _record_options(up)
    packets = _add_packets(commands, "up")
    _ledger_option(packets)
    _record_options(packets)


def _add_tap(commands: Commands) -> None:
    tap = _command(commands, "tap", "tap", "relay LLM traffic and send what is captured to Kafka", _TAP_EPILOG)
    tap_options(tap)
    kafka_options(tap)
    tap.add_argument("--workers", metavar="N", help="relay processes (default: 1)")
    tap.add_argument(
        "--child",
        action="store_true",
        help=argparse.SUPPRESS,  # for taps in applications: the agent ends when its stdin ends
    )
    kafka_options(_add_packets(commands, "tap"))


def _add_packets(commands: Commands, command: str) -> argparse.ArgumentParser:
    """Adds the packet tap: `up packets`, `tap packets`."""
    about = f"like `{command}`, but relay nothing: capture packets on a network interface or from a file"
    packets = _command(commands, f"{command} {PACKETS}", "packets", about, _PACKETS_EPILOG)
    packets.add_argument(
        "--interface", metavar="NAME", help="network interface, such as lo or eth0; any: all interfaces"
    )
    packets.add_argument(
        "--port", "--server-ports", dest="server_ports", action="append", metavar="[NAME=]PORT[,...]",
        help="ports of the model servers; NAME is the name of the upstream (default: ADDRESS:PORT)",
    )  # fmt: skip
    packets.add_argument("--pcap", metavar="FILE", help="read a pcap or pcapng file instead of an interface")
    capture_options(packets)
    return packets


def _add_worker(commands: Commands) -> None:
    worker = _command(commands, "worker", "worker", "assemble records from what taps sent to Kafka", _WORKER_EPILOG)
    kafka_options(worker)
    admin_options(worker, f"127.0.0.1:{WORKER_ADMIN_PORT}")
    data_dir_option(worker)
    _ledger_option(worker)
    _record_options(worker)
    worker.add_argument("--drain-timeout", metavar="SECONDS", help="time limit to finish after SIGTERM (default: 30)")
    worker.add_argument(
        "--on-stop",
        metavar="leave|stay",
        help="on shutdown, leave the consumer group at once, or stay a member for 10 s so that a restart keeps its "
        "partitions (default: leave)",
    )
    expired = (
        "continue although the offsets of the consumer group have expired; the worker's error message shows the ID"
    )
    worker.add_argument("--segments-id", metavar="ID", help=expired)


def _add_replay(commands: Commands) -> None:
    replay = _command(commands, "replay", "replay", "assemble records from recorded streams", _REPLAY_EPILOG)
    replay.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="FILE|DIR",
        help="response bodies, HAR files, vcrpy cassettes, mitmproxy flows, packet captures or a tap's spool; auto-detected",
    )
    kafka_options(replay)
    replay.add_argument("--dialect", choices=["auto", *BY_NAME], default="auto", help="API format (default: detected)")
    replay.add_argument("--output", choices=["table", "jsonl"], default="table")
    replay.add_argument("--capture", choices=["masked", "full"], help="redact or keep generated text (default: masked)")
    _record_options(replay)


def _add_demo(commands: Commands) -> None:
    demo = _command(
        commands, "demo", "demo", "send simulated traffic through a real tap and check the records", _DEMO_EPILOG
    )
    demo.add_argument("--serve", action="store_true", help="repeat the scenarios until Ctrl-C")
    demo.add_argument("--listen", metavar="HOST:PORT", help="address of the tap (default: any free port)")
    admin_options(demo, "any free port")
    demo.add_argument("--data-dir", metavar="DIR", help="directory for spool, ledger and keys (default: temporary)")


def _add_ledger(commands: Commands) -> None:
    ledger = commands.add_parser("ledger", help="query stored records", epilog=ledger_parser.EPILOG)
    actions = ledger.add_subparsers(dest="action", metavar="ACTION", required=True)
    about = "print records, or totals of streams and tokens"
    query = _command(actions, "query", "ledger", about, ledger_parser.EPILOG)
    _ledger_option(query)
    data_dir_option(query)
    ledger_parser.query_options(query)


def _add_topics(commands: Commands) -> None:
    topics = commands.add_parser("topics", help="create or describe the Kafka topics", epilog=TOPICS_EPILOG)
    actions = topics.add_subparsers(dest="action", metavar="ACTION", required=True)
    about = "create missing topics and report how existing ones differ"
    create = _command(actions, "create", "topics", about, TOPICS_EPILOG)
    create_options(create)
    kafka_options(_command(actions, "describe", "topics", "show the existing topics", TOPICS_EPILOG))


def _add_deadletter(commands: Commands) -> None:
    epilog = deadletter_parser.EPILOG
    letters = commands.add_parser("deadletter", help="list, show or send back dead letters", epilog=epilog)
    actions = letters.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about, add in (
        ("list", "list dead letters, oldest first", deadletter_parser.list_options),
        ("show", "show one dead letter: source, reason and content", deadletter_parser.show_options),
        ("retry", "send dead letters back to the topic that they came from", deadletter_parser.retry_options),
    ):
        action = _command(actions, name, "deadletter", about, epilog)
        add(action)
        kafka_options(action)


def _record_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--abandon-after",
        metavar="SECONDS",
        help="close a tap's open streams after this many seconds without a message from it (default: 3600)",
    )
    parser.add_argument(
        "--stall-seconds", metavar="SECONDS", help="count longer gaps between token events as stalls (default: 5)"
    )


def _ledger_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledger", metavar="URL", help="sqlite:///FILE (default: DATA_DIR/ledger.sqlite)")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code. Shows a traceback only if STREAMGAUGE_DEBUG is set."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # records are JSON, whatever the locale
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except SystemExit as left:  # argparse has printed its message
        return left.code if isinstance(left.code, int) else USAGE
    except Terminated:
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it
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
        _settle()


def _run(argv: Sequence[str] | None) -> int:
    args = build_parser().parse_args(argv)
    flags = {name: value for name, value in vars(args).items() if name not in NOT_SETTINGS}
    try:
        settings = load(flags, args.config or _settings_file())
        command = importlib.import_module(f"streamgauge.cli.{args.module}")
        _raise_on_signals()
        return int(command.run(settings, args))
    except StreamgaugeError as error:
        _say_why(args.command, error)
        return error.exit_code


def _say_why(command: str, error: StreamgaugeError) -> None:
    sys.stdout.flush()  # keeps the order if both streams go to one place
    sys.stderr.write(redacted_text(f"streamgauge {command}: {error}\n"))


class Terminated(KeyboardInterrupt):
    """SIGTERM as an exception: asyncio and other libraries pass it on as they do Ctrl-C."""


def _raise_on_signals() -> None:
    """From here on a signal raises an exception. It is not set up earlier, because an import may swallow that exception."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def _settle() -> None:
    """Flushes the output. If its reader is gone, discards it, so that Python's own flush does not exit with code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _settings_file() -> Path | None:
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
        traceback.print_exception(error)
