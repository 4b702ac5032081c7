"""The settings of the Envoy tap's process, which its parent makes without gRPC."""

from dataclasses import dataclass

from streamgauge.recorder.client import CAPACITY_BYTES
from streamgauge.settings.attributes import Attribute
from streamgauge.settings.declarations import Settings


@dataclass(frozen=True)
class EnvoySettings:
    """The parent's settings. `address`: HOST:PORT, at which Envoy connects. `inbox_fd`, `sibling_fds`: datagram sockets from
    and to the other processes of this tap; none if it is the only one.
    """

    address: str
    recorder_socket: str
    counters_path: str
    inbox_fd: int | None = None
    sibling_fds: tuple[int, ...] = ()
    role: str = "relay-0"
    tenant_header: str | None = Settings.tenant_header
    attribute: tuple[Attribute, ...] = Settings.attribute
    drain_timeout: float = Settings.drain_timeout
    capture_buffer_bytes: int = CAPACITY_BYTES
