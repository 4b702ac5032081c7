"""`python -m tests.chaos.outages --minutes N`: random outages of a real broker under one worker, one after another.

The broker is killed or frozen for a random time at a random moment of the worker's run: while it starts, recovers, works
or is idle; sometimes the worker is killed, terminated or stopped (SIGSTOP) during it. After each outage new streams are
written, and the time is taken from the broker's return to the first new record, and to the last. A line of JSON for each
outage, a table at the end; exit code 1 if a record is missing, comes late, exists in two versions, or a worker ended
with another exit code than 75.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.integration.synthetic import SyntheticTap, distinct
from tests.integration.workers import WorkerProcess
from tests.kafka_broker.broker import Broker
from tests.kafka_broker.fixtures import make_topics
from tests.kafka_broker.reading import read_all, write_all

# Streams that are written before an outage and finished after it (count).
_STREAMS = 40
# The latest time of the first record, and how long a record is waited for at all (seconds): longer than the watchdog's
# 120.
FIRST_S = 15.0
_PATIENCE_S = 180.0
# Outages (seconds): most are short; each tenth is longer than a Kafka client's request timeout, 30 s.
_SHORT_S, _LONG_S, _LONGEST_S = (0.2, 4.0), (4.0, 20.0), (32.0, 75.0)
# What happens to the worker's process during it; None: nothing.
_MEANWHILE = (None, None, None, None, "kill", "term", "stop")
_STUCK = 75


@dataclass
class Outage:
    """One outage, and what became of it. Times in seconds after the broker's return; None: never.

    `load`: processes that wanted to run while its records were waited for, on average, for each core (Linux's load over a
    minute).
    """

    how: str
    away_s: float
    moment: str
    meanwhile: str | None
    first_s: float | None = None
    all_s: float | None = None
    codes: tuple[int, ...] = ()
    load: float = 0.0


class Run:
    """One broker, one group, one worker at a time."""

    def __init__(self, folder: Path, seed: int, away_s: float | None = None) -> None:
        """`away_s`: how long each outage lasts; None: random."""
        self.random = random.Random(seed)
        self._away_s = away_s
        self._folder, self._seed = folder, seed
        self._broker = Broker(folder / "broker")
        self._broker.start()
        self._prefix = make_topics(self._broker.bootstrap)
        self._tap = SyntheticTap(seed)
        self._written = 0
        self._found: dict[str, set[bytes]] = {}
        self._next: dict[int, int] = {}
        self._worker = self._start()

    def _start(self) -> WorkerProcess:
        return WorkerProcess(
            self._folder / "worker",
            bootstrap=self._broker.bootstrap,
            prefix=self._prefix,
            checkpoint_s=0.2,
            session_timeout_s=6.0,
        )

    def outage(self) -> Outage:
        """Makes an outage, and waits until all records are there."""
        away_s = self.random.uniform(*self.random.choices((_SHORT_S, _LONG_S, _LONGEST_S), (5, 4, 1))[0])
        away_s = away_s if self._away_s is None else self._away_s
        how, meanwhile = self.random.choice(("kill", "freeze")), self.random.choice(_MEANWHILE)
        moment = self.random.choice(("idle", "works", "starts", "recovers"))
        found = Outage(how, round(away_s, 1), moment, meanwhile)
        bundles = list(self._tap.bundles(_STREAMS, segments=8))
        half = len(bundles) // 2
        self._write(bundles[:half])
        self._come_to(moment)
        self._broker.kill() if how == "kill" else self._broker.freeze()
        time.sleep(away_s * self.random.random())
        rest_s = self._disturb(meanwhile)
        time.sleep(away_s / 2)
        self._broker.start() if how == "kill" else self._broker.thaw()
        back = time.monotonic()
        self._worker.process.send_signal(signal.SIGCONT) if rest_s else None
        before = self._records()
        self._written += _STREAMS
        self._write(bundles[half:])
        self._wait(found, back, before)
        return found

    def _come_to(self, moment: str) -> None:
        """Brings the worker to a moment of its run."""
        if moment in ("starts", "recovers"):
            self._worker.kill()
            self._worker = self._start()
        if moment == "recovers":
            time.sleep(self.random.uniform(0.8, 3.5))  # imports, the check of the topics, joining, reading the state
        elif moment == "starts":
            time.sleep(self.random.uniform(0.2, 1.5))
        else:
            self._worker.wait_ready()
            time.sleep(3 if moment == "idle" else self.random.uniform(0, 0.5))

    def _disturb(self, meanwhile: str | None) -> bool:
        """Disturbs the worker. Returns True if it has to be woken."""
        if meanwhile == "kill":
            self._worker.kill()
            self._worker = self._start()
        elif meanwhile == "term":
            self._worker.stop()
            self._worker = self._start()
        elif meanwhile == "stop":
            self._worker.process.send_signal(signal.SIGSTOP)
            return True
        return False

    def _wait(self, found: Outage, back: float, before: int) -> None:
        while time.monotonic() < back + _PATIENCE_S:
            code = self._worker.process.poll()
            if code is not None:
                found.codes += (code,)
                self._say(f"the worker ended with {code}")
                self._worker = self._start()
            now = self._records()
            if found.first_s is None and now > before:
                found.first_s = round(time.monotonic() - back, 1)
            if now >= self._written:
                found.first_s = found.first_s if found.first_s is not None else 0.0
                found.all_s = round(time.monotonic() - back, 1)
                found.load = round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)
                return
            time.sleep(0.2)
        self._say(f"{self._records()} records of {self._written}")

    def _say(self, what: str) -> None:
        """Prints it with the end of the worker's log."""
        lines = "\n".join(self._worker.log.splitlines()[-12:])
        sys.stderr.write(f"{what}:\n{lines}\n")
        sys.stderr.flush()

    def _write(self, bundles: Sequence[tuple[int, bytes]]) -> None:
        asyncio.run(write_all(self._broker.bootstrap, f"{self._prefix}.segments", list(bundles)))

    def _records(self) -> int:
        """The number of streams with a record; reads the new messages of the topic."""
        messages = asyncio.run(read_all(self._broker.bootstrap, f"{self._prefix}.records", self._next))
        self._next |= {message.partition: message.offset + 1 for message in messages}
        for stream, records in distinct(messages).items():
            self._found.setdefault(stream, set()).update(records)
        return len(self._found)

    def end(self) -> int:
        """Stops everything; gives the number of streams with two different records."""
        self._records()
        doubled = sum(len(records) > 1 for records in self._found.values())
        self._worker.kill()
        self._broker.kill()
        return doubled


def report(outages: Sequence[Outage]) -> str:
    """The table, in Markdown."""
    lines = ["| outage | count | first record, median / worst | all, median / worst | never | exits |"]
    lines.append("|---|---|---|---|---|---|")
    for how, low, high in (
        (how, low, high)
        for how in ("kill", "freeze")
        for low, high in (
            (0.0, _SHORT_S[1]),
            (_SHORT_S[1], _LONG_S[1]),
            (_LONG_S[1], _LONGEST_S[1]),
            (_LONGEST_S[1], 600.0),
        )
    ):
        some = [outage for outage in outages if outage.how == how and low < outage.away_s <= high]
        if some:
            lines.append(f"| {'killed' if how == 'kill' else 'frozen'}, {low:g} to {high:g} s {_row(some)}")
    return "\n".join([*lines, f"| all {_row(outages)}"])


def _row(some: Sequence[Outage]) -> str:
    first = [one.first_s for one in some if one.first_s is not None]
    all_ = [one.all_s for one in some if one.all_s is not None]
    codes = [code for one in some for code in one.codes]
    return f"| {len(some)} | {_of(first)} | {_of(all_)} | {len(some) - len(all_)} | {', '.join(map(str, codes)) or 'none'} |"


def _of(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.1f} / {max(times):.1f} s" if times else "never"


def is_well(outage: Outage) -> bool:
    """Whether its records came in time, or the worker ended for a reason that its next run does not have."""
    if outage.all_s is None or any(code != _STUCK for code in outage.codes):
        return False
    return bool(outage.codes) or (outage.first_s is not None and outage.first_s <= FIRST_S)


def main() -> int:
    """Run for so long; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--away", type=float, metavar="SECONDS", help="of each outage (default: random, up to 75)")
    arguments = parser.parse_args()
    outages: list[Outage] = []
    ends = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), arguments.seed, arguments.away)
        try:
            while time.monotonic() < ends:
                outages.append(run.outage())
                sys.stdout.write(json.dumps(asdict(outages[-1])) + "\n")
                sys.stdout.flush()
        finally:
            doubled = run.end()
    load = _of([outage.load for outage in outages]).removesuffix(" s")
    sys.stdout.write(
        f"\nseed {arguments.seed}, {doubled} streams with two records, load a core {load}\n{report(outages)}\n"
    )
    return 0 if all(map(is_well, outages)) and not doubled else 1


if __name__ == "__main__":
    sys.exit(main())
