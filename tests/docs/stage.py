"""A stage for one page of the documents: its commands run here as they are written, with other addresses.

The page's hosts and ports stand for free ports of this machine, its providers for the demo's simulator, its broker for the
test's. Everything that it writes is in a folder of its own.
"""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from streamgauge_demo.scenario import Scenario
from streamgauge_demo.scenarios import BY_MODEL
from streamgauge_demo.simulator import Simulator
from tests.docs.blocks import ROOT, Block, agrees, steps
from tests.ports import free_port
from tests.running import CLEAN, PATIENCE_S, wait_for

# The names of models in the documents, and what the simulator plays for each.
MODELS = {
    "gpt-4o-mini": "nanogpt/chat-reasoning",
    "claude-sonnet-4-5": "nanogpt/messages-stop",
    "Qwen/Qwen3-8B": "gateway/usage",
    "facebook/opt-125m": "gateway/usage",
}
# Ports of model servers in the documents: the simulator stands for each.
MODEL_SERVERS = {8000, 8081, 30000}
BROKER = {9092, 9093}

_ADDRESS = re.compile(r"\b(?:127\.0\.0\.1|0\.0\.0\.0|localhost|broker|[a-z0-9-]+\.internal):(\d{4,5})\b")
# A topic of the default prefix; `streamgauge.records` is a module, too.
_TOPIC = re.compile(r"(?<!from )(?<!import )\bstreamgauge\.(segments|records|state|deadletter)\b")
_PORT = re.compile(r"--port[= ](\d{4,5})\b")
# Commands that only look: what they print may take a moment to come.
_LOOKS = re.compile(
    r"(\.venv/bin/)?streamgauge (ledger (query|budgets|show)|top|deadletter list)|curl -s \S+/(metrics|streams|health)"
)
_STAYS = re.compile(r"(?:\.venv/bin/)?streamgauge (up|tap|worker)\b")


def scenarios() -> dict[str, Scenario]:
    """What the simulator plays, also under the names of models in the documents."""
    return {**BY_MODEL, **{name: replace(BY_MODEL[model], model=name) for name, model in MODELS.items()}}


# Columns of a terminal in which a block runs.
TERMINAL_COLUMNS = 100


class Stage:
    """Runs the blocks of a page in order. `kafka`: gives the address of a broker, called if the page has one."""

    def __init__(self, folder: Path, simulator: Simulator, kafka: Callable[[], str]) -> None:
        self.folder = folder
        self.prefix = f"docs-{uuid.uuid4().hex[:12]}"
        self.broker: str | None = None
        self._kafka = kafka
        self._simulator = simulator.url
        self._ports: dict[int, int] = {}
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._make_folder()

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self._stop(name)

    def play(self, block: Block) -> None:
        """Runs a block, or writes its file. Raises AssertionError if it fails, or prints something else."""
        if block.mark == "file":
            place = self.folder / block.value
            place.parent.mkdir(parents=True, exist_ok=True)
            # A recording keeps the addresses of what was recorded.
            text = block.text if block.language == "json" else self._here(block.text)
            place.write_text(text, encoding="utf-8")
        elif not block.is_run:
            return
        elif block.mark == "run" and block.value == "background":
            self._start(block)
        elif block.language == "python":
            self._run(block, f"python - <<'PYTHON'\n{self._here(block.text)}PYTHON\n", None)
        elif block.language == "sh":
            self._run(block, self._here(block.text), None)
        else:
            for command, expected in steps(block):
                self._run(block, self._here(command), [self._here(line) for line in expected])

    def add_program(self, name: str, command: str) -> None:
        """Adds a program that the page's commands find under this name. `command`: what it runs, quoted for a shell."""
        place = self.folder / ".venv" / "bin" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        place.chmod(0o755)

    @property
    def running(self) -> "list[subprocess.Popen[str]]":
        """The programs that stay."""
        return list(self._running.values())

    def address(self, port: int) -> str:
        """The address that stands for a port of the documents."""
        if port in MODEL_SERVERS:
            return self._simulator.removeprefix("http://")
        if port in BROKER:
            self.broker = self.broker or self._kafka()
            return self.broker
        if port not in self._ports:
            self._ports[port] = free_port()
        return f"127.0.0.1:{self._ports[port]}"

    def _make_folder(self) -> None:
        python = shlex.quote(sys.executable)
        for name, module in {"streamgauge": "-m streamgauge", "uvicorn": "-m uvicorn", "python": ""}.items():
            self.add_program(name, f"{python} {module}")
        for name in ("dashboards", "schemas"):
            (self.folder / name).symlink_to(ROOT / name)

    def _here(self, text: str) -> str:
        """A text of the page with the addresses of this stage."""
        text = _ADDRESS.sub(lambda found: self.address(int(found[1])), text)
        for provider in ("https://api.openai.com", "https://api.anthropic.com"):
            text = text.replace(provider, self._simulator)
        text = _PORT.sub(lambda found: f"--port {self.address(int(found[1])).rpartition(':')[2]}", text)
        text = _TOPIC.sub(rf"{self.prefix}.\1", text)
        text = text.replace("/var/lib/", f"{self.folder}/").replace("/opt/streamgauge/bin/", "")
        return re.sub(r"streamgauge top\b(?! [\w.]+:)", f"streamgauge top {self.address(9464)}", text)

    def _environment(self, admin: int = 9464) -> dict[str, str]:
        return {
            **{name: value for name, value in CLEAN.items() if not name.lower().endswith("_proxy")},
            "HOME": str(self.folder),
            "XDG_STATE_HOME": str(self.folder / ".local" / "state"),
            "PATH": f"{self.folder / '.venv' / 'bin'}:{CLEAN['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "pipeline"), str(ROOT)]),
            "OPENAI_API_KEY": "sk-docs",
            "ANTHROPIC_API_KEY": "sk-docs",
            "STREAMGAUGE_LISTEN": self.address(8080),
            "STREAMGAUGE_ADMIN": self.address(admin),
            "STREAMGAUGE_TOPIC_PREFIX": self.prefix,
            "NO_COLOR": "1",
            "COLUMNS": "160",
        }

    def _run(self, block: Block, script: str, expected: list[str] | None) -> None:
        is_terminal = block.mark == "run" and block.value == "terminal"
        code = int(block.value.removeprefix("exit ")) if block.mark == "run" and not is_terminal else 0
        run = _run_in_terminal if is_terminal else _run_captured

        def once() -> tuple[bool, str]:
            done = run(["bash", "-e", "-o", "pipefail", "-c", script], self.folder, self._environment())
            good = done.returncode == code and (expected is None or agrees(expected, done.stdout))
            return good, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"

        deadline = time.monotonic() + (PATIENCE_S if _LOOKS.match(script) else 0)
        while True:
            good, shown = once()
            if good or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        assert good, f"{block.place}: {script}\n{shown}\nexpected: {expected}"

    def _start(self, block: Block) -> None:
        [(command, expected)] = steps(block) if block.language == "console" else [(block.text.strip(), [])]
        script = self._here(command)
        ours = _STAYS.match(script)
        kind = {"up": "tap"}.get(ours[1], ours[1]) if ours else script
        self._stop(kind)
        admin = 9465 if kind == "worker" else 9464
        log = self.folder / f"{len(self._running)}.log"
        with log.open("w") as output:
            self._running[kind] = subprocess.Popen(
                ["bash", "-c", f"exec {script}"],
                cwd=self.folder,
                env=self._environment(admin),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        process = self._running[kind]
        named = re.search(r"--admin[= ]127\.0\.0\.1:(\d+)", script)
        url = f"http://127.0.0.1:{named[1]}" if named else f"http://{self.address(admin)}"
        listens = re.search(r"(?:--port |127\.0\.0\.1:)(\d+)", script)

        def ready() -> bool:
            assert process.poll() is None, f"{block.place}: it ended\n{log.read_text()}"
            return _answers(f"{url}/health/ready") if ours else listens is None or _accepts(int(listens[1]))

        wait_for(ready, f"{block.place}: {script}")
        printed = [self._here(line) for line in expected]
        wait_for(lambda: not printed or agrees(printed, log.read_text()), f"{block.place}: output like {printed}")

    def _stop(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _run_captured(words: list[str], folder: Path, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )


def _run_in_terminal(words: list[str], folder: Path, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """As `_run_captured`, with a terminal as stdout. What is written there fits into the terminal's own buffer."""
    ours, theirs = os.openpty()
    with open(ours, "rb", buffering=0) as screen:  # noqa: PTH123 - a descriptor
        try:
            done = subprocess.run(
                words,
                cwd=folder,
                env={**environment, "COLUMNS": str(TERMINAL_COLUMNS)},
                stdout=theirs,
                stderr=subprocess.PIPE,
                timeout=2 * PATIENCE_S,
                check=False,
            )
            os.set_blocking(ours, False)
            shown = b""
            while part := screen.read(65_536):
                shown += part
        finally:
            os.close(theirs)
    return subprocess.CompletedProcess(words, done.returncode, shown.decode(), done.stderr.decode())


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
        return True
    return False
