"""Ours: `streamgauge tap` with one relay, shipping to a broker. Its work is done when Kafka has every read."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.running import start_tap

from bench.measure import tree
from bench.peers.peer import Origin, Peer
from bench.peers.tls_upstream import UPSTREAM_ADDRESS
from streamgauge.core.capture.segments import BUNDLE_NS
from streamgauge.kafka import topics
from streamgauge.recorder.loop_client import FLUSH_S
from streamgauge.spool.read_counters import Balance, read_balance

_PARTITIONS = 8
# How long the capture may take to be behind nothing: far more than it needs, and a fault if it is not enough (seconds).
_SETTLE_S = 60.0
# Behind the last read come the ends; they count for nothing, and go within the relay's time and a bundle's (seconds).
_ENDS_S = FLUSH_S + BUNDLE_NS / 1e9 + 0.1
# By a word of its command line.
_PARTS = {"taps.proxy": "relay", "streamgauge.recorder": "recorder"}


@contextmanager
def tap(upstream: Origin, directory: Path, kafka: str, capture: str) -> Iterator[Peer]:
    """A tap in front of the upstream, with topics of its own, its files in `directory`."""
    scheme, prefix = "http", prefix_of(capture)
    options = ["--kafka", kafka, "--capture", capture]
    if upstream.ca is not None:
        scheme, prefix = "https", f"{prefix}-tls"
        options += ["--upstream-ca", str(upstream.ca)]
    asyncio.run(topics.create(kafka, _PARTITIONS, prefix))
    data_dir = directory / f"tap-{capture}"
    url = f"{scheme}://{UPSTREAM_ADDRESS}:{upstream.port}"
    with start_tap("tap", url, data_dir, *options, "--topic-prefix", prefix) as running:
        pids = {pid: _part(line) for pid, line in tree(running.process.pid).items()}
        peer = Peer(urlsplit(running.url).port or 0, pids)
        peer.settle = lambda: _settle(peer, data_dir / "counters")
        yield peer


def prefix_of(capture: str) -> str:
    """Of the topics of the tap with this capture, in front of a plain upstream."""
    return f"bench-{capture}"


def _part(line: str) -> str:
    return next((part for word, part in _PARTS.items() if word in line), "shipper")


def _settle(peer: Peer, counters: Path) -> None:
    deadline = time.monotonic() + _SETTLE_S
    while (balance := read_balance(counters)).waiting and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(_ENDS_S)
    peer.faults[:] = faults_of(balance)


def faults_of(balance: Balance) -> list[str]:
    """What of the books is not as it has to be."""
    lost = [f"{reads} reads dropped: {reason}" for reason, reads in balance.dropped.items() if reads]
    waiting = [f"{balance.waiting} reads still wait"] if balance.waiting else []
    amiss = balance.seen - balance.delivered - balance.waiting - sum(balance.dropped.values())
    return [*lost, *waiting, *([f"the balance is {amiss} reads off"] if amiss else [])]
