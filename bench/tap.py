"""What a tap costs beside the proxies that others run: nginx, haproxy, aiohttp's and httpx's, and ours as users run it; and
beside two relays that only move bytes, one in C and one on uvloop.

All are started in front of one upstream and stay; each load is put on one after the other, by turns, round after round. Some
are started a second time in front of an upstream with TLS, which they verify, and get a part of the loads.
Where there are two cores, load and broker have one and what is measured the other: all of ours, three processes, share
it. What counts is CPU, of all of a proxy's processes, up to the moment when Kafka has what was captured.

    python -m bench.tap [--rounds N] [--seconds S] [--quick] [--document FILE] [PEER...]
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from tests.kafka_broker.jars import NoBrokerError

from bench.document import replace_section
from bench.load.client import BrokenError, TooSlowError
from bench.measure import Others, cores, started_on
from bench.peers.bare_c import bare_c
from bench.peers.broker import broker
from bench.peers.peer import MissingError, Origin, Peer, free_port, started, upstream
from bench.peers.servers import haproxy, nginx
from bench.peers.streamgauge import tap
from bench.peers.tls_upstream import tls_upstream
from bench.tap_loads import TLS_LOADS, Figure, Found, Load, Sizes, loads, measure, now
from bench.tap_table import DIRECT, TLS, report

# A round that would end later than this is not begun (seconds): the whole is to take a quarter of an hour.
BUDGET_S = 870.0
# Everybody takes part in so many rounds. In those behind them are nginx and ours alone, and the upstream: a round takes half
# as long then, so there are more of them for what aims are about, whose figures differ most from round to round.
ALL_ROUNDS = 2
QUICK = Sizes(bursts=1, seconds=0.8, requests=200)
# How a peer's caches and code are warmed up: one of each kind of load, small, that does not count.
_WARM, _WARM_LOADS = Sizes(bursts=1, seconds=0.2, requests=20, share=0.5), 3


# In front of an upstream, with a directory for its files and the address of a broker.
Start = Callable[[Origin, Path, str], AbstractContextManager[Peer]]


def _python(name: str) -> Start:
    """A proxy of bench/peers as a process, in front of an upstream without TLS."""

    @contextlib.contextmanager
    def start(upstream: Origin, directory: Path, kafka: str) -> Iterator[Peer]:
        port = free_port()
        command = [sys.executable, "-m", f"bench.peers.{name}", str(port), str(upstream.port)]
        with started(command, port, directory / f"{name}.log") as peer:
            yield peer

    return start


# Who is measured, the first of those that can be had is what the others are compared with.
_PLAIN: dict[str, Start] = {
    "nginx": lambda upstream, directory, kafka: nginx(upstream, directory),
    "haproxy": lambda upstream, directory, kafka: haproxy(upstream, directory),
    "C, bytes alone": lambda upstream, directory, kafka: bare_c(upstream, directory),
    "uvloop, bytes alone": _python("bare_relay"),
    "aiohttp": _python("aiohttp_proxy"),
    "httpx + uvicorn": _python("httpx_proxy"),
    "streamgauge, full": lambda upstream, directory, kafka: tap(upstream, directory, kafka, "full"),
    "streamgauge, masked": lambda upstream, directory, kafka: tap(upstream, directory, kafka, "masked"),
}
# Who is measured with TLS to the upstream, too; the first of those that can be had is what the others are compared with.
_WITH_TLS = ("nginx", "haproxy", "streamgauge, full", "streamgauge, masked")
PEERS: dict[str, Start] = {**_PLAIN, **{f"{name}{TLS}": _PLAIN[name] for name in _WITH_TLS}}
# The same processes as full capture, asked for what they do not capture.
UNCAPTURED, _CAPTURED = "streamgauge, not captured", "streamgauge, full"
_EACH_ROUND = {"nginx", "streamgauge, full", "streamgauge, masked", UNCAPTURED, DIRECT}


@contextlib.contextmanager
def _broker(directory: Path, found: Found) -> Iterator[str]:
    """The address of a broker; an empty one where none can be had."""
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(broker(directory))
        except NoBrokerError as why:
            found.lack("streamgauge", str(why))
            address = ""
        yield address


@contextlib.contextmanager
def running(names: Sequence[str], found: Found) -> Iterator[dict[str, Peer]]:
    """Everybody who can be had, by name, the upstream itself among them; the cores are shared out."""
    load, measured = cores()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamgauge-bench-")))
        stack.enter_context(started_on(load))
        direct = stack.enter_context(upstream())
        plain = tls = Origin(direct.port)
        if any(name.endswith(TLS) for name in names):
            tls = stack.enter_context(tls_upstream(directory))
        ours = any(name.startswith("streamgauge") for name in names)
        kafka = stack.enter_context(_broker(directory / "kafka", found)) if ours else ""
        peers = {}
        for name in names:
            if name.startswith("streamgauge") and not kafka:
                continue
            origin, files = (tls, directory / "tls") if name.endswith(TLS) else (plain, directory)
            files.mkdir(exist_ok=True)
            try:
                with started_on(measured):
                    peers[name] = stack.enter_context(PEERS[name](origin, files, kafka))
            except MissingError as why:
                found.lack(name, str(why))
        if _CAPTURED in peers:
            peers[UNCAPTURED] = replace(peers[_CAPTURED], captured=False)
        yield {**peers, DIRECT: direct}


def put(load: Load, name: str, peers: dict[str, Peer], found: Found) -> Figure | None:
    """One load on one peer; None, and a line in `found`, if that does not go well."""
    try:
        return measure(load, peers[name])
    except (BrokenError, OSError) as why:
        found.fault(f"{name}, {load.name}: {why or type(why).__name__}")
    except TooSlowError as why:
        found.lack(f"{name}, {load.name}", str(why))
    peers[name].rest()
    return None


def rounds(peers: dict[str, Peer], sizes: Sizes, count: int, found: Found) -> None:
    """All loads on all peers, again and again; who is first changes from round to round."""
    for load in loads(_WARM)[:_WARM_LOADS]:
        for name in peers:
            put(load, name, peers, Found())
    others = Others()
    begun = began_round = now()
    names = everybody = list(peers)
    for number in range(count):
        for_each_s = (now() - began_round) / len(names)
        names = [name for name in everybody if number < ALL_ROUNDS or name in _EACH_ROUND]
        began_round = now()
        if number and began_round - begun + for_each_s * len(names) > BUDGET_S:
            break
        all_loads = loads(sizes)
        for turn, load in enumerate(all_loads, number * len(all_loads)):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                if f"{name}, {load.name}" in found.missing or (name.endswith(TLS) and load.name not in TLS_LOADS):
                    continue
                figure = put(load, name, peers, found)
                if figure is not None:
                    found.add(load.name, name, figure, turn)
                    print(_line(number, load.name, name, figure), flush=True)
    found.others = others.share()
    for name, peer in peers.items():
        found.memory[name] = peer.peak_mib()
        for fault in peer.faults:
            found.fault(f"{name}: {fault}")


def _line(number: int, load: str, name: str, figure: Figure) -> str:
    parts = " ".join(f"{part} {used * 1e6:.1f}" for part, used in figure.cpu.items())
    times = f"late {figure.late_p50:.2f} {figure.late_p99:.2f} first {figure.first_p50:.3f} {figure.first_p99:.3f} ms"
    return f"{number + 1} {load:<11} {name:<33} {times}  widest {figure.widest:.2f}  us CPU each: {parts}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.tap", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"all by default: {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=8, help="as many of them as a quarter of an hour has room for")
    parser.add_argument("--seconds", type=float, default=Sizes().seconds, help="of each paced load")
    parser.add_argument("--quick", action="store_true", help="one short round, in a minute")
    parser.add_argument("--document", type=Path, help="write the tables into this file, between its markers")
    given = parser.parse_args(arguments)
    if unknown := set(given.peers) - set(PEERS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    before = os.sched_getaffinity(0)
    found, sizes = Found(), QUICK if given.quick else replace(Sizes(), seconds=given.seconds)
    try:
        with running(given.peers or list(PEERS), found) as peers:
            rounds(peers, sizes, 1 if given.quick else given.rounds, found)
            names = [name for name in peers if name != DIRECT]
    finally:
        os.sched_setaffinity(0, before)
    if not names:
        raise SystemExit(f"nobody is here to be measured: {found.missing}")
    text = report(found, names)
    print(f"\n{text}")
    if given.document is not None:
        replace_section(given.document, "tap", text)


if __name__ == "__main__":
    main()
