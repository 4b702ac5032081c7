"""Outages of a real system, seen by a real Prometheus and Alertmanager: the alert of each comes, and no other.

A real Kafka, a tap, two workers, and clients. Durations of the rules are shortened; what Kafka and Streamgauge take is not.
"""

import asyncio
import contextlib
import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from streamgauge.metrics.rule_files import prometheus_rules
from streamgauge.metrics.rules import Durations, Links
from streamgauge_demo import provider as simulated
from tests.dashboards.monitoring import Monitoring, monitoring
from tests.faults.small_disk import SmallDisk, small_disk
from tests.integration.provider import BEGIN, REST, Provider, event, provider
from tests.integration.test_worker import write
from tests.kafka_broker.administration import delete_topics
from tests.kafka_broker.broker import Broker
from tests.kafka_broker.fixtures import PARTITIONS, make_topics
from tests.ports import free_port
from tests.running import Running, start, wait_for, wait_until_ready

pytestmark = pytest.mark.slow

PROMETHEUS = Path(__file__).parents[2] / "dashboards" / "prometheus"

# Two minutes become ten seconds: longer than anything takes that is no outage.
FACTOR = 1 / 12
# How long an alert may take to come and to go (seconds), with a slow machine's share of CPU.
PATIENCE_S = 150.0
# How long a system without a fault is watched at the beginning, and one with a fault after its alert (seconds).
QUIET_S, WATCHED_S = 40.0, 5.0
SILENT_STREAMS = 7
LOST = frozenset({"TapDropsReads"})
# The disk of the tap's data directory, and the limit of its spool (bytes).
DISK_SIZE, SPOOL_BYTES = "96m", 32 * 1024 * 1024

__all__ = ["small_disk"]


def fixed(status: int, content_type: str, body: bytes, after_s: float = 0.0) -> simulated.Provider:
    """A provider that gives one answer to all, after some seconds."""

    async def script(exchange: simulated.Exchange) -> None:
        await exchange.read_body()
        await asyncio.sleep(after_s)
        await simulated.whole(body, status, content_type)(exchange)

    return simulated.Provider(script, keeps=False)


EVENTS = "text/event-stream"
LIMITED = (429, "application/json", b'{"error":{"type":"rate_limit_error","message":"slow down"}}')
UNAVAILABLE = (503, "application/json", b'{"error":{"type":"overloaded_error","message":"come back"}}')
CUT = (200, EVENTS, BEGIN)
ERRING = (200, EVENTS, BEGIN + b'data: {"error":{"message":"no worker left","type":"server_error","code":null}}\n\n')
WITHOUT_USAGE = (200, EVENTS, BEGIN + event(delta={}, finish_reason="stop") + b"data: [DONE]\n\n")
# Later than the objective of the first token (5 s); by so many clients, that several streams a second end.
LATE, LATE_CLIENTS = (200, EVENTS, BEGIN + REST, 6.0), 10


def ask(system: "System", upstream: str) -> None:
    address = urlsplit(system.tap.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        body = json.dumps({"model": "small-1", "stream": True, "messages": []})
        connection.request("POST", f"/{upstream}/v1/chat/completions", body)
        connection.getresponse().read()


@contextmanager
def traffic(system: "System", *upstreams: str) -> Iterator[None]:
    """A client for each upstream that asks again and again, five times a second."""
    stop = threading.Event()

    def run(upstream: str) -> None:
        while not stop.wait(0.2):
            ask(system, upstream)

    threads = [threading.Thread(target=run, args=(upstream,)) for upstream in upstreams]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)


class System:
    """A broker, a tap and two workers, whose ports stay the same over restarts."""

    def __init__(
        self, broker: Broker, folder: Path, disk: SmallDisk, upstreams: dict[str, str], stack: ExitStack
    ) -> None:
        self.broker = broker
        disk.resize(DISK_SIZE)
        self.disk = disk
        self.admin = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self._prefix = make_topics(broker.bootstrap)
        self._folder = folder
        self._stack = stack
        self._upstreams = upstreams
        self.tap_admin, self._listen = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.tap = self._tap()
        wait_until_ready(self.tap)
        self.workers = [self._worker(number) for number in range(2)]
        for worker in self.workers:
            wait_until_ready(worker)

    def _tap(self) -> Running:
        flags = ["--kafka", self.broker.bootstrap, "--topic-prefix", self._prefix, "--admin", self.tap_admin]
        flags += [
            "--data-dir",
            str(self.disk.path / "tap"),
            "--listen",
            self._listen,
            "--spool-bytes",
            str(SPOOL_BYTES),
        ]
        flags += [flag for name, url in self._upstreams.items() for flag in ("--upstream", f"{name}={url}")]
        running = self._stack.enter_context(start("tap", flags, self._folder / "tap"))
        running.url = f"http://{self._listen}"
        return running

    def kill_tap(self) -> None:
        self.tap.process.kill()
        self.tap.process.wait()

    def restart_tap(self) -> None:
        self.tap = self._tap()

    def write_garbage(self) -> None:
        write(self.broker.bootstrap, self._prefix, [(partition, b"no bundle") for partition in range(PARTITIONS)])

    def delete_topics(self) -> None:
        asyncio.run(delete_topics(self.broker.bootstrap, self._prefix))

    def _worker(self, number: int) -> Running:
        flags = ["--kafka", self.broker.bootstrap, "--topic-prefix", self._prefix, "--admin", self.admin[number]]
        flags += ["--data-dir", str(self._folder / f"worker-{number}"), "--silent-seconds", "2"]
        flags += ["--ledger", f"sqlite:///{self._folder / 'ledger.sqlite'}"]
        prices = self._folder / "prices.toml"
        prices.write_text(
            '[[price]]\nmodel = "*"\nfrom = 2026-01-01\ninput = 1\noutput = 1\n'
        )  # PricesMissing is no outage
        flags += ["--prices", str(prices)]
        return self._stack.enter_context(start("worker", flags, self._folder / f"worker-{number}"))

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self.workers[number].process.kill()
            self.workers[number].process.wait()

    def restart(self, *numbers: int) -> None:
        for number in numbers:
            self.workers[number] = self._worker(number)

    def hang(self, hanging: Provider, streams: list[threading.Thread]) -> None:
        """Clients begin streams, and the provider sends nothing after their beginning."""
        hanging.go_on.clear()
        streams += [threading.Thread(target=ask, args=(self, "hanging")) for _ in range(SILENT_STREAMS)]
        for stream in streams:
            stream.start()


class Outages:
    """Causes outages one after the other, and notes how long each alert took."""

    def __init__(self, monitored: Monitoring) -> None:
        self._monitored = monitored
        self._staying: set[tuple[str, str]] = set()  # alerts of outages whose windows are longer than this test
        self.took_s: dict[str, float] = {}

    def _firing(self) -> set[tuple[str, str]]:
        return self._monitored.firing() - self._staying

    def quiet(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            assert self._firing() == set()
            time.sleep(1)

    def cause(
        self,
        name: str,
        begin: Callable[[], object],
        end: Callable[[], object] | None,
        expected: set[tuple[str, str]],
        also: frozenset[str] = frozenset(),
    ) -> None:
        """`expected` fires, and nothing else but the alerts `also`; after the end nothing does. None: they stay."""
        began = time.monotonic()
        begin()
        seen: set[tuple[str, str]] = set()

        def watch() -> bool:
            seen.update(self._firing())
            assert {one for one in seen if one[0] not in also} <= expected, f"{name}: {seen}"
            return expected <= seen

        try:
            wait_for(watch, f"alert of: {name}, but {seen}", PATIENCE_S)
            self.took_s[name] = round(time.monotonic() - began, 1)
            ends = time.monotonic() + WATCHED_S
            while time.monotonic() < ends:
                watch()
                time.sleep(1)
        finally:
            if end is not None:
                end()
        if end is None:
            self._staying |= seen
        wait_for(lambda: not self._firing(), f"end of the alerts of: {name}", PATIENCE_S)


def inhibited() -> dict[str, Any]:
    """The example's routes and inhibitions, without its waiting."""
    content: dict[str, Any] = yaml.safe_load((PROMETHEUS / "alertmanager.yml").read_text())
    content["route"] |= {"group_wait": "2s", "group_interval": "2s"}
    return content


@contextmanager
def monitored_system(broker: Broker, folder: Path, disk: SmallDisk) -> Iterator[tuple[System, Provider, Monitoring]]:
    """A system under traffic; the provider of its upstream `hanging`; and its monitoring."""
    with ExitStack() as stack:
        small, hanging = (stack.enter_context(provider()) for _ in range(2))
        answers: dict[str, Any] = {"limited": LIMITED, "unavailable": UNAVAILABLE, "cut": CUT, "erring": ERRING}
        answers |= {"silent-on-usage": WITHOUT_USAGE, "late": LATE}
        upstreams = {name: stack.enter_context(fixed(*answer)).url for name, answer in answers.items()}
        upstreams |= {"small": small.url, "hanging": hanging.url, "closed": f"http://127.0.0.1:{free_port()}"}
        system = System(broker, folder, disk, upstreams, stack)
        rules = prometheus_rules(durations=Durations(FACTOR), links=Links(runbooks="https://example.org/runbooks"))
        targets = {"tap": [system.tap_admin], "worker": system.admin}
        monitored = stack.enter_context(monitoring(folder / "monitoring", targets, rules, inhibited()))
        stack.enter_context(traffic(system, "small"))
        yield system, hanging, monitored


@pytest.mark.skipif(not os.environ.get("STREAMGAUGE_ALERTS"), reason="takes nine minutes alone: make alerts")
@pytest.mark.timeout(1_500)
def test_each_outage_has_its_alert(
    own_broker: Callable[..., Broker], tmp_path: Path, small_disk: SmallDisk, alertmanager_tools: None
) -> None:
    with monitored_system(own_broker(), tmp_path, small_disk) as (system, hanging, monitored):
        outages = Outages(monitored)
        outages.quiet(QUIET_S)
        of_upstreams(outages, system, hanging)
        of_processes(outages, system)
        that_stay(outages, system)
        print("seconds until the alerts:", outages.took_s)
        check_notifications(monitored)


def of_upstreams(outages: Outages, system: System, hanging: Provider) -> None:
    clients = ExitStack()
    outages.cause(
        "an upstream refuses connections",
        lambda: clients.enter_context(traffic(system, "closed")),
        clients.close,
        {("UpstreamUnreachable", "closed")},
    )
    outages.cause(
        "a provider answers 429",
        lambda: clients.enter_context(traffic(system, "limited")),
        clients.close,
        {("ProviderAnswersErrors", "limited")},
    )
    outages.cause(
        "a provider answers 503",
        lambda: clients.enter_context(traffic(system, "unavailable")),
        clients.close,
        {("ProviderAnswersErrors", "unavailable")},
    )
    streams: list[threading.Thread] = []
    outages.cause(
        "streams hang",
        lambda: system.hang(hanging, streams),
        hanging.go_on.set,
        {("StreamsSilent", "hanging")},
    )
    for stream in streams:
        stream.join(PATIENCE_S)


def of_processes(outages: Outages, system: System) -> None:
    tap, workers = system.tap_admin, system.admin
    all_down = {("WorkerDown", address) for address in workers}
    outages.cause(
        "messages cannot be read",
        system.write_garbage,
        lambda: None,
        {("DeadLettersArrive", address) for address in workers},
    )
    # The other worker gets the partitions when Kafka's session of 10 s is over, which is not shortened.
    outages.cause(
        "a worker was killed",
        lambda: system.kill(0),
        lambda: system.restart(0),
        {("WorkerDown", workers[0])},
        frozenset({"PartitionsWithoutOwner"}),
    )
    outages.cause(
        "all workers were killed",
        lambda: system.kill(0, 1),
        lambda: system.restart(0, 1),
        {("NoWorker", ""), *all_down},
    )
    outages.cause(
        "the broker was killed",
        system.broker.kill,
        system.broker.start,
        {("BrokerAway", address) for address in (tap, *workers)},
    )
    full = ExitStack()
    outages.cause(
        "the tap's disk was full",
        lambda: full.enter_context(system.disk.full()),
        full.close,
        {("SpoolWritesRefused", tap), ("DiskAlmostFull", tap)},
        LOST,
    )
    # A tap that was killed loses what was on its way to the spool, and counts it when it is back.
    outages.cause("the tap was killed", system.kill_tap, system.restart_tap, {("TapDown", tap), ("NoTap", "")}, LOST)


def that_stay(outages: Outages, system: System) -> None:
    broken = {("StreamsTruncated", "cut"), ("StreamsBreakMidway", "cut"), ("StreamsBreakMidway", "erring")}
    with traffic(system, "cut", "erring", "silent-on-usage"):
        outages.cause(
            "streams are cut or get an error after HTTP 200, and others report no usage",
            lambda: None,
            None,
            broken | {("UsageMissing", "silent-on-usage")},
            LOST,
        )
    with traffic(system, *["late"] * LATE_CLIENTS):
        outages.cause("first tokens come late", lambda: None, None, {("TimeToFirstTokenHigh", "late")}, LOST)
    outages.cause(
        "the topics were deleted",
        system.delete_topics,
        None,
        {("BrokerProblem", system.tap_admin), ("NoWorker", ""), *(("WorkerDown", one) for one in system.admin)},
        LOST,
    )


def check_notifications(monitored: Monitoring) -> None:
    """Each outage was notified, with its runbook, to the receiver of its severity; what follows from another was not."""
    wait_for(lambda: "BrokerProblem" in monitored.notified.names(), "the last notification", PATIENCE_S)
    notified = monitored.notified.names() - {"PartitionsWithoutOwner"} - LOST
    ended = {"UpstreamUnreachable", "ProviderAnswersErrors", "StreamsSilent", "NoWorker", "BrokerAway", "NoTap"}
    ended |= {"SpoolWritesRefused", "DiskAlmostFull", "DeadLettersArrive"}
    staying = {
        "WorkerDown",
        "StreamsTruncated",
        "StreamsBreakMidway",
        "UsageMissing",
        "BrokerProblem",
        "TimeToFirstTokenHigh",
    }
    assert notified == ended | staying, "NoTap inhibits TapDown"
    assert monitored.notified.names("resolved") >= ended
    for receiver, alert in monitored.notified.alerts:
        name, severity = alert["labels"]["alertname"], alert["labels"]["severity"]
        assert alert["annotations"]["runbook_url"] == f"https://example.org/runbooks/{name}.md"
        assert receiver == {"page": "on-call", "ticket": "tickets"}[severity]
