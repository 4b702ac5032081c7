"""The Envoy tap's process: `python -m streamgauge.taps.envoy.process`. It serves Envoy, and sends messages to the recorder.
Its parent writes EnvoySettings; tap_process.py has its exit codes.
"""

import asyncio
import socket
import sys

from streamgauge.recorder.loop_client import LoopClient
from streamgauge.spool.read_counters import Counters
from streamgauge.taps.envoy.exchange import Reporting
from streamgauge.taps.envoy.service import EnvoyServices, server_of
from streamgauge.taps.envoy.settings import EnvoySettings
from streamgauge.taps.tap_process import DONE, drained, report_ready, run_tap


async def _capture(settings: EnvoySettings, client: LoopClient, counters: Counters, stop: asyncio.Event) -> int:
    inbox = None if settings.inbox_fd is None else _datagram_socket(settings.inbox_fd)
    siblings = [_datagram_socket(fd) for fd in settings.sibling_fds]
    reporting = Reporting(client, settings.tenant_header, settings.attribute)
    services = EnvoyServices(reporting, counters, inbox, siblings)
    server = server_of(services)
    try:
        server.add_insecure_port(settings.address)
    except RuntimeError as error:  # gRPC's own report of a failed bind
        raise OSError(f"the address {settings.address} cannot be used") from error
    await server.start()
    report_ready()
    await stop.wait()
    services.draining = True
    await drained(lambda: services.open, settings.drain_timeout)
    await server.stop(None)
    services.close()
    return DONE


def _datagram_socket(fd: int) -> socket.socket:
    inherited = socket.socket(fileno=fd)
    inherited.setblocking(False)
    return inherited


if __name__ == "__main__":
    sys.exit(run_tap("the Envoy tap", EnvoySettings, _capture))
