"""One real Apache Kafka broker (KRaft, a single node, 127.0.0.1 only) as a child of the test session.

Everything that a broker writes lies in its directory, which also keeps its ports: after `kill` (a power cut) or `stop`,
`start` goes on with the same address and the same data.
"""

import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.kafka_broker import addresses
from tests.kafka_broker.jars import KAFKA_4
from tests.kafka_broker.prepared import prepared

# It usually takes 4 s, and 10 s after a kill; more on a machine that runs other tests at the same time (seconds).
_START_TIMEOUT_S = 90
_STOP_TIMEOUT_S = 30

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",  # a topic that no test created must be an error
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A broker that was killed may register again when its dead registration has lapsed: 3 s instead of 9.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.retention.check.interval.ms": "1000",
}

# For a broker that no test kills: the controller must not take it for dead and refuse topics ("invalid replication factor")
# because the machine stood still for a while. It serves for long, so what it does without any request is done less often.
NEVER_KILLED = {
    "broker.session.timeout.ms": "60000",
    "broker.heartbeat.interval.ms": "3000",
    "log.retention.check.interval.ms": "300000",
}


class Broker:
    """A broker in `directory`, of the version that `pom` names. `bootstrap` is its address, valid from the constructor on.

    `listeners`: further ones, name -> security protocol; `addresses` has where each is.
    """

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        pom: Path = KAFKA_4,
        listeners: Mapping[str, str] = {},
    ) -> None:
        self._directory = directory
        self._pom = pom
        self._process: subprocess.Popen[bytes] | None = None
        free = addresses.free()
        self.bootstrap, controller = next(free), next(free)
        self.addresses = {name: next(free) for name in listeners}
        more = "".join(f",{name}://{address}" for name, address in self.addresses.items())
        protocols = "".join(f",{name}:{protocol}" for name, protocol in listeners.items())
        self._settings = _SETTINGS | {
            "log.dirs": str(directory / "data"),
            "listeners": f"PLAINTEXT://{self.bootstrap}{more},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}{more}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "controller.quorum.voters": f"1@{controller}",
        }
        self._settings |= settings or {}

    def start(self) -> None:
        """Returns when the broker serves requests. Raises NoBrokerError where Java or its jars are missing."""
        first = prepared(self._pom)
        properties = self._directory / "server.properties"
        if not properties.exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
            first.format(self._directory / "data")
        with (self._directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen([*first.command, "kafka.Kafka", str(properties)], stdout=log, stderr=log)
        self._wait_until_it_serves()

    def _wait_until_it_serves(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not addresses.serves(self.bootstrap):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                log = (self._directory / "broker.log").read_text(errors="replace")
                raise RuntimeError(f"the broker did not start:\n{log[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL: no flush, no farewell."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP: its connections stay, and nothing answers. For as long as this broker lives."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """A clean shutdown, or a kill if it takes too long."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
