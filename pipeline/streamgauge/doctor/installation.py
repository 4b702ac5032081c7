"""What the checks look at."""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamgauge.doctor.cluster import Cluster
from streamgauge.runtime.listeners import Address
from streamgauge.settings.declarations import Settings
from streamgauge.settings.types import Upstream

# The upstream by which the doctor's own stream goes through a tap.
DOCTOR = "doctor"


@dataclass(frozen=True)
class Installation:
    """One command (`up`, `tap` or `worker`) with its settings.

    `cluster`: None without Kafka, or if its settings cannot be used; `upstream_tls`: the context for https upstreams, None
    if its files cannot be used; `attempts`: calls that raise StreamgaugeError if settings do not fit each other, or name a
    file that cannot be used; `read_key`: reads the key of a data directory, and raises ValueError or OSError; `through`: the
    address at which clients reach the tap; `prometheus`: the address of its server; `serve`: where the doctor
    serves its slow stream, None for the address of its upstream.
    """

    command: str
    settings: Settings
    read_key: Callable[[Path], bytes]
    cluster: Cluster | None = None
    upstream_tls: ssl.SSLContext | None = None
    attempts: Sequence[Callable[[], object]] = ()
    through: str = ""
    prometheus: str = ""
    serve: Address | None = None

    @property
    def upstreams(self) -> list[Upstream]:
        """The upstreams without the doctor's own, which listens only while the doctor runs."""
        return [one for one in self.settings.upstream if one.name != DOCTOR]

    @property
    def doctor_upstream(self) -> Upstream | None:
        """The upstream by which the doctor's own stream goes through the tap; None if the tap has none."""
        return next((one for one in self.settings.upstream if one.name == DOCTOR), None)
