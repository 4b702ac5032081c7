"""`streamgauge tap packets` and `streamgauge up packets`: streams from a packet capture, live or from a file.

This process opens the packet socket, then drops the capability that it needed, for itself and all processes that it starts.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from streamgauge.cli.parser import Arguments
from streamgauge.cli.supervisor import Tap, running_tap, say_stopping, say_undelivered, stop_signal
from streamgauge.errors import DONE, FOUND, Unavailable, UsageFault
from streamgauge.runtime.child import encode_settings, say
from streamgauge.runtime.log_time import log_with_times
from streamgauge.runtime.process_group import Child, streams_drain_s
from streamgauge.settings.declarations import Settings
from streamgauge.taps.packets.capture_filter import MAX_PORTS
from streamgauge.taps.packets.privilege import drop_net_raw
from streamgauge.taps.packets.process import PacketSettings
from streamgauge.taps.packets.ring import ANY, capture_socket

_NEEDS_NET_RAW = (
    "capturing packets requires the capability CAP_NET_RAW: give it to this command only (AmbientCapabilities=CAP_NET_RAW"
    " in a systemd unit, --cap-add NET_RAW for a container, or sudo), or write a file with tcpdump and give it with --pcap"
)


def run(settings: Settings, args: Arguments) -> int:
    """Runs until SIGTERM or Ctrl-C, or until a file is delivered. Returns 1 if the file is damaged; the streams before the
    damage are recorded.
    """
    ships = args.command.startswith("tap")
    _check(settings, ships)
    settings = replace(settings, upstream=())
    log_with_times()
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_file(settings) if settings.pcap else _interface(settings))
        shows_streams = not ships and not args.quiet
        return asyncio.run(_run(settings, source, "kafka" if ships else "ledger", shows_streams=shows_streams))


class _Source:
    """The source of packets. `inherited`: the descriptor that the capturing process needs; `ended`: the pipe on which it
    reports a file's end.
    """

    def __init__(self, settings: PacketSettings, inherited: int, ended: int | None = None) -> None:
        self._settings, self._inherited, self._ended = settings, inherited, ended
        self.fault = ""
        self.read = asyncio.Event()

    def capturing(self, recorder_socket: str, lock_fd: int) -> list[Child]:
        """The capturing process, as a child of the group."""
        encoded = encode_settings(replace(self._settings, recorder_socket=recorder_socket))
        return [Child("packet tap", "streamgauge.taps.packets.process", lambda: encoded, [self._inherited, lock_fd])]

    def stop_at_end(self, stop: asyncio.Event) -> None:
        """Sets `stop` when a file has been read to its end."""
        if self._ended is not None:
            asyncio.get_running_loop().add_reader(self._ended, self._file_ended, stop)

    def _file_ended(self, stop: asyncio.Event) -> None:
        assert self._ended is not None
        asyncio.get_running_loop().remove_reader(self._ended)
        self.fault = os.read(self._ended, 4096).decode().strip()
        self.read.set()
        stop.set()


def _check(settings: Settings, ships: bool) -> None:
    if ships and not settings.kafka:
        raise UsageFault("--kafka HOST:PORT is missing: give a broker, or run `streamgauge up packets` without Kafka")
    if settings.pcap is None and settings.interface is None:
        raise UsageFault(
            "--interface NAME is missing: name the network interface, as in --interface lo, or give --pcap FILE"
        )
    if settings.pcap is not None and settings.interface is not None:
        raise UsageFault("--interface and --pcap exclude each other: give one of them")
    if settings.pcap is None and not settings.server_ports:
        raise UsageFault("--port PORT is missing: give the port of the model server, as in --port 8000")
    if len(settings.server_ports) > MAX_PORTS:
        raise UsageFault(f"--port takes at most {MAX_PORTS} ports: run a second tap for the others")


def _packet_settings(settings: Settings) -> PacketSettings:
    return settings.select(
        PacketSettings,
        ports=[(server_port.port, server_port.name or None) for server_port in settings.server_ports],
        recorder_socket="",
        counters_path=str(settings.data_dir / "counters"),
        drain_timeout=streams_drain_s(settings.drain_timeout),
    )


@contextlib.contextmanager
def _interface(settings: Settings) -> Iterator[_Source]:
    """Opens the packet socket and drops the capability. Raises Unavailable."""
    name = settings.interface or ""
    try:
        captures = capture_socket()
    except PermissionError:
        raise Unavailable(_NEEDS_NET_RAW) from None
    except OSError as error:
        reason = error.strerror or error
        raise Unavailable(f"this system cannot capture packets ({reason}): run on Linux, or give --pcap FILE") from None
    with captures:
        drop_net_raw()
        try:
            if name != ANY:
                socket.if_nametoindex(name)
        except OSError:
            interfaces = ", ".join(sorted(interface for _, interface in socket.if_nameindex()))
            raise Unavailable(
                f"there is no interface {name!r}: use one of {interfaces}, or any for all of them"
            ) from None
        yield _Source(replace(_packet_settings(settings), socket_fd=captures.fileno()), captures.fileno())


@contextlib.contextmanager
def _file(settings: Settings) -> Iterator[_Source]:
    """A capture file, and the pipe on which its end is reported. Raises UsageFault."""
    path = settings.pcap
    assert path is not None
    if not path.is_file():
        raise UsageFault(f"there is no file {path}")
    ended, done = os.pipe()
    try:
        yield _Source(replace(_packet_settings(settings), done_fd=done), done, ended)
    finally:
        os.close(ended)
        os.close(done)


async def _run(settings: Settings, source: _Source, to: Literal["ledger", "kafka"], *, shows_streams: bool) -> int:
    command, process = ("up packets", "up") if to == "ledger" else ("tap packets", "tap")
    stop = stop_signal(command, settings)
    async with running_tap(settings, to, process, capturing=source.capturing, shows_streams=shows_streams) as tap:
        _announce(command, tap, settings)
        source.stop_at_end(stop)
        await stop.wait()
        _say_end(command, settings, source)
    if to == "kafka":
        say_undelivered(command, settings)
    return _code(settings, source) or tap.group.exit_code


def _code(settings: Settings, source: _Source) -> int:
    if source.fault:
        say(f"{settings.pcap} is damaged: {source.fault}; all streams before the damage are recorded")
    return FOUND if source.fault else DONE


def _say_end(command: str, settings: Settings, source: _Source) -> None:
    if source.fault:
        return  # `_code` says what is wrong with the file
    if source.read.is_set():
        say(f"{command}: {settings.pcap} has been read to its end")
    else:
        say_stopping(command, settings)


def _announce(command: str, tap: Tap, settings: Settings) -> None:
    ports = ", ".join(
        f"{server_port.name}={server_port.port}" if server_port.name else str(server_port.port)
        for server_port in settings.server_ports
    )
    source = f"packets of {settings.pcap}" if settings.pcap else f"packets on {settings.interface}"
    say(f"{command}: {source}, {f'servers at port {ports}' if ports else 'all HTTP servers'}; plain HTTP/1.1 only")
    say(f"{command}: {tap.pages}, data in {settings.data_dir}")
