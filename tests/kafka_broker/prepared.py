"""What every broker's start takes from the first one on this machine: a formatted directory, and the JVM's classes.

Loading and checking classes is most of what a short-lived broker does: with an archive of them
(https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html) it takes two thirds of the time, and a directory that
is copied spares it a second JVM.
"""

import base64
import fcntl
import re
import shutil
import subprocess
import time
import uuid
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kafka_broker import addresses
from tests.kafka_broker.jars import CACHE, class_path, java

# A short-lived broker spends its time in compilation: one compiler, the simplest collector, little memory.
_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]

# The first start, and the writing of the archive when it ends: usual are 4 s each (seconds).
_FIRST_START_S = 90
_ARCHIVING_S = 120

_IDS = re.compile(r"^(cluster|directory)\.id=.*$", re.MULTILINE)


@dataclass(frozen=True)
class Prepared:
    """`command`: a JVM with the broker's jars, to which a main class is appended."""

    command: list[str]
    _formatted: Path

    def format(self, data: Path) -> None:
        """Makes the broker's data directory, of a cluster of its own."""
        shutil.copytree(self._formatted, data)
        meta = data / "meta.properties"
        meta.write_text(_IDS.sub(lambda found: f"{found[1]}.id={_id()}", meta.read_text()))


def prepared(pom: Path) -> Prepared:
    """For the broker that `pom` names. Raises NoBrokerError where Java or its jars are missing."""
    plain = [java(), *_JVM, "-cp", class_path(pom)]
    launcher = Path(java()).resolve()
    kind = sha256(f"{plain} {launcher} {launcher.stat().st_mtime_ns}".encode()).hexdigest()[:16]
    folder = CACHE / f"kafka-prepared-{kind}"
    with (CACHE / "prepared.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _prepare(plain, folder)
    archive = folder / "classes.jsa"
    sharing = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return Prepared([plain[0], *sharing, *plain[1:]], folder / "formatted")


def _prepare(command: list[str], folder: Path) -> None:
    """The first start of a broker, before any test uses it."""
    ports = addresses.free()
    address, controller = next(ports), next(ports)
    with TemporaryDirectory(dir=CACHE) as temporary:
        place = Path(temporary)
        data, properties, made = place / "data", place / "server.properties", place / "made"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(data),
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        storage = ["kafka.tools.StorageTool", "format", "-t", _id(), "-c", str(properties)]
        subprocess.run([*command, *storage], check=True, capture_output=True, timeout=_FIRST_START_S)
        shutil.copytree(data, made / "formatted")
        archiving = [command[0], f"-XX:ArchiveClassesAtExit={made / 'classes.jsa'}", *command[1:]]
        with subprocess.Popen(
            [*archiving, "kafka.Kafka", str(properties)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as broker:
            deadline = time.monotonic() + _FIRST_START_S
            while not addresses.serves(address) and broker.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            broker.terminate()
            try:
                broker.wait(_ARCHIVING_S)
            except subprocess.TimeoutExpired:  # brokers start without an archive then
                broker.kill()
                (made / "classes.jsa").unlink(missing_ok=True)
        made.rename(folder)


def _id() -> str:
    """A UUID in Kafka's spelling, which may begin with a dash: as an argument that would be taken for an option."""
    return "s" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
