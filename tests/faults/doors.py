"""Listeners of a broker that requires authentication, and our commands that connect to them."""

import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.rig import Rig, tap_rig
from tests.kafka_broker.secured import CERTIFIED, PLAIN_PASSWORD, PLAIN_USER, Secured
from tests.running import Running, command, start

SECRET = "right-and-secret"
# A tap whose broker refuses it keeps its rows in the spool: there is no reason to wait for it at the end (seconds).
DRAIN_S = "4"


@dataclass(frozen=True)
class Door:
    """One way to connect: the address, the user, and a command's options for it."""

    address: str
    user: str
    options: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    def flags(self, prefix: str) -> list[str]:
        return ["--kafka", self.address, "--topic-prefix", prefix, *self.options]


def scram_door(secured: Secured, folder: Path, user: str, *, listener: str = "SCRAM", secret: str = SECRET) -> Door:
    """By SCRAM-SHA-512 over TLS, with its own files that a test may change."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ca.pem").write_bytes(secured.files.ca.read_bytes())
    (folder / "password").write_text(secret + "\n")
    options = ("--kafka-security", "SASL_SSL", "--kafka-ca", str(folder / "ca.pem"), "--kafka-username", user)
    return Door(secured.address[listener], user, (*options, "--kafka-password-file", str(folder / "password")))


def plain_door(secured: Secured) -> Door:
    """By PLAIN without TLS; the password in the environment."""
    options = ("--kafka-security", "SASL_PLAINTEXT", "--kafka-mechanism", "PLAIN", "--kafka-username", PLAIN_USER)
    return Door(secured.address["PLAIN"], PLAIN_USER, options, (("STREAMGAUGE_KAFKA_PASSWORD", PLAIN_PASSWORD),))


def mutual_door(secured: Secured) -> Door:
    """By certificates of both sides."""
    files = ("--kafka-ca", str(secured.files.ca), "--kafka-certificate", str(secured.files.client))
    return Door(secured.address["MUTUAL"], CERTIFIED, ("--kafka-security", "SSL", *files))


@contextlib.asynccontextmanager
async def tap_by(door: Door, folder: Path, prefix: str) -> AsyncIterator[Rig]:
    options = (*door.options, "--drain-timeout", DRAIN_S)
    async with tap_rig(folder, door.address, prefix, *options, environment=dict(door.environment)) as rig:
        yield rig


@contextlib.contextmanager
def worker_by(door: Door, folder: Path, prefix: str) -> Iterator[Running]:
    flags = [*door.flags(prefix), "--admin", "127.0.0.1:0", "--data-dir", str(folder)]
    with start("worker", flags, folder, dict(door.environment)) as worker:
        yield worker


def run_by(
    door: Door, prefix: str, *words: str, ask: Callable[..., "subprocess.CompletedProcess[str]"] = command
) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end."""
    return ask(*words, *door.flags(prefix), environment=dict(door.environment))
