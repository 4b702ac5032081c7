"""What `up` and `tap` have in common: a tap's process group, its spool, its books and its admin port."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import tomllib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from streamgauge.admin import AdminAddressError, AdminServer
from streamgauge.config import Settings, Upstream
from streamgauge.counters import Counters
from streamgauge.datadir import DataDirLock, unusable
from streamgauge.errors import Unavailable, UsageFault
from streamgauge.group import Child, Group, streams_drain_s
from streamgauge.listening import bound_address, listening_socket, not_to_be_had
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics, Sample
from streamgauge.metrics.tap import tap_reads
from streamgauge.spool import Spool, settle_crash
from streamgauge.taps.proxy.relay import RelaySettings
from streamgauge.taps.recording.process import RecorderSettings

# Where relays reach the recorder, and how long a Unix socket's path may be everywhere (bytes: macOS has 104 with a NUL).
_RUNTIME_PREFIX = "streamgauge-"
_SOCKET = "recorder.sock"
_MAX_SOCKET_PATH = 103


@dataclass
class Tap:
    """A tap that runs: its parts, for whoever delivers what it captured."""

    group: Group
    spool: Spool
    metrics: Metrics
    address: str
    admin_address: str


def say(sentence: str) -> None:
    """A sentence for the operator."""
    with contextlib.suppress(OSError, ValueError):  # whoever read it is gone: no reason for a tap to end
        sys.stderr.write(f"streamgauge: {sentence}\n")
        sys.stderr.flush()


@contextlib.asynccontextmanager
async def running_tap(settings: Settings, metrics: Metrics, is_ready: Callable[[], bool]) -> AsyncIterator[Tap]:
    """Start a tap; when the block ends it has been stopped, or is stopped now. Raises StreamgaugeError.

    `is_ready` is asked beside the relays, by /health/ready.
    """
    if not settings.upstream:
        raise UsageFault(
            "--upstream NAME=URL is missing: which provider? As in --upstream openai=https://api.openai.com"
        )
    tenants = _tenants(settings.tenants)
    async with contextlib.AsyncExitStack() as stack:
        lock = stack.enter_context(await asyncio.to_thread(DataDirLock, settings.data_dir))
        runtime = stack.enter_context(_runtime_dir(settings.data_dir))
        listening = stack.enter_context(await asyncio.to_thread(listening_socket, settings.listen, "--listen"))
        spool = stack.enter_context(contextlib.closing(_spool(settings)))
        metrics.register(tap_reads(settings.data_dir / "counters"))
        metrics.register(_spool_source(spool, settings.spool_bytes))
        group = _group(settings, tenants, runtime, listening, lock.children_fd)
        admin = AdminServer(metrics, lambda: group.serving and is_ready(), hosts=settings.admin_host)
        await started_admin(stack, admin, settings)
        stack.push_async_callback(group.stop, settings.drain_timeout)
        await group.start()
        yield Tap(group, spool, metrics, bound_address(listening), admin.address)


async def started_admin(stack: contextlib.AsyncExitStack, admin: AdminServer, settings: Settings) -> None:
    """Open the admin port, until the stack is left. Raises Unavailable."""
    try:
        await admin.start(str(settings.admin))
    except AdminAddressError as error:
        if isinstance(error.__cause__, OSError):
            raise not_to_be_had(str(settings.admin), "--admin", error.__cause__) from None
        raise
    stack.push_async_callback(admin.stop)


@contextlib.contextmanager
def _runtime_dir(data_dir: Path) -> Iterator[Path]:
    """A directory of our own (0700) with a short path, as a Unix socket needs. DATA_DIR/run leads to it.

    One that a killed tap left is removed: the data directory is ours by now, and no process of that tap runs.
    """
    link = data_dir / "run"
    with contextlib.suppress(OSError):
        left = link.readlink()
        link.unlink()
        if left.name.startswith(_RUNTIME_PREFIX):
            shutil.rmtree(left, ignore_errors=True)
    try:
        made = Path(tempfile.mkdtemp(prefix=_RUNTIME_PREFIX))
    except OSError as error:
        raise Unavailable(f"there is no place for temporary files ({error.strerror}): set TMPDIR to one") from None
    try:
        if len(os.fsencode(made / _SOCKET)) > _MAX_SOCKET_PATH:
            raise Unavailable(f"{made} is too long a path for a socket: set TMPDIR to a shorter one")
        with contextlib.suppress(
            OSError
        ):  # without it a kill leaves an empty directory behind, and nothing else is lost
            link.symlink_to(made)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        with contextlib.suppress(OSError):
            link.unlink()


def _spool(settings: Settings) -> Spool:
    """The spool, with the balance of reads closed: no process of a former tap runs by now."""
    try:
        counters = Counters(settings.data_dir / "counters", "delivery")
        spool = Spool(settings.data_dir / "spool.sqlite", settings.spool_bytes, counters)
        settle_crash(spool, settings.data_dir / "counters")
    except OSError as error:
        raise unusable(settings.data_dir, error) from None
    return spool


def _group(settings: Settings, tenants: dict[str, str], runtime: Path, listening: socket.socket, lock_fd: int) -> Group:
    recorder_socket = str(runtime / _SOCKET)
    recorder = RecorderSettings(
        socket=recorder_socket,
        data_dir=str(settings.data_dir),
        capture=settings.capture,
        tenant_header=settings.tenant_header,
        tenants=tenants,
        drain_timeout_s=streams_drain_s(settings.drain_timeout),
        spool_max_bytes=settings.spool_bytes,
    )

    def relay(index: int) -> Child:
        told = RelaySettings(
            upstreams=[(upstream.name, upstream.url) for upstream in settings.upstream],
            single=_is_single(settings.upstream),
            listen_fd=listening.fileno(),
            recorder_socket=recorder_socket,
            counters_path=str(settings.data_dir / "counters"),
            role=f"relay-{index}",
            upstream_idle_timeout_s=settings.upstream_idle_timeout,
            connect_timeout_s=settings.connect_timeout,
            drain_timeout_s=streams_drain_s(settings.drain_timeout),
            tenant_header=settings.tenant_header,
        )
        return Child(
            "relay", "streamgauge.taps.proxy", lambda: msgspec.json.encode(told), [listening.fileno(), lock_fd]
        )

    return Group(
        Child("recorder", "streamgauge.taps.recording.process", lambda: msgspec.json.encode(recorder), [lock_fd]),
        [relay(index) for index in range(settings.workers)],
        say,
        listening.close,  # who comes while we drain is refused at once, and does not wait in the kernel's queue
    )


def _is_single(upstreams: Iterable[Upstream]) -> bool:
    return [upstream.name for upstream in upstreams] == [""]


def _tenants(file: Path | None) -> dict[str, str]:
    """The tenants' file: `credential_id = "tenant"`, a line each."""
    if file is None:
        return {}
    try:
        return msgspec.convert(tomllib.loads(file.read_text()), dict[str, str])
    except OSError as error:
        raise UsageFault(f"--tenants {file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageFault(f'--tenants {file} takes lines of the form credential_id = "tenant": {error}') from None


def _spool_source(spool: Spool, limit: int) -> Callable[[], Iterable[Sample]]:
    def read() -> Iterable[Sample]:
        waiting = spool.waiting()
        yield Sample(table.SPOOL_BYTES.name, waiting.file_bytes, {})
        yield Sample(table.SPOOL_ROWS.name, waiting.rows, {})
        yield Sample(table.SPOOL_LIMIT.name, limit, {})

    return read


def stop_signal() -> asyncio.Event:
    """Set when SIGTERM or SIGINT comes."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def say_stopping(command: str, settings: Settings) -> None:
    """Say what a stop waits for."""
    say(f"{command}: stopping; open streams have {streams_drain_s(settings.drain_timeout):g} s to end")


def announce(command: str, tap: Tap, settings: Settings) -> None:
    """Say where everything is."""
    for upstream in settings.upstream:
        prefix = f"/{upstream.name}" if upstream.name else ""
        say(f"{command}: http://{tap.address}{prefix} -> {upstream.url}")
    say(f"{command}: metrics at http://{tap.admin_address}/metrics, data in {settings.data_dir}")
