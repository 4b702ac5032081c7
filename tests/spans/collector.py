"""A real OpenTelemetry Collector, built by scripts/install_collector. It writes the spans that it receives as text."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.running import wait_for

ROOT = Path(__file__).parents[2]
# One core builds the Collector in two minutes if the machine does nothing else.
BUILD_S = 1_500


@dataclass
class Written:
    """A span as the Collector wrote it. `facts`: what stands above the attributes; values have their type, as in Int(3)."""

    facts: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    events: list[dict[str, str]] = field(default_factory=list)


class Collector:
    """`url`: its address for OTLP/HTTP."""

    def __init__(self, url: str, output: Path) -> None:
        self.url = url
        self._output = output

    @property
    def text(self) -> str:
        """All that it wrote."""
        return self._output.read_text() if self._output.exists() else ""

    def spans(self) -> list[Written]:
        """The spans that it has received."""
        return list(map(_read, re.split(r"^Span #\d+\n", self.text, flags=re.MULTILINE)[1:]))


def _read(text: str) -> Written:
    written = Written()
    place = written.facts
    for line in text.splitlines():
        if line.startswith("\t{"):  # the line of the log ends here
            break
        if line.startswith("Attributes:"):
            place = written.attributes
        elif line.startswith("SpanEvent #"):
            place = {}
            written.events.append(place)
        elif found := re.match(r"\s+(?:-> )?([^:]*?)\s*: ?(.*)", line):
            place[found[1]] = found[2]
    return written


def collector_program() -> str:
    """The path of the Collector. Skips the test that needs it where it cannot be built, and says what is missing."""
    script = subprocess.run(
        [ROOT / "scripts" / "install_collector"], capture_output=True, text=True, check=False, timeout=BUILD_S
    )
    if script.returncode != 0:
        pytest.skip(script.stderr.strip().splitlines()[-1])
    return script.stdout.strip()


@contextmanager
def running_collector(program: str, folder: Path) -> Iterator[Collector]:
    """The Collector, ready."""
    port, output, log = free_port(), folder / "collector.txt", folder / "collector.log"
    configuration = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"debug": {"verbosity": "detailed"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}, "logs": {"output_paths": [str(output)]}},
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["debug"]}},
        },
    }
    (folder / "collector.yaml").write_text(json.dumps(configuration))  # YAML reads JSON
    with log.open("wb") as errors:
        process = subprocess.Popen([program, "--config", str(folder / "collector.yaml")], stdout=errors, stderr=errors)
    try:
        wait_for(lambda: process.poll() is not None or _listens(port), "the Collector")
        assert process.poll() is None, log.read_text()
        yield Collector(f"http://127.0.0.1:{port}", output)
    finally:
        process.terminate()
        process.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0
