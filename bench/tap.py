"""The cost of a tap compared with other proxies: nginx, haproxy, proxies with aiohttp and httpx, and two relays that only
move bytes, one in C and one on uvloop.

All run in front of one upstream during the whole benchmark. Each load goes to one after the other, in several rounds. Some
also run in front of an upstream with TLS, which they verify, with a part of the loads. If there are two cores, load and
broker run on one, and the proxies on the other: the processes of the tap share it. The figure is the CPU time of
all processes of a proxy, until Kafka has all captured reads.

    python -m bench.tap [--rounds N] [--seconds S] [--minutes M] [--quick] [--before TREE] [--document FILE] [PEER...]

With --before, the taps of another working tree of this repository (`git worktree add TREE COMMIT`, and there
`scripts/build_native.py`) take part in each round, by turns with those of this one.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from tests.kafka_broker.jars import NoBrokerError
from tests.ports import free_port

from bench.document import replace_section
from bench.load.client import BrokenError, TooSlowError
from bench.measure import Others, cores, started_on
from bench.peers.bare_c import bare_c
from bench.peers.broker import broker
from bench.peers.peer import MissingError, Origin, Peer, started, upstream
from bench.peers.servers import haproxy, nginx
from bench.peers.streamgauge import tap, up
from bench.peers.tls_upstream import tls_upstream
from bench.tap_loads import TLS_LOADS, Figure, Load, Results, Sizes, loads, measure, now
from bench.tap_table import BEFORE, DIRECT, TLS, report

# A round that would end later than this does not begin (minutes): the benchmark must take a quarter of an hour.
BUDGET_MINUTES = 14.5
# All peers take part in this many rounds. Later rounds have nginx, the taps and the upstream only: they take half the time,
# so there are more rounds for the figures with aims, which differ most from round to round.
ALL_ROUNDS = 2
QUICK = Sizes(bursts=1, seconds=0.8, requests=200)
# The warm-up of a peer's caches and code: one small load of each kind, which does not count.
_WARM, _WARM_LOADS = Sizes(bursts=1, seconds=0.2, requests=20, share=0.5), 4

# Starts a peer in front of an upstream, with a directory for its files and the address of a broker.
Start = Callable[[Origin, Path, str], AbstractContextManager[Peer]]


def _python(name: str) -> Start:
    """Starts a proxy of bench/peers in front of an upstream without TLS."""

    @contextlib.contextmanager
    def start(upstream: Origin, directory: Path, kafka: str) -> Iterator[Peer]:
        port = free_port()
        command = [sys.executable, "-m", f"bench.peers.{name}", str(port), str(upstream.port)]
        with started(command, port, directory / f"{name}.log") as peer:
            yield peer

    return start


# The peers. The first available one is the reference for the others.
_PLAIN: dict[str, Start] = {
    "nginx": lambda upstream, directory, kafka: nginx(upstream, directory),
    "haproxy": lambda upstream, directory, kafka: haproxy(upstream, directory),
    "C, bytes alone": lambda upstream, directory, kafka: bare_c(upstream, directory),
    "uvloop, bytes alone": _python("bare_relay"),
    "aiohttp": _python("aiohttp_proxy"),
    "httpx + uvicorn": _python("httpx_proxy"),
    "streamgauge, full": lambda upstream, directory, kafka: tap(upstream, directory, kafka, "full"),
    "streamgauge, masked": lambda upstream, directory, kafka: tap(upstream, directory, kafka, "masked"),
    "streamgauge, up": lambda upstream, directory, kafka: up(upstream, directory),
}
# The peers that are also measured with TLS to the upstream. The first available one is their reference.
_WITH_TLS = ("nginx", "haproxy", "streamgauge, full", "streamgauge, masked")
PEERS: dict[str, Start] = {**_PLAIN, **{f"{name}{TLS}": _PLAIN[name] for name in _WITH_TLS}}


def _with_before(tree: Path) -> dict[str, Start]:
    """The peers with the code of another working tree."""
    taps: dict[str, Start] = {
        "streamgauge, full": lambda upstream, directory, kafka: tap(upstream, directory, kafka, "full", tree),
        "streamgauge, masked": lambda upstream, directory, kafka: tap(upstream, directory, kafka, "masked", tree),
        "streamgauge, up": lambda upstream, directory, kafka: up(upstream, directory, tree),
    }
    with_tls = {f"{name}{BEFORE}{TLS}": start for name, start in taps.items() if name in _WITH_TLS}
    return {**{f"{name}{BEFORE}": start for name, start in taps.items()}, **with_tls}


# The processes of the tap with full capture, with requests that it does not capture.
UNCAPTURED, _CAPTURED = "streamgauge, not captured", "streamgauge, full"
_EACH_ROUND = {"nginx", "streamgauge, full", "streamgauge, masked", "streamgauge, up", UNCAPTURED, DIRECT}


@contextlib.contextmanager
def _broker(directory: Path, results: Results) -> Iterator[str]:
    """Runs a broker and yields its address, or an empty one if no broker is available."""
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(broker(directory))
        except NoBrokerError as error:
            results.add_missing("streamgauge", str(error))
            address = ""
        yield address


@contextlib.contextmanager
def running(
    names: Sequence[str], results: Results, all_peers: Mapping[str, Start] = PEERS
) -> Iterator[dict[str, Peer]]:
    """Starts the named peers that are available, on their cores. Yields them by name, the upstream too."""
    load_cores, peer_cores = cores()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamgauge-bench-")))
        stack.enter_context(started_on(load_cores))
        direct = stack.enter_context(upstream())
        plain = tls = Origin(direct.port)
        if any(name.endswith(TLS) for name in names):
            tls = stack.enter_context(tls_upstream(directory))
        with_taps = any(name.startswith("streamgauge") for name in names)
        kafka = stack.enter_context(_broker(directory / "kafka", results)) if with_taps else ""
        peers = {}
        for name in names:
            if name.startswith("streamgauge") and not kafka:
                continue
            origin, files = (tls, directory / "tls") if name.endswith(TLS) else (plain, directory)
            files.mkdir(exist_ok=True)
            try:
                with started_on(peer_cores):
                    peers[name] = stack.enter_context(all_peers[name](origin, files, kafka))
            except MissingError as error:
                results.add_missing(name, str(error))
        if _CAPTURED in peers:
            peers[UNCAPTURED] = replace(peers[_CAPTURED], captured=False)
        yield {**peers, DIRECT: direct}


def put(load: Load, name: str, peers: dict[str, Peer], results: Results) -> Figure | None:
    """Runs one load on one peer. Returns None if it fails; `results` then has the reason."""
    try:
        return measure(load, peers[name])
    except (BrokenError, OSError) as error:
        results.add_fault(f"{name}, {load.name}: {error or type(error).__name__}")
    except TooSlowError as error:
        results.add_missing(f"{name}, {load.name}", str(error))
    peers[name].wait_idle()
    return None


def rounds(
    peers: dict[str, Peer],
    sizes: Sizes,
    count: int,
    results: Results,
    *,
    warm: Sizes = _WARM,
    minutes: float = BUDGET_MINUTES,
) -> None:
    """Runs all loads on all peers, in rounds. Each round begins with another peer."""
    for load in loads(warm)[:_WARM_LOADS]:
        for name in peers:
            put(load, name, peers, Results())
    others = Others()
    begun = began_round = now()
    names = all_names = list(peers)
    for number in range(count):
        seconds_per_peer = (now() - began_round) / len(names)
        names = [
            name
            for name in all_names
            if number < ALL_ROUNDS or name.removesuffix(TLS).removesuffix(BEFORE) in _EACH_ROUND
        ]
        began_round = now()
        if number and began_round - begun + seconds_per_peer * len(names) > minutes * 60:
            break
        all_loads = loads(sizes)
        for turn, load in enumerate(all_loads, number * len(all_loads)):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                if f"{name}, {load.name}" in results.missing or (name.endswith(TLS) and load.name not in TLS_LOADS):
                    continue
                figure = put(load, name, peers, results)
                if figure is not None:
                    results.add(load.name, name, figure, turn)
                    print(_line(number, load.name, name, figure), flush=True)
    results.others = others.share()
    for name, peer in peers.items():
        results.memory[name] = peer.peak_mib()
        for fault in peer.faults:
            results.add_fault(f"{name}: {fault}")


def _line(number: int, load: str, name: str, figure: Figure) -> str:
    parts = " ".join(f"{part} {used * 1e6:.1f}" for part, used in figure.cpu.items())
    times = f"late {figure.late_p50:.2f} {figure.late_p99:.2f} first {figure.first_p50:.3f} {figure.first_p99:.3f} ms"
    return f"{number + 1} {load:<11} {name:<33} {times}  widest {figure.widest:.2f}  us CPU each: {parts}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.tap", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"all by default: {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=8, help="at most; see --minutes")
    parser.add_argument("--minutes", type=float, default=BUDGET_MINUTES, help="no round begins that would end later")
    parser.add_argument("--before", type=Path, metavar="TREE", help="also measure the taps of another working tree")
    parser.add_argument("--seconds", type=float, default=Sizes().seconds, help="of each paced load")
    parser.add_argument("--quick", action="store_true", help="one short round, in a minute")
    parser.add_argument("--document", type=Path, help="write the tables into this file, between its markers")
    given = parser.parse_args(arguments)
    all_peers = PEERS if given.before is None else {**PEERS, **_with_before(given.before.resolve())}
    if unknown := set(given.peers) - set(all_peers):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(all_peers)}")
    before = os.sched_getaffinity(0)
    results, sizes = Results(), QUICK if given.quick else replace(Sizes(), seconds=given.seconds)
    try:
        with running(given.peers or list(all_peers), results, all_peers) as peers:
            rounds(peers, sizes, 1 if given.quick else given.rounds, results, minutes=given.minutes)
            names = [name for name in peers if name != DIRECT]
    finally:
        os.sched_setaffinity(0, before)
    if not names:
        raise SystemExit(f"no peer is available: {results.missing}")
    text = report(results, names)
    print(f"\n{text}")
    if given.document is not None:
        replace_section(given.document, "tap", text)


if __name__ == "__main__":
    main()
