"""`streamgauge tap` with one relay and a broker, whose work is done when Kafka has every read; and `streamgauge up`."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.running import Running, start_tap, start_up

from bench.measure import tree
from bench.peers.peer import Origin, Peer
from bench.peers.tls_upstream import UPSTREAM_ADDRESS
from streamgauge.core.capture.segments import BUNDLE_NS
from streamgauge.kafka import topics
from streamgauge.recorder.loop_client import FLUSH_S
from streamgauge.spool.read_counters import Balance, read_balance

_PARTITIONS = 8
# How long the capture may take to deliver all reads, far more than it needs; a fault if it takes longer (seconds).
_SETTLE_S = 60.0
# The ends of streams follow the last read. No counter shows them; they take a flush of the relay and a bundle (seconds).
_ENDS_S = FLUSH_S + BUNDLE_NS / 1e9 + 0.1
# The name of a process, by a word of its command line.
_PARTS = {"taps.proxy": "relay", "cli.collector": "collector", "streamgauge.recorder": "collector"}


@contextmanager
def tap(upstream: Origin, directory: Path, kafka: str, capture: str, before: Path | None = None) -> Iterator[Peer]:
    """Runs a tap in front of the upstream, with its own topics, and its files in `directory`.

    `before`: the working tree whose code it has; None: this one's.
    """
    scheme, prefix = "http", prefix_of(capture if before is None else f"{capture}-before")
    options = ["--kafka", kafka, "--capture", capture]
    if upstream.ca is not None:
        scheme, prefix = "https", f"{prefix}-tls"
        options += ["--upstream-ca", str(upstream.ca)]
    asyncio.run(topics.create(kafka, _PARTITIONS, prefix))
    data_dir = directory / prefix
    url = f"{scheme}://{UPSTREAM_ADDRESS}:{upstream.port}"
    with start_tap("tap", url, data_dir, *options, "--topic-prefix", prefix, environment=_code_of(before)) as running:
        yield _peer(running, data_dir)


@contextmanager
def up(upstream: Origin, directory: Path, before: Path | None = None) -> Iterator[Peer]:
    """Runs `up` with masked capture in front of an upstream without TLS. Its work is done when the ledger has every read."""
    data_dir = directory / ("up" if before is None else "up-before")
    with start_up(f"http://{UPSTREAM_ADDRESS}:{upstream.port}", data_dir, environment=_code_of(before)) as running:
        yield _peer(running, data_dir)


def _code_of(tree: Path | None) -> dict[str, str]:
    """The environment of a command that runs the code of another working tree."""
    return {} if tree is None else {"PYTHONPATH": str(tree / "pipeline")}


def _peer(running: Running, data_dir: Path) -> Peer:
    pids = {pid: _part(line) for pid, line in tree(running.process.pid).items()}
    peer = Peer(urlsplit(running.url).port or 0, pids)
    peer.settle = lambda: _settle(peer, data_dir / "counters")
    return peer


def prefix_of(capture: str) -> str:
    """The topic prefix of the tap with this capture, in front of an upstream without TLS."""
    return f"bench-{capture}"


def _part(line: str) -> str:
    return next((part for word, part in _PARTS.items() if word in line), "supervisor")


def _settle(peer: Peer, counters: Path) -> None:
    deadline = time.monotonic() + _SETTLE_S
    while (balance := read_balance(counters)).waiting and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(_ENDS_S)
    peer.faults[:] = faults_of(balance)


def faults_of(balance: Balance) -> list[str]:
    """The faults in a balance of reads."""
    lost = [f"{reads} reads dropped: {reason}" for reason, reads in balance.dropped.items() if reads]
    waiting = [f"{balance.waiting} reads still wait"] if balance.waiting else []
    unbalanced = balance.seen - balance.delivered - balance.waiting - sum(balance.dropped.values())
    return [*lost, *waiting, *([f"the balance is {unbalanced} reads off"] if unbalanced else [])]
