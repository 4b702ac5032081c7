"""The command line: parses, loads the settings, calls one command. A contract: scripts of others stand on it.

Messages go to stderr; stdout is for what was asked for. Exit codes are those of `errors.py`.
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

Every option is also STREAMGAUGE_<NAME> in the environment and a key of the settings file (--config, TOML).
Exit codes: 0 done, 1 found what it looks for, 2 wrong usage, 3 a part it needs is not to be had, 70 a bug of ours, 75 stuck.
"""

_UP_EPILOG = """\
examples:
  streamgauge up --upstream openai=https://api.openai.com
      clients use http://127.0.0.1:8080/openai/v1
  streamgauge up --upstream http://127.0.0.1:8000 --listen 0.0.0.0:8080
      a single upstream without a name: clients use its paths as they are
  streamgauge up --agent
      relays nothing: an agent for taps in applications (httpx, ASGI), which find it by its data directory
metrics: http://127.0.0.1:9464/metrics    records: streamgauge ledger query --output jsonl
"""

_TAP_EPILOG = """\
examples:
  streamgauge topics create --kafka broker:9092
  streamgauge tap --upstream openai=https://api.openai.com --kafka broker:9092 --workers 2
  streamgauge tap --agent --kafka broker:9092
      relays nothing: an agent for taps in applications (httpx, ASGI), which find it by its data directory
"""

_PACKETS_EPILOG = """\
examples:
  streamgauge up packets --interface lo --port 8000
      records of what a server on this host answers, without Kafka; it needs the capability CAP_NET_RAW
  streamgauge tap packets --interface eth0 --port vllm=8000,embed=8001 --kafka broker:9092
  streamgauge tap packets --pcap capture.pcap --kafka broker:9092
      (streamgauge replay capture.pcap prints the records, and needs no broker)
Plain HTTP/1.1 alone is followed: capture where TLS has ended, beside the model's server.
"""

_WORKER_EPILOG = """\
example:
  streamgauge worker --kafka broker:9092 --data-dir /var/lib/streamgauge
Start as many as you like, each with a data directory of its own: they share the partitions.
"""

_REPLAY_EPILOG = """\
examples:
  streamgauge replay recording.sse
  streamgauge replay recordings/ --output jsonl > records.jsonl
  streamgauge replay session.har tests/cassettes/ dump.flow capture.pcap
  streamgauge replay ~/.local/state/streamgauge/spool.sqlite
  streamgauge replay --kafka broker:9092
One record for each raw body and each LLM exchange, in the order of the arguments, a directory's files by path; then those
of the topic's bundles, from its beginning to its present end. 1: a file is broken; the others are replayed all the same.
"""

_DEMO_EPILOG = """\
examples:
  streamgauge demo            plays every scenario once, prints a summary, exits 0 if all are as expected
  streamgauge demo --serve    stays up and plays on, until Ctrl-C
"""

# What is no setting, and so is not handed to `config.load`.
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
    """The whole command line, as argparse holds it."""
    about = "Measures every LLM token stream: how fast it came, how it ended, what it used."
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
    up = _command(commands, "up", "up", "tap, records, metrics and ledger in one process group, no Kafka", _UP_EPILOG)
    _tap_options(up)
    _ledger_option(up)
    _record_options(up)
    packets = _add_packets(commands, "up")
    _ledger_option(packets)
    _record_options(packets)


def _add_tap(commands: Commands) -> None:
    tap = _command(commands, "tap", "tap", "relay LLM traffic and ship what it captured to Kafka", _TAP_EPILOG)
    _tap_options(tap)
    kafka_options(tap)
    tap.add_argument("--workers", metavar="N", help="relay processes (default: 1)")
    tap.add_argument(
        "--child",
        action="store_true",
        help=argparse.SUPPRESS,  # as taps in applications start it: it ends with stdin
    )
    kafka_options(_add_packets(commands, "tap"))


def _add_packets(commands: Commands, command: str) -> argparse.ArgumentParser:
    """The tap that follows packets: `up packets`, `tap packets`."""
    about = f"{command}, of packets on a network interface or in a capture file; nothing is relayed"
    packets = _command(commands, f"{command} {PACKETS}", "packets", about, _PACKETS_EPILOG)
    packets.add_argument("--interface", metavar="NAME", help="network interface, as lo or eth0; any: all of them")
    packets.add_argument(
        "--port", "--server-ports", dest="server_ports", action="append", metavar="[NAME=]PORT[,...]",
        help="where the servers listen there; without NAME an upstream is named ADDRESS:PORT",
    )  # fmt: skip
    packets.add_argument("--pcap", metavar="FILE", help="a pcap or pcapng file, in place of an interface")
    _capture_options(packets)
    return packets


def _add_worker(commands: Commands) -> None:
    worker = _command(commands, "worker", "worker", "make records of what taps shipped to Kafka", _WORKER_EPILOG)
    kafka_options(worker)
    _admin_options(worker, f"127.0.0.1:{WORKER_ADMIN_PORT}")
    _data_dir_option(worker)
    _ledger_option(worker)
    _record_options(worker)
    worker.add_argument("--drain-timeout", metavar="SECONDS", help="to hand over after SIGTERM (default: 30)")
    worker.add_argument(
        "--on-stop", metavar="leave|stay", help="in the group, to come back within 10 s (default: leave)"
    )
    expired = "go on though the group's offsets have expired; the worker's error says which id"
    worker.add_argument("--segments-id", metavar="ID", help=expired)


def _add_replay(commands: Commands) -> None:
    replay = _command(commands, "replay", "replay", "make records of recorded streams", _REPLAY_EPILOG)
    replay.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="FILE|DIR",
        help="raw bodies, HAR, cassettes of vcrpy, flows of mitmproxy, packet captures, a tap's spool: the content tells",
    )
    kafka_options(replay)
    replay.add_argument("--dialect", choices=["auto", *BY_NAME], default="auto", help="default: the content tells")
    replay.add_argument("--output", choices=["table", "jsonl"], default="table")
    replay.add_argument("--capture", choices=["masked", "full"], help="default: masked")
    _record_options(replay)


def _add_demo(commands: Commands) -> None:
    demo = _command(commands, "demo", "demo", "play simulated providers through the real tap, and watch", _DEMO_EPILOG)
    demo.add_argument("--serve", action="store_true", help="stay up and play on")
    demo.add_argument("--listen", metavar="HOST:PORT", help="of the tap (default: any free port)")
    _admin_options(demo, "any free port")
    demo.add_argument("--data-dir", metavar="DIR", help="default: a temporary one")


def _add_ledger(commands: Commands) -> None:
    ledger = commands.add_parser("ledger", help="look at the records", epilog=ledger_parser.EPILOG)
    actions = ledger.add_subparsers(dest="action", metavar="ACTION", required=True)
    about = "print records, or totals of streams and tokens"
    query = _command(actions, "query", "ledger", about, ledger_parser.EPILOG)
    _ledger_option(query)
    _data_dir_option(query)
    ledger_parser.query_options(query)


def _add_topics(commands: Commands) -> None:
    topics = commands.add_parser("topics", help="create or describe topics", epilog=TOPICS_EPILOG)
    actions = topics.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = _command(actions, "create", "topics", "create the topics; where they are there, compare", TOPICS_EPILOG)
    create_options(create)
    kafka_options(_command(actions, "describe", "topics", "show the topics as they are", TOPICS_EPILOG))


def _add_deadletter(commands: Commands) -> None:
    epilog = deadletter_parser.EPILOG
    letters = commands.add_parser("deadletter", help="look at what workers could not read", epilog=epilog)
    actions = letters.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about, add in (
        ("list", "list dead letters, oldest first", deadletter_parser.list_options),
        ("show", "show one dead letter: where from, why, and what is in it", deadletter_parser.show_options),
        ("retry", "send dead letters back to where they came from", deadletter_parser.retry_options),
    ):
        action = _command(actions, name, "deadletter", about, epilog)
        add(action)
        kafka_options(action)


def _tap_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--upstream",
        action="append",
        metavar="NAME=URL",
        help="a provider's endpoint, at /NAME/...; repeatable; URL alone: a single one without prefix, named by its host",
    )
    parser.add_argument(
        "--agent", action="store_true", help="relay nothing: take what taps in applications capture (httpx, ASGI)"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="where clients connect (default: 127.0.0.1:8080)")
    parser.add_argument("--connect-timeout", metavar="SECONDS", help="to connect to an upstream (default: 10)")
    parser.add_argument("--tls-certificate", metavar="FILE", help="listen with TLS: a PEM file, looked at for renewals")
    parser.add_argument("--tls-key", metavar="FILE", help="its key (default: in the same file)")
    parser.add_argument("--upstream-ca", metavar="FILE", help="further authorities for https upstreams (PEM)")
    parser.add_argument(
        "--upstream-certificate", metavar="FILE", help="shown to https upstreams that ask for one (PEM)"
    )
    parser.add_argument("--upstream-key", metavar="FILE", help="its key (default: in the same file)")
    parser.add_argument("--pump", metavar="WHEN", help="auto or off: the part in C, where it was built (default: auto)")
    parser.add_argument("--max-request-head", metavar="BYTES", help="a larger one gets a 431 (default: 64 KiB)")
    parser.add_argument("--max-request-body", metavar="BYTES", help="a larger one gets a 413 (default: any passes)")
    parser.add_argument("--max-connections", metavar="N", help="of clients at one time; more wait (default: 6000)")
    parser.add_argument(
        "--max-connections-per-address", metavar="N", help="of these from one address; more are closed (default: 3/4)"
    )
    _capture_options(parser)


def _capture_options(parser: argparse.ArgumentParser) -> None:
    """Of every tap that stays."""
    _admin_options(parser)
    _data_dir_option(parser)
    parser.add_argument("--capture", choices=["masked", "full"], help="full keeps generated text (default: masked)")
    parser.add_argument("--spool-bytes", metavar="BYTES", help="room for what is not delivered yet (default: 1 GiB)")
    parser.add_argument(
        "--spool-policy",
        metavar="POLICY",
        help="drop-newest or drop-oldest: whose reads are given up when it is full (default: drop-newest)",
    )
    parser.add_argument("--spool-age", metavar="SECONDS", help="how long reads may wait in it (default: 3 days)")
    parser.add_argument("--tenant-header", metavar="NAME", help="request header that names the tenant")
    parser.add_argument("--tenants", metavar="FILE", help="TOML file: credential_id = tenant")
    parser.add_argument(
        "--upstream-idle-timeout", metavar="SECONDS", help="without a byte from the upstream (default: 900)"
    )
    parser.add_argument("--drain-timeout", metavar="SECONDS", help="for open streams after SIGTERM (default: 30)")


def _record_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--abandon-after", metavar="SECONDS", help="of a tap's silence (default: 3600)")
    parser.add_argument("--stall-seconds", metavar="SECONDS", help="a longer gap is a stall (default: 5)")


def _admin_options(parser: argparse.ArgumentParser, default: str = "127.0.0.1:9464") -> None:
    parser.add_argument("--admin", metavar="HOST:PORT", help=f"metrics and health (default: {default})")
    parser.add_argument("--admin-host", action="append", metavar="NAME", help="a further Host name of the admin port")


def _data_dir_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", metavar="DIR", help="spool, ledger, keys (default: the user's state directory)")


def _ledger_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledger", metavar="URL", help="sqlite:///FILE (default: ledger.sqlite in the data directory)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code. Never shows a traceback, unless STREAMGAUGE_DEBUG is set."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # records are JSON, whatever the locale
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except SystemExit as left:  # argparse has said what it had to say
        return left.code if isinstance(left.code, int) else USAGE
    except Terminated:
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has read enough
        return DONE
    except OSError as error:
        _trace(error)
        sys.stderr.write(redacted_text(f"streamgauge: the system refuses: {error}\n"))
        return UNAVAILABLE
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug of ours still ends in one sentence
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
    sys.stdout.flush()  # where both go to one place, what came first stands first
    sys.stderr.write(redacted_text(f"streamgauge {command}: {error}\n"))


class Terminated(KeyboardInterrupt):
    """SIGTERM: asyncio and other libraries let it pass as they do a Ctrl-C."""


def _raise_on_signals() -> None:
    """A signal unwinds the command from here on. Before, an import may swallow what a signal raises in it."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def _settle() -> None:
    """What is still buffered for somebody who does not read any more must not fail when Python ends (code 120)."""
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
        redacted_text(f"streamgauge: a bug of ours: {type(error).__name__}: {error}\n")
        + "Please report it; STREAMGAUGE_DEBUG=1 shows where it happened.\n"
    )
    return BUG


def _trace(error: Exception) -> None:
    if os.environ.get("STREAMGAUGE_DEBUG"):
        traceback.print_exception(error)
