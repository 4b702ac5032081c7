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
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from streamgauge.admin import AdminServer
from streamgauge.config import Settings, Upstream
from streamgauge.counters import Counters
from streamgauge.errors import UsageFault
from streamgauge.group import Child, Group, listening_socket, lock_data_dir
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics, Sample
from streamgauge.metrics.tap import tap_reads
from streamgauge.spool import Spool, settle_crash
from streamgauge.taps.proxy_relay import RelaySettings
from streamgauge.taps.recorder_process import RecorderSettings


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
    lock = lock_data_dir(settings.data_dir)
    runtime = Path(tempfile.mkdtemp(prefix="streamgauge-"))  # made 0700; a short path, as a Unix socket needs
    listening: socket.socket | None = None
    group: Group | None = None
    try:
        listening = listening_socket(settings.listen, "the address")
        counters = Counters(settings.data_dir / "counters", "delivery")
        spool = Spool(settings.data_dir / "spool.sqlite", settings.spool_bytes, counters)
        settle_crash(spool, settings.data_dir / "counters")
        metrics.register(tap_reads(settings.data_dir / "counters"))
        metrics.register(_spool_source(spool, settings.spool_bytes))
        group = _group(settings, tenants, runtime, listening)
        ready = group
        admin = AdminServer(metrics, lambda: ready.serving and is_ready(), hosts=settings.admin_host)
        await admin.start(str(settings.admin))
        try:
            await group.start()
            yield Tap(group, spool, metrics, _bound(listening), admin.address)
        finally:
            await group.stop(settings.drain_timeout)
            await admin.stop()
            spool.close()
    finally:
        if listening is not None:
            listening.close()
        shutil.rmtree(runtime, ignore_errors=True)
        os.close(lock)


def _group(settings: Settings, tenants: dict[str, str], runtime: Path, listening: socket.socket) -> Group:
    recorder_socket = str(runtime / "recorder.sock")
    recorder = RecorderSettings(
        socket=recorder_socket,
        data_dir=str(settings.data_dir),
        capture=settings.capture,
        tenant_header=settings.tenant_header,
        tenants=tenants,
        drain_timeout_s=settings.drain_timeout,
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
            drain_timeout_s=settings.drain_timeout,
            tenant_header=settings.tenant_header,
        )
        return Child("relay", "streamgauge.taps.proxy", lambda: msgspec.json.encode(told), [listening.fileno()])

    return Group(
        Child("recorder", "streamgauge.taps.recorder_process", lambda: msgspec.json.encode(recorder)),
        [relay(index) for index in range(settings.workers)],
        say,
    )


def _is_single(upstreams: Iterable[Upstream]) -> bool:
    return [upstream.name for upstream in upstreams] == [""]


def _bound(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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


def announce(command: str, tap: Tap, settings: Settings) -> None:
    """Say where everything is."""
    for upstream in settings.upstream:
        prefix = f"/{upstream.name}" if upstream.name else ""
        say(f"{command}: http://{tap.address}{prefix} -> {upstream.url}")
    say(f"{command}: metrics at http://{tap.admin_address}/metrics, data in {settings.data_dir}")
