"""The settings of one relay process."""

from dataclasses import dataclass

from streamgauge.recorder.client import CAPACITY_BYTES
from streamgauge.settings.attributes import Attribute
from streamgauge.settings.declarations import ProxySettings, Settings
from streamgauge.taps.proxy.limits import BODY_GRACE_S
from streamgauge.taps.proxy.upstream import WATCH_S


@dataclass(frozen=True)
class RelaySettings(ProxySettings):
    """Settings of one relay process, from its parent. Times in seconds, sizes in bytes.

    `upstreams`: name and URL of each; `single`: there is one, and requests carry no prefix. `listen_fd`: an inherited
    listening socket; `other_fds`: those of the other relays, if each has its own. `role`: selects this process's counters.
    `pump`: use the native pump if it was built. `watch_s`: how long a connection is watched before connections to its
    upstream are reused; 0: no watch.
    """

    upstreams: list[tuple[str, str]]
    recorder_socket: str
    counters_path: str
    listen_fd: int = -1
    other_fds: tuple[int, ...] = ()
    single: bool = False
    role: str = "relay-0"
    upstream_idle_timeout: float = Settings.upstream_idle_timeout
    header_timeout_s: float = 60.0
    body_grace_s: float = BODY_GRACE_S
    keep_alive_s: float = 75.0
    drain_timeout: float = Settings.drain_timeout
    tenant_header: str | None = Settings.tenant_header
    attribute: tuple[Attribute, ...] = Settings.attribute
    capture_buffer_bytes: int = CAPACITY_BYTES
    pump: bool = True
    watch_s: float = WATCH_S
