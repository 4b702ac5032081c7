"""The collector: `python -m streamgauge.cli.collector`, a child of `up` and `tap`.

It records what taps report to its socket, keeps it in the spool, and delivers it: to the ledger (`cli/assembling.py`) or to
Kafka (`cli/shipping.py`). It serves the admin port, whose sockets it inherits. Its supervisor writes CollectorSettings to its
stdin, and then messages (`runtime/child.py`).

    stop               record and deliver the rest within the time that the request names, then exit
    supervisor ended   put what was captured, and what relays still send until they exit, into the spool; then exit
    SIGKILL            the next collector continues with the spool; what was not yet there is lost, and counted

A collector that starts again after a crash captures at once, and serves the admin port: while the ledger is unavailable, rows
wait in the spool, and it is not ready. A file of the settings that has become unusable since the start of the tap stops no
capture (`settings_files.py`); without the token or certificate of the admin port, that port stays closed.

Exit codes: 0 done, 2 wrong settings, 3 the data directory, the socket or the ledger is unavailable, or the disk refused the
last rows, 70 a bug.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

import msgspec

from streamgauge.cli.admin_port import TOKEN_VARIABLE, admin_access
from streamgauge.cli.collector_settings import CollectorSettings
from streamgauge.cli.settings_files import SettingsFiles
from streamgauge.errors import BUG, DONE, UNAVAILABLE, StreamgaugeError, Unavailable
from streamgauge.metrics import table
from streamgauge.metrics.admin_access import Access
from streamgauge.metrics.http_server import AdminServer, Pages
from streamgauge.metrics.process import process_metrics
from streamgauge.metrics.prometheus import Metrics, Sample
from streamgauge.metrics.tap import tap_reads
from streamgauge.recorder.installation_key import UnusableKeyError, installation_key
from streamgauge.recorder.process import RecorderProcess, RecorderSettings, listen, record
from streamgauge.recorder.spool_writer import Lost
from streamgauge.runtime.child import (
    READY,
    StartFailure,
    decode_settings,
    encode_settings,
    leave_terminal_to_parent,
    say,
    write_to_supervisor,
)
from streamgauge.runtime.control import Control
from streamgauge.runtime.data_directory import unusable
from streamgauge.runtime.faults import report_fault, report_loop_faults, reported_task
from streamgauge.runtime.process_group import FINISH_S
from streamgauge.settings.declarations import Settings
from streamgauge.spool import Spool, close_balance_after_crash, close_balance_at_restart
from streamgauge.spool.read_counters import Counters, close_app_balances

# Interval at which the balances of ended applications are closed (seconds): about as often as metrics are read.
CLOSE_BALANCES_S = 10.0

# After a restart, the pause before a ledger or a file that is unavailable is tried again (seconds).
RETRY_S = 2.0

_T = TypeVar("_T")


class Delivery(Protocol):
    """What delivers the spool's rows while the collector runs."""

    @property
    def metrics(self) -> Metrics:
        """The metrics of the process."""

    @property
    def pages(self) -> Pages:
        """What the admin port shows besides metrics and health."""

    def is_ready(self) -> bool:
        """Whether it delivers, or will as soon as its receiver is available."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Deliver until the stack exits. Raises StreamgaugeError; then it may be called again."""

    async def finish(self, finish_s: float) -> None:
        """Deliver what waits in the spool, for at most `finish_s` seconds."""


def main() -> int:
    """Run the collector. Returns its exit code."""
    os.umask(0o077)
    try:
        settings = decode_settings(sys.stdin.buffer.readline(), CollectorSettings)
    except msgspec.DecodeError as error:
        sys.stderr.write(f"the collector's settings cannot be read: {error}\n")
        return BUG
    os.environ.update(settings.secrets)
    leave_terminal_to_parent(logging.INFO if settings.to == "kafka" else logging.WARNING)
    try:
        asyncio.run(_run(settings))
    except StreamgaugeError as error:
        if settings.restarted:  # the supervisor has its `ready`, and its operator reads stderr
            say(str(error))
        else:
            write_to_supervisor(encode_settings(StartFailure(str(error), error.exit_code)))
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - Python would print its text, which may quote a stream; it is started again
        report_fault("the collector, which exits", error)
        return BUG


async def _run(collector: CollectorSettings) -> NoReturn:
    """Collect until the end, and exit the process. Raises StreamgaugeError if the start fails."""
    control = Control(collector.settings.drain_timeout)
    asyncio.get_running_loop().set_exception_handler(report_loop_faults("the collector"))
    async with AsyncExitStack() as stack:
        lost = await _collect(collector, control, stack)
        if control.orphaned.is_set():
            _exit(collector, lost)
    _exit(collector, lost)


def _exit(collector: CollectorSettings, lost: Lost | None) -> NoReturn:
    if lost is not None:
        say(lost.sentence(str(collector.settings.data_dir)))
    os._exit(UNAVAILABLE if lost else DONE)  # a loop that is closed would let a further SIGTERM kill the process


async def _collect(collector: CollectorSettings, control: Control, stack: AsyncExitStack) -> Lost | None:
    settings = collector.settings
    files = SettingsFiles(settings, collector.files if collector.restarted else None, say)
    access = None if collector.restarted else admin_access(settings, say)  # first: a wrong setting leaves no file
    spool = stack.enter_context(contextlib.closing(_spool(collector)))
    process, listening = _recorder(collector, spool, files, stack)
    delivery = delivery_of(collector, spool, files)
    process.on_call = delivery.metrics.observe_call
    admin = _AdminPort(collector, delivery, control, spool, files)
    if access is not None:
        await admin.open(access, stack)
    counters = settings.data_dir / "counters"
    closing = reported_task("the closing of applications' balances", keep_closing_app_balances(counters))
    stack.callback(closing.cancel)
    if collector.restarted:
        recording = asyncio.ensure_future(record(process, listening, control, _report_ready))
        stack.push_async_callback(_end, recording)
        opening = asyncio.ensure_future(_open_again(settings, admin, delivery, stack))
        await asyncio.wait({recording, opening}, return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()
            return await recording
        opening.result()
        lost = await recording
    else:
        await delivery.open(stack)
        lost = await record(process, listening, control, _report_ready)
    if not control.orphaned.is_set():
        await delivery.finish(max(control.left_s, FINISH_S))
    return lost


async def _end(task: asyncio.Future[Lost | None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _report_ready() -> None:
    write_to_supervisor(READY)


def _spool(collector: CollectorSettings) -> Spool:
    """The spool, with the balance of reads closed: no other collector of this data directory runs. Raises Unavailable."""
    data_dir = collector.settings.data_dir
    try:
        counters = Counters(data_dir / "counters", "delivery")
        spool = Spool(data_dir / "spool.sqlite", collector.settings.spool_bytes, counters)
        close = close_balance_at_restart if collector.restarted else close_balance_after_crash
        close(spool, data_dir / "counters")
    except OSError as error:
        raise unusable(data_dir, error) from None
    return spool


def _recorder(
    collector: CollectorSettings, spool: Spool, files: SettingsFiles, stack: AsyncExitStack
) -> tuple[RecorderProcess, socket.socket]:
    settings = collector.settings
    recorder_settings = settings.select(RecorderSettings, tenants=files.tenants())
    try:
        counters = stack.enter_context(Counters(settings.data_dir / "counters", "recorder"))
        key = installation_key(settings.data_dir)
        process = RecorderProcess(recorder_settings, key, spool, counters)
    except UnusableKeyError as error:
        raise Unavailable(str(error)) from None
    except OSError as error:
        raise unusable(settings.data_dir, error) from None
    try:
        return process, listen(Path(collector.socket))
    except OSError as error:
        raise Unavailable(
            f"the socket {collector.socket} cannot be made ({error.strerror or error}): check TMPDIR, or restart the tap"
        ) from None


def delivery_of(collector: CollectorSettings, spool: Spool, files: SettingsFiles) -> Delivery:
    """What delivers to where the settings say. Raises UsageFault."""
    if collector.to == "ledger":
        from streamgauge.cli.assembling import Assembling

        return Assembling(collector.settings, collector.process, spool, files, collector.terminal_fd)
    from streamgauge.cli.shipping import Shipping

    return Shipping(collector.settings, collector.process, spool)


async def _open_again(settings: Settings, admin: "_AdminPort", delivery: Delivery, stack: AsyncExitStack) -> None:
    """Open the admin port and the delivery after a restart. What cannot be opened is tried again every RETRY_S: a file of the
    settings may have become unusable, or the ledger be unavailable. Until then the collector captures.
    """
    access = await _until_done(lambda: _access_again(settings), "the admin port stays closed")
    await admin.open(access, stack)
    await _until_done(lambda: delivery.open(stack), "captured data waits in the spool")


async def _access_again(settings: Settings) -> Access:
    """`admin_access`, which may be called again after it has raised: it takes the token out of the environment."""
    token = os.environ.get(TOKEN_VARIABLE)
    try:
        return admin_access(settings, say)
    except StreamgaugeError:
        if token is not None:
            os.environ[TOKEN_VARIABLE] = token
        raise


async def _until_done(attempt: Callable[[], Awaitable[_T]], meanwhile: str) -> _T:
    """Call `attempt` until it raises no StreamgaugeError. Returns its result. Its first error is said, with `meanwhile`."""
    said = False
    while True:
        try:
            return await attempt()
        except StreamgaugeError as error:
            if not said:
                say(f"{error}; {meanwhile}")
            said = True
        await asyncio.sleep(RETRY_S)


class _AdminPort:
    """The admin port of a collector, on the sockets of its supervisor. `notes` of `files` follow the answers of health."""

    def __init__(
        self, collector: CollectorSettings, delivery: Delivery, control: Control, spool: Spool, files: SettingsFiles
    ) -> None:
        self._collector, self._delivery, self._control, self._files = collector, delivery, control, files
        settings, metrics = collector.settings, delivery.metrics
        metrics.register(tap_reads(settings.data_dir / "counters"))
        metrics.register(_spool_samples(spool, settings))
        metrics.register(process_metrics(lambda: control.status.processes))
        metrics.register(files.samples)

    async def open(self, access: Access, stack: AsyncExitStack) -> None:
        """Serve until the stack exits."""
        delivery, control = self._delivery, self._control
        admin = AdminServer(
            delivery.metrics,
            lambda: control.status.serving and delivery.is_ready(),
            hosts=self._collector.settings.admin_host,
            pages=delivery.pages,
            access=access,
            notes=self._files.notes,
        )
        await admin.serve([socket.socket(fileno=fd) for fd in self._collector.admin_fds])
        stack.push_async_callback(admin.stop)


async def keep_closing_app_balances(counters: Path) -> None:
    """Close the balances of applications that were killed, while the collector runs."""
    while True:
        await asyncio.sleep(CLOSE_BALANCES_S)
        try:
            await asyncio.to_thread(close_app_balances, counters)
        except Exception as error:  # noqa: BLE001 - the next round may succeed; an OSError is reported as well
            report_fault("the closing of applications' balances", error)


def _spool_samples(spool: Spool, settings: Settings) -> Callable[[], Iterable[Sample]]:
    def read() -> Iterable[Sample]:
        waiting = spool.waiting()
        yield Sample(table.SPOOL_BYTES.name, waiting.file_bytes, {})
        yield Sample(table.SPOOL_ROWS.name, waiting.rows, {})
        yield Sample(table.SPOOL_LIMIT.name, settings.spool_bytes, {})
        disk = shutil.disk_usage(settings.data_dir)
        yield Sample(table.DATA_FREE.name, disk.free, {})
        yield Sample(table.DATA_DISK.name, disk.total, {})

    return read


if __name__ == "__main__":
    sys.exit(main())
