"""`streamgauge tap envoy` and `streamgauge up envoy`: streams that an Envoy proxy reports, beside its traffic."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from streamgauge.cli.extras import check_envoy
from streamgauge.cli.parser import Arguments
from streamgauge.cli.supervisor import running_tap, say_stopping, say_undelivered, stop_signal
from streamgauge.errors import UsageFault
from streamgauge.runtime.child import encode_settings, say
from streamgauge.runtime.listeners import bound_address, is_loopback, reserved_port
from streamgauge.runtime.log_time import log_with_times
from streamgauge.runtime.process_group import Child, streams_drain_s
from streamgauge.settings.declarations import Settings
from streamgauge.taps.envoy.settings import EnvoySettings


def run(settings: Settings, args: Arguments) -> int:
    """Runs until SIGTERM or Ctrl-C."""
    ships = args.command.startswith("tap")
    if ships and not settings.kafka:
        raise UsageFault("--kafka HOST:PORT is missing: give a broker, or run `streamgauge up envoy` without Kafka")
    check_envoy()
    settings = replace(settings, upstream=())
    log_with_times()
    with reserved_port(settings.listen, "--listen") as reserved, _mailboxes(settings.workers) as mailboxes:
        shows_streams = not ships and not args.quiet
        to: Literal["ledger", "kafka"] = "kafka" if ships else "ledger"
        return asyncio.run(_run(settings, bound_address(reserved), mailboxes, to, shows_streams=shows_streams))


# A datagram socket from which a process receives, and the one by which the others send to it.
_Mailbox = tuple[socket.socket, socket.socket]


@contextlib.contextmanager
def _mailboxes(processes: int) -> Iterator[Sequence[_Mailbox]]:
    """One for each process; none for a single one, which has no others."""
    with contextlib.ExitStack() as stack:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(processes if processes > 1 else 0)]
        for inbox, outbox in pairs:
            stack.enter_context(inbox)
            stack.enter_context(outbox)
        yield pairs


def _children(
    settings: Settings, address: str, mailboxes: Sequence[_Mailbox], recorder_socket: str, lock_fd: int
) -> list[Child]:
    def child(index: int) -> Child:
        inbox = mailboxes[index][0].fileno() if mailboxes else None
        others = tuple(outbox.fileno() for of, (_, outbox) in enumerate(mailboxes) if of != index)
        encoded = encode_settings(
            settings.select(
                EnvoySettings,
                address=address,
                recorder_socket=recorder_socket,
                counters_path=str(settings.data_dir / "counters"),
                inbox_fd=inbox,
                sibling_fds=others,
                role=f"relay-{index}",
                drain_timeout=streams_drain_s(settings.drain_timeout),
            )
        )
        fds = [*others, lock_fd] if inbox is None else [inbox, *others, lock_fd]
        return Child("Envoy tap", "streamgauge.taps.envoy.process", lambda: encoded, fds)

    return [child(index) for index in range(settings.workers)]


async def _run(
    settings: Settings,
    address: str,
    mailboxes: Sequence[_Mailbox],
    to: Literal["ledger", "kafka"],
    *,
    shows_streams: bool,
) -> int:
    command, process = ("up envoy", "up") if to == "ledger" else ("tap envoy", "tap")
    stop = stop_signal(command, settings)

    def capturing(recorder_socket: str, lock_fd: int) -> list[Child]:
        return _children(settings, address, mailboxes, recorder_socket, lock_fd)

    async with running_tap(settings, to, process, capturing=capturing, shows_streams=shows_streams) as tap:
        say(f"{command}: Envoy reports to {address} (gRPC, without TLS)")
        if not is_loopback(settings.listen.host):
            say(
                f"{command}: each client that reaches {address} can write streams into the records: let only Envoy reach it"
            )
        say(f"{command}: {tap.pages}, data in {settings.data_dir}")
        await stop.wait()
        say_stopping(command, settings)
    if to == "kafka":
        say_undelivered(command, settings)
    return tap.group.exit_code
