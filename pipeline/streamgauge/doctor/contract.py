"""Arguments and results of checks: an installation, and findings with their cures; and calls that block."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ParamSpec, TypeVar

from streamgauge.doctor.cluster import Cluster
from streamgauge.runtime.listeners import Address
from streamgauge.runtime.redaction import redacted_text
from streamgauge.settings.declarations import Settings
from streamgauge.settings.types import Upstream


class Level(StrEnum):
    """Levels of findings. Only a failure stops the installation from working."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """A finding. `says`: what was seen; `cure`: what to do about it, empty if nothing is to be done."""

    level: Level
    says: str
    cure: str = ""


def ok(says: str) -> Finding:
    """A finding that needs no cure."""
    return Finding(Level.OK, says)


def warn(says: str, cure: str) -> Finding:
    """The installation works, but not as well as it could, or not for long."""
    return Finding(Level.WARN, says, cure)


def fail(says: str, cure: str) -> Finding:
    """The installation does not work."""
    return Finding(Level.FAIL, says, cure)


def failure_of(error: Exception) -> Finding:
    """The failure for one of our errors, whose sentence ends with the cure after a colon."""
    says, colon, cure = str(error).rpartition(": ")
    return fail(redacted_text(says if colon else cure), redacted_text(cure) if colon else "")


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
        return [upstream for upstream in self.settings.upstream if upstream.name != DOCTOR]

    @property
    def doctor_upstream(self) -> Upstream | None:
        """The upstream by which the doctor's own stream goes through the tap; None if the tap has none."""
        return next((upstream for upstream in self.settings.upstream if upstream.name == DOCTOR), None)


Args = ParamSpec("Args")
Result = TypeVar("Result")


async def in_thread(call: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
    """The result of the call, or its error. If the caller is cancelled, the thread goes on."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Result] = loop.create_future()

    def finish(set_result: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: None if result.done() else set_result())

    def work() -> None:
        try:
            value = call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - it is raised in the caller
            failed = error
            finish(lambda: result.set_exception(failed))
        else:
            finish(lambda: result.set_result(value))

    threading.Thread(target=work, name="doctor", daemon=True).start()
    return await result
