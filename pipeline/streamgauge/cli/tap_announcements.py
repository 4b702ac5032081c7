"""Messages to the operator from the commands that run a tap: addresses and directories, and what remains after a stop."""

from streamgauge.cli.tap_process import Tap, say
from streamgauge.runtime.process_group import streams_drain_s
from streamgauge.runtime.socket_directory import SOCKET
from streamgauge.settings.declarations import Settings
from streamgauge.settings.types import version_at_end
from streamgauge.spool.read_counters import read_balance
from streamgauge.taps.proxy.pump_handle import BUILT


def say_stopping(command: str, settings: Settings) -> None:
    """Prints what a stop waits for."""
    whole_s, streams_s = settings.drain_timeout, streams_drain_s(settings.drain_timeout)
    say(
        f"{command}: stopping; open streams may go on for up to {streams_s:g} s, and up to {whole_s - streams_s:g} s are"
        f" for writing what was captured (--drain-timeout {whole_s:g})"
    )


def announce(command: str, tap: Tap, settings: Settings) -> None:
    """Prints the addresses and the data directory."""
    if not settings.upstream:
        place = settings.data_dir / "run" / SOCKET
        say(f"{command}: agent for taps in applications, at {place}; it relays nothing")
        environment = f"STREAMGAUGE_DATA_DIR={settings.data_dir}"
        say(f"{command}: run the applications as this user, with {environment} in their environment")
    for upstream in settings.upstream:
        prefix = f"/{upstream.name}" if upstream.name else ""
        scheme = "https" if settings.tls_certificate else "http"
        say(f"{command}: {scheme}://{tap.address}{prefix} -> {upstream.url}")
        if version := version_at_end(upstream.url):
            say(
                f"{command}: that URL ends in {version}, so clients' base URL is {scheme}://{tap.address}{prefix}, without"
                f" {version}: with it, requests go to {version}{version}"
            )
    if settings.upstream and settings.pump == "auto" and not BUILT:
        say(f"{command}: the pump (native C code) was not built at installation: the relay uses more CPU without it")
    say(f"{command}: {tap.pages}, data in {settings.data_dir}")


def say_undelivered(command: str, settings: Settings) -> None:
    """Prints how many reads wait in the spool when a tap has ended without its broker."""
    waiting = read_balance(settings.data_dir / "counters").waiting
    if waiting:
        where = f"the next start with --data-dir {settings.data_dir} delivers them"
        say(f"{command}: {waiting} reads stay in the spool; {where}")
