"""The jars of an Apache Kafka broker, resolved once by Maven and remembered: of the newest version, and of an older one.

3.9 is the last of its line, and what many run that have not gone on to 4; both run without ZooKeeper.
"""

import fcntl
import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

KAFKA_4 = Path(__file__).with_name("pom.xml")
KAFKA_3_9 = Path(__file__).with_name("pom-3.9.xml")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamgauge-tests"

# Maven downloads about 50 MB the first time; on a slow line that takes minutes (seconds).
_RESOLVE_TIMEOUT_S = 600


class NoBrokerError(Exception):
    """No broker can be started here; the message says what to install."""


def java() -> str:
    """Path of the Java launcher. Raises NoBrokerError."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        raise NoBrokerError("no Java here: install a JDK 17 or newer (or point JAVA_HOME at one)")
    return found


def class_path(pom: Path = KAFKA_4) -> str:
    """The argument of `java -cp` for the broker that `pom` names. Raises NoBrokerError."""
    CACHE.mkdir(parents=True, exist_ok=True)
    known = CACHE / f"kafka-classpath-{sha256(pom.read_bytes()).hexdigest()[:16]}"
    with (CACHE / "maven.lock").open("w") as lock:  # two sessions must not fill one local repository at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not known.exists() or not all(Path(jar).exists() for jar in known.read_text().split(os.pathsep)):
            _resolve(pom, known)
    return known.read_text()


def _resolve(pom: Path, output: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoBrokerError("no mvn here: install Apache Maven, or Docker, or set KAFKA_BOOTSTRAP to a running broker")
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={output}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise NoBrokerError(f"Maven could not get Kafka's jars: {done.stdout.strip()[-800:]}")
