"""One real Apache Kafka broker (KRaft, a single node, 127.0.0.1 only) as a child of the test session.

Everything that a broker writes lies in its directory, which also keeps its ports: after `kill` (a power cut) or `stop`,
`start` goes on with the same address and the same data.
"""

import base64
import random
import signal
import socket
import struct
import subprocess
import time
import uuid
from pathlib import Path

from tests.kafka_broker.jars import class_path, java

_HOST = "127.0.0.1"

# Below Linux's ephemeral ports (32768 and up): while the broker is down no client's own socket can sit on its port.
_PORTS = range(20_000, 32_000)

# Usual are 4 s, and 10 s after a kill; a machine that runs other tests at the same time gets room (seconds).
_START_TIMEOUT_S = 90
_STOP_TIMEOUT_S = 30

# A short-lived broker spends its time in compilation: one compiler, the simplest collector, little memory.
_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",  # a topic that nobody created must show
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


class Broker:
    """A broker in `directory`. `bootstrap` is its address, valid from the constructor on."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        port, controller = random.sample([port for port in random.sample(_PORTS, 200) if _is_free(port)], 2)
        self.bootstrap = f"{_HOST}:{port}"
        self._settings = _SETTINGS | {
            "log.dirs": str(directory / "data"),
            "listeners": f"PLAINTEXT://{_HOST}:{port},CONTROLLER://{_HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{_HOST}:{port}",
            "controller.quorum.bootstrap.servers": f"{_HOST}:{controller}",
        }
        self._settings |= settings or {}

    def start(self) -> None:
        """Returns when the broker serves requests. Raises NoBrokerError where Java or its jars are missing."""
        command = [java(), *_JVM, "-cp", class_path()]
        properties = self._directory / "server.properties"
        if not properties.exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
            storage = ["kafka.tools.StorageTool", "format", "--standalone", "-t", _cluster_id(), "-c", str(properties)]
            subprocess.run([*command, *storage], check=True, capture_output=True, timeout=_START_TIMEOUT_S)
        with (self._directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen([*command, "kafka.Kafka", str(properties)], stdout=log, stderr=log)
        self._wait_until_it_serves()

    def _wait_until_it_serves(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not serves(self.bootstrap):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                log = (self._directory / "broker.log").read_text(errors="replace")
                raise RuntimeError(f"the broker did not start:\n{log[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL: no flush, no farewell."""
        self._end(signal.SIGKILL)

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


def _cluster_id() -> str:
    """A UUID in Kafka's spelling, which may begin with a dash: as an argument that would be taken for an option."""
    return "s" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex((_HOST, port)) != 0


def serves(address: str) -> bool:
    """Whether a broker at `address` lists itself when asked for metadata (Metadata v1, of no topics)."""
    host, port = address.split(":")
    body = struct.pack(">hhih2si", 3, 1, 7, 2, b"sg", 0)
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.settimeout(2)
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(answer) == 12 and struct.unpack(">iii", answer)[2] > 0
