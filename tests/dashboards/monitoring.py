"""A real Prometheus and Alertmanager for a test: they scrape its targets, evaluate rules, and notify it."""

import json
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import yaml

from tests.http_serving import LocalServer, Quiet, serving
from tests.ports import free_port

# How long a program may take to start (seconds).
_PATIENCE_S = 60.0


class Notified(LocalServer):
    """What Alertmanager sends: `alerts` has every alert of every notification, with its receiver."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.alerts: list[tuple[str, dict[str, Any]]] = []
        self.lock = threading.Lock()

    def names(self, status: str = "firing") -> set[str]:
        """The names of the alerts that were notified so far with this status."""
        with self.lock:
            return {alert["labels"]["alertname"] for _, alert in self.alerts if alert["status"] == status}


class _Handler(Quiet, BaseHTTPRequestHandler):
    server: Notified

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.alerts += [(content["receiver"], alert) for alert in content["alerts"]]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()


class Monitoring:
    """`base`: Prometheus' address; `notified`: what Alertmanager has sent."""

    def __init__(self, base: str, notified: Notified) -> None:
        self.base = base
        self.notified = notified

    def firing(self) -> set[tuple[str, str]]:
        """The alerts that fire now: each name, with its instance, upstream or job."""
        with urllib.request.urlopen(f"{self.base}/api/v1/alerts", timeout=20) as answer:
            alerts = json.load(answer)["data"]["alerts"]
        return {
            (
                labels["alertname"],
                labels.get("instance") or labels.get("upstream") or labels.get("job") or "",
            )
            for labels in (alert["labels"] for alert in alerts if alert["state"] == "firing")
        }


@contextmanager
def monitoring(
    folder: Path, targets: Mapping[str, Sequence[str]], rules: str, alertmanager: Mapping[str, Any]
) -> Iterator[Monitoring]:
    """Prometheus scrapes `targets` (by job) and evaluates `rules` every second. Alertmanager has the configuration
    `alertmanager`, with receivers that notify this test.
    """
    folder.mkdir()
    with serving(Notified()) as notified:
        receivers = [
            {"name": receiver["name"], "webhook_configs": [{"url": notified.url, "send_resolved": True}]}
            for receiver in alertmanager["receivers"]
        ]
        with (
            started_alertmanager(folder, {**alertmanager, "receivers": receivers}) as manager,
            prometheus_with_rules(folder, targets, rules, manager) as base,
        ):
            yield Monitoring(base, notified)


@contextmanager
def started_alertmanager(folder: Path, configuration: Mapping[str, Any]) -> Iterator[str]:
    """Alertmanager alone, with a configuration; gives its host and port."""
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(configuration))
    manager = f"127.0.0.1:{free_port()}"
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager") or ""
    with _program(
        folder / "alertmanager.log",
        [
            program,
            f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/alertmanager",
            f"--web.listen-address={manager}",
            "--cluster.listen-address=",
        ],
        f"http://{manager}/-/ready",
    ):
        yield manager


@contextmanager
def prometheus_with_rules(
    folder: Path, targets: Mapping[str, Sequence[str]], rules: str, alertmanager: str | None = None
) -> Iterator[str]:
    """Prometheus alone, with exemplars; gives its address."""
    (folder / "rules.yml").write_text(rules)
    managers = [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager else []
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [f"{folder}/rules.yml"],
        "alerting": {"alertmanagers": managers},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": list(some)}]} for job, some in targets.items()
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    with _program(
        folder / "prometheus.log",
        [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address={address}",
            "--rules.alert.resend-delay=1s",
            "--enable-feature=exemplar-storage",
        ],
        f"http://{address}/-/ready",
    ):
        yield f"http://{address}"


@contextmanager
def _program(log: Path, arguments: list[str], ready: str) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(arguments, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while not _answers(ready):
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait(_PATIENCE_S)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False
