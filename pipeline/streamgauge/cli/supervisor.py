"""The process of `up` and `tap`: it starts, watches and stops a collector and relays, and does nothing else.

With --agent there is no relay and no port for clients: the tap is an *agent*, whose collector receives the data that taps in
applications capture. They find it at DATA_DIR/run/recorder.sock, through a link to a directory below TMPDIR
(`runtime/socket_directory.py`).
"""

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from streamgauge.cli.admin_port import check_admin
from streamgauge.cli.collector_settings import CollectorSettings
from streamgauge.cli.first_request import first_request, reachable
from streamgauge.cli.parser import Arguments
from streamgauge.cli.pump_fallback import PumpFallback
from streamgauge.cli.settings_files import kept_contents
from streamgauge.errors import Unavailable, UsageFault
from streamgauge.recorder.installation_key import UnusableKeyError, installation_key, previous_key
from streamgauge.runtime.certificates import ServerCertificate
from streamgauge.runtime.child import encode_settings, say
from streamgauge.runtime.data_directory import DataDirLock, unusable, warning_about
from streamgauge.runtime.listeners import Listeners, open_listeners, sockets_of
from streamgauge.runtime.process_group import Child, Group, streams_drain_s
from streamgauge.runtime.socket_directory import SOCKET, RuntimeDir
from streamgauge.runtime.stopping import StopSignal
from streamgauge.settings.attributes import TENANT
from streamgauge.settings.declarations import SETTINGS, Settings
from streamgauge.settings.sources import SECRET_VARIABLES
from streamgauge.settings.types import Upstream, version_at_end
from streamgauge.spool.read_counters import read_balance
from streamgauge.taps.proxy.client_access import client_tokens
from streamgauge.taps.proxy.pump_handle import BUILT
from streamgauge.taps.proxy.relay_settings import RelaySettings
from streamgauge.taps.proxy.request import TOKEN_HEADER
from streamgauge.taps.proxy.tls import upstream_context

# Makes the processes that capture, from the collector's socket and a descriptor that each of them must inherit.
Capturing = Callable[[str, int], list[Child]]


@dataclass
class Tap:
    """A running tap."""

    group: Group
    address: str | None  # where clients connect; an agent has none
    admin_url: str

    @property
    def pages(self) -> str:
        """What the admin port has, as a part of a sentence."""
        return f"page at {self.admin_url}/, metrics at {self.admin_url}/metrics"


def tap_settings(settings: Settings, args: Arguments, *, agent: bool) -> Settings:
    """The settings of a tap that relays, or of an agent, which has no upstreams.

    Raises UsageFault if the options select neither, or both.
    """
    if agent:
        if "upstream" in args.settings:
            raise UsageFault("--agent and --upstream exclude each other: give one of them")
        if settings.upstream:
            say("an agent relays nothing: the upstreams from the environment or the settings file are ignored")
        return replace(settings, upstream=())
    if not settings.upstream:
        raise UsageFault(
            "--upstream NAME=URL is missing: name a provider endpoint, as in --upstream openai=https://api.openai.com"
            " (or give --agent, to record what taps in applications capture)"
        )
    return settings


@contextlib.asynccontextmanager
async def running_tap(
    settings: Settings,
    to: Literal["ledger", "kafka"],
    process: str,
    *,
    capturing: Capturing | None = None,
    shows_streams: bool = False,
) -> AsyncIterator[Tap]:
    """Runs a tap while the block runs, then drains and stops it. Raises StreamgaugeError.

    `to`: where the collector delivers; `process`: the name that the page shows; `capturing`: makes the processes that capture
    if nothing is relayed; `shows_streams`: each finished stream is a line on stdout, if that is a terminal.
    `Tap.group.exit_code` is that of the command after the block.
    """
    check_keys(settings)
    check_certificates(settings)
    check_admin(settings)
    if to == "ledger":
        names_them = bool(settings.upstream or capturing)
        check_attributes(settings, names_them=names_them)
        if settings.text_age and settings.capture == "masked" and names_them:
            raise UsageFault("--text-age requires --capture full: a masked capture has no text")
    async with contextlib.AsyncExitStack() as stack:
        lock = stack.enter_context(await asyncio.to_thread(DataDirLock, settings.data_dir))
        await asyncio.to_thread(_check_data_dir, settings)
        runtime = stack.enter_context(RuntimeDir(settings.data_dir, to_be_found=not settings.upstream))
        clients = None
        if settings.upstream:
            arguments = settings.listen, "--listen", settings.workers
            clients = stack.enter_context(await asyncio.to_thread(open_listeners, *arguments))
        admin = stack.enter_context(Listeners(await asyncio.to_thread(sockets_of, settings.admin, "--admin")))
        terminal = stack.enter_context(_terminal()) if shows_streams else None
        files = kept_contents(settings)
        collector = _collector(
            CollectorSettings(
                settings, to, process, str(runtime.socket), tuple(admin.fds), terminal_fd=terminal, files=files
            ),
            runtime,
            lock,
        )
        group = _group(settings, collector, str(runtime.socket), clients, lock.children_fd, capturing)
        stack.push_async_callback(group.stop, settings.drain_timeout)
        await group.start()
        scheme = "https" if settings.admin_tls_certificate else "http"
        yield Tap(group, clients.address if clients else None, f"{scheme}://{reachable(admin.address)}")


@contextlib.contextmanager
def _terminal() -> Iterator[int | None]:
    """A descriptor of stdout for the collector, whose own stdout is a pipe; None if stdout is no terminal."""
    if not sys.stdout.isatty():
        yield None
        return
    descriptor = os.dup(sys.stdout.fileno())
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check_certificates(settings: Settings) -> None:
    """Checks the certificates before a relay does, so that the operator gets only one message. Raises UsageFault."""
    try:
        if settings.tls_certificate is not None:
            key = settings.tls_key, settings.tls_key_password_file
            ServerCertificate(settings.tls_certificate, *key, settings.tls_client_ca)
    except ValueError as error:
        raise UsageFault(f"--tls-certificate: {error}") from None
    try:
        client_tokens(settings.client_token_file)
    except ValueError as error:
        raise UsageFault(f"--client-token-file: {error}") from None
    try:
        if settings.upstream_ca is not None or settings.upstream_certificate is not None:
            upstream_context(
                settings.upstream_ca,
                settings.upstream_certificate,
                settings.upstream_key,
                settings.upstream_key_password_file,
            )
    except ValueError as error:
        raise UsageFault(f"--upstream-ca, --upstream-certificate: {error}") from None


def _check_data_dir(settings: Settings) -> None:
    """Warns about permissions of the data directory, and makes the key of digests if it is missing. Raises Unavailable.

    The collector does the same, but then the operator would get two messages for one error.
    """
    data_dir = settings.data_dir
    try:
        if warning := warning_about(data_dir):
            say(warning)
        installation_key(data_dir)
        previous_key(data_dir)
    except UnusableKeyError as error:
        raise Unavailable(str(error)) from None
    except OSError as error:
        raise unusable(data_dir, error) from None


def _collector(collector: CollectorSettings, runtime: RuntimeDir, lock: DataDirLock) -> Child:
    # Only the collector needs them. Not in its environment: other processes of this user can read that.
    secrets = {name: secret for name in SECRET_VARIABLES if (secret := os.environ.pop(name, None)) is not None}
    starts = itertools.count()

    def encoded_settings() -> bytes:
        """The settings at each start. Restores the socket's directory, which may have been removed."""
        runtime.restore()
        return encode_settings(replace(collector, restarted=next(starts) > 0, secrets=secrets))

    fds = [*collector.admin_fds, lock.children_fd]
    if collector.terminal_fd is not None:
        fds.append(collector.terminal_fd)
    # Without limit: it may have to convert a ledger of an earlier version, or to read a large spool.
    return Child("collector", "streamgauge.cli.collector", encoded_settings, fds, ready_s=None)


def _group(
    settings: Settings,
    collector: Child,
    socket: str,
    clients: Listeners | None,
    lock_fd: int,
    capturing: Capturing | None,
) -> Group:
    if clients is None:
        return Group(collector, capturing(socket, lock_fd) if capturing else [], say)
    fallback = PumpFallback(settings.pump == "auto" and BUILT, settings.data_dir / "counters", say)
    return Group(
        collector,
        _relays(settings, socket, clients, lock_fd, fallback),
        say,
        clients.close,  # during a drain, new connections are refused at once and do not wait in the kernel's queue
        fallback.relay_ended,
    )


def _relays(settings: Settings, socket: str, clients: Listeners, lock_fd: int, fallback: PumpFallback) -> list[Child]:
    per_address = settings.max_connections_per_address

    def relay(index: int) -> Child:
        relay_settings = settings.select(
            RelaySettings,
            upstreams=[(upstream.name, upstream.url) for upstream in settings.upstream],
            single=_is_single(settings.upstream),
            listen_fd=clients.fd_of(index),
            other_fds=tuple(fd for fd in clients.fds if fd != clients.fd_of(index)),
            recorder_socket=socket,
            counters_path=str(settings.data_dir / "counters"),
            role=f"relay-{index}",
            pump=fallback.pump,
            drain_timeout=streams_drain_s(settings.drain_timeout),
            max_connections=_share(settings.max_connections, settings.workers),
            max_connections_per_address=None if per_address is None else _share(per_address, settings.workers),
        )
        return Child(
            "relay", "streamgauge.taps.proxy", lambda: fallback.encoded(relay_settings), [*clients.fds, lock_fd]
        )

    return [relay(index) for index in range(settings.workers)]


def _share(connections: int, relays: int) -> int:
    """How many of a tap's connections one relay may have: the kernel distributes them over the relays."""
    return -(-connections // relays)


def check_keys(settings: Settings) -> None:
    """Rejects a key without its certificate: the tap would listen without TLS, or present no certificate. Raises
    UsageFault.
    """
    for side in ("tls", "upstream"):
        for of_key in (f"{side}_key", f"{side}_key_password_file"):
            if getattr(settings, of_key) is not None and getattr(settings, f"{side}_certificate") is None:
                raise UsageFault(f"{SETTINGS[of_key].flag} requires --{side}-certificate")
    if settings.tls_client_ca is not None and settings.tls_certificate is None:
        raise UsageFault("--tls-client-ca requires --tls-certificate: certificates of clients are a part of TLS")
    if "client" in settings.tenant_source and settings.client_token_file is None and settings.tls_client_ca is None:
        raise UsageFault("--tenant-source client requires --client-token-file or --tls-client-ca, which name clients")
    headers = [settings.tenant_header or "", *(attribute.header for attribute in settings.attribute)]
    if TOKEN_HEADER.decode() in map(str.lower, headers):
        raise UsageFault("X-Streamgauge-Token holds the token of a client: records must not name it")


def check_attributes(settings: Settings, *, names_them: bool) -> None:
    """Rejects a label of metrics that no record has. `names_them`: all attributes are in the settings; those of an agent
    are in the settings of applications. Raises UsageFault.
    """
    names = [attribute.name for attribute in settings.attribute]
    for name in settings.metric_attribute:
        if not names_them or name in names:
            continue
        if name != TENANT:
            raise UsageFault(f"--metric-attribute {name} requires --attribute {name}=HEADER")
        if settings.tenant_header is None and settings.tenants is None and "client" not in settings.tenant_source:
            raise UsageFault(
                f"--metric-attribute {name} requires --tenant-header or --tenants, or --tenant-source client"
            )


def _is_single(upstreams: Iterable[Upstream]) -> bool:
    return [upstream.name for upstream in upstreams] == [""]


def stop_signal(command: str, settings: Settings) -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; a second signal ends the process at once and prints what remains."""
    return StopSignal(command, say, lambda: _what_remains(settings.data_dir)).stop


def _what_remains(data_dir: Path) -> str:
    waiting = read_balance(data_dir / "counters").waiting
    return (
        f"open streams are cut off; {waiting} reads stay in the spool until the next start with --data-dir {data_dir}"
    )


# --- messages to the operator ----------------------------------------------------------------------------------------


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
        socket_path = settings.data_dir / "run" / SOCKET
        say(f"{command}: agent for taps in applications, at {socket_path}; it relays nothing")
        environment = f"STREAMGAUGE_DATA_DIR={settings.data_dir}"
        say(f"{command}: run the applications as this user, with {environment} in their environment")
    for upstream in settings.upstream:
        prefix = f"/{upstream.name}" if upstream.name else ""
        scheme = "https" if settings.tls_certificate else "http"
        say(f"{command}: {scheme}://{tap.address}{prefix} -> {upstream.url}")
        if version := version_at_end(upstream.url):
            say(
                f"{command}: that URL ends in {version}: clients may have {version} in their base URL, too; no request goes"
                f" to {version}{version}"
            )
        proxy = f"{scheme}://{reachable(tap.address or '')}"
        asks = first_request(upstream, proxy, has_tokens=settings.client_token_file is not None)
        say(f"{command}: base URL for clients: {asks.base_url}")
        if scheme == "http":  # the certificate of a proxy with TLS has a name that is not known here
            about = ", with the name of a model for MODEL" if "MODEL" in asks.curl else ""
            say(f"{command}: try it{about}: {asks.curl}")
    if settings.upstream and settings.pump == "auto" and not BUILT:
        say(f"{command}: the pump (native C code) was not built at installation: the relay uses more CPU without it")
    say(f"{command}: {tap.pages}, data in {settings.data_dir}")


def say_undelivered(command: str, settings: Settings) -> None:
    """Prints how many reads wait in the spool when a tap has ended without its broker."""
    waiting = read_balance(settings.data_dir / "counters").waiting
    if waiting:
        delivery = f"the next start with --data-dir {settings.data_dir} delivers them"
        say(f"{command}: {waiting} reads stay in the spool; {delivery}")
