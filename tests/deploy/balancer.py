"""haproxy in front of two taps, with the configuration of docs/guides/operations.md."""

import contextlib
import csv
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.peer import started

from tests.deploy.tools import ROOT, tool
from tests.ports import free_port
from tests.running import wait_for

GUIDE = ROOT / "docs" / "guides" / "operations.md"
_BACKEND = "taps"
_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Places:
    """Where a tap listens: its ports for clients and for health."""

    name: str
    llm: int
    admin: int


def documented() -> str:
    """The configuration in the guide."""
    found = re.search(r"^```haproxy\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, GUIDE
    return found[1]


def configuration(port: int, control: Path, taps: Sequence[Places]) -> str:
    """The guide's, with the addresses of this machine."""
    text = documented().replace("bind :443 ssl crt /etc/haproxy/llm.pem", f"bind 127.0.0.1:{port}")
    text = text.replace("/run/haproxy/admin.sock", str(control))
    for tap in taps:
        before = f"server {tap.name} {tap.name}.internal:8080 check port 9464"
        assert before in text
        text = text.replace(before, f"server {tap.name} 127.0.0.1:{tap.llm} check port {tap.admin}")
    assert ".internal" not in text
    return text


class Balancer:
    """A running haproxy. `url`: where clients connect."""

    def __init__(self, port: int, control: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._control = control

    def drain(self, name: str) -> None:
        """No new request goes to this tap."""
        self._ask(f"set server {_BACKEND}/{name} state drain")

    def bring_back(self, name: str) -> None:
        """Requests go to this tap again. Waits until its health check has succeeded."""
        self._ask(f"set server {_BACKEND}/{name} state ready")
        self.wait_until_up(name)

    def wait_until_up(self, name: str) -> None:
        """Waits until the tap's health check has succeeded."""
        wait_for(lambda: self._status(name) == "UP", f"health of {name} at the balancer")

    def _status(self, name: str) -> str:
        rows = csv.DictReader(self._ask("show stat").removeprefix("# ").splitlines())
        return next(row["status"] for row in rows if (row["pxname"], row["svname"]) == (_BACKEND, name))

    def _ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(_TIMEOUT_S)
            control.connect(str(self._control))
            control.sendall(f"{command}\n".encode())
            answer = b"".join(iter(lambda: control.recv(65_536), b"")).decode()
        assert command.startswith("show") or not answer.strip(), answer
        return answer


@contextlib.contextmanager
def balancer(root: Path, taps: Sequence[Places]) -> Iterator[Balancer]:
    """Runs haproxy. Skips the test if it is missing."""
    program, port, control = tool("haproxy"), free_port(), root / "haproxy.sock"
    file = root / "haproxy.cfg"
    file.write_text(configuration(port, control, taps))
    with started([program, "-db", "-f", str(file)], port, root / "haproxy.log"):
        yield Balancer(port, control)
