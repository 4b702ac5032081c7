"""`python -m tests.taps.proxy.fuzz_requests [--seconds N | --requests N] [--seed S] [--batch B]`: mutated and pipelined
requests through a real relay, judged by three parsers.

Exit codes: 0 nothing was found, 1 something was: then the faults are printed, and the command that repeats their batch.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import uvloop

from tests.taps.proxy.driving import Evidence, run
from tests.taps.proxy.judging import Fault, Judge
from tests.taps.proxy.stories import Story, Writer

# Stories that share a relay and an upstream, some 1,150 requests: creating a relay takes as long as a hundred of them.
STORIES = 250
# How many faults of a batch are printed.
SHOWN = 3


class Found(NamedTuple):
    """The result of a batch. `requests`: as many as its clients were meant to send."""

    requests: int
    forwarded: int
    refused: int
    kinds: Counter[str]
    faults: list[Fault]


def write(seed: str, batch: int) -> list[Story]:
    """The stories of a batch: the same ones for the same number."""
    writer = Writer(f"{seed} {batch}")
    return [writer.story() for _ in range(STORIES)]


def drive(stories: list[Story], folder: Path, *, pump: bool) -> Evidence:
    """See `driving.run`; in its own event loop, with uvloop like the relay."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(stories, folder, pump=pump))


def fuzz(seed: str, batch: int, folder: Path) -> Found:
    """Runs and judges a batch; every other one without the pump. A story that has a fault when run alone is reported
    alone.
    """
    stories = write(seed, batch)
    evidence = drive(stories, folder, pump=batch % 2 == 0)
    judge = Judge(evidence)
    faults = judge.faults
    for story in {fault.story.key: fault.story for fault in faults if fault.story is not None}.values():
        if alone := Judge(drive([story], folder, pump=batch % 2 == 0)).faults:
            faults = alone
            break
    requests = sum(story.requests for story in stories)
    return Found(requests, judge.forwarded, judge.refused, Counter(story.kind for story in stories), faults)


def shown(faults: list[Fault], seed: str, batch: int) -> str:
    """Faults as text, with their stories and the command that repeats them."""
    lines = [f"{len(faults)} faults; scripts/fuzz requests --seed {seed} --batch {batch} has them again"]
    for fault in faults[:SHOWN]:
        lines += ["", fault.said]
        if fault.story is not None:
            lines += [f"  {fault.story.kind}, {fault.story.key.decode()}:"]
            lines += [f"    {talk.steps} {talk.end}" for talk in fault.story.talks]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz requests", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long (default 60)")
    parser.add_argument("--requests", type=int, help="so many requests, however long it takes")
    parser.add_argument("--seed", default=str(time.time_ns()), help="which requests (default: others each time)")
    parser.add_argument("--batch", type=int, help="this batch alone")
    given = parser.parse_args(arguments)
    began, requests, forwarded, refused, batch = time.monotonic(), 0, 0, 0, given.batch or 0
    with tempfile.TemporaryDirectory() as folder:
        while True:
            found = fuzz(given.seed, batch, Path(folder))
            requests, forwarded, refused = (
                requests + found.requests,
                forwarded + found.forwarded,
                refused + found.refused,
            )
            took = time.monotonic() - began
            if found.faults:
                print(shown(found.faults, given.seed, batch))
            over = took >= given.seconds if given.requests is None else requests >= given.requests
            if found.faults or given.batch is not None or over:
                print(
                    f"{requests} requests in {took:.1f} s: {forwarded} forwarded, {refused} refused (seed {given.seed})"
                )
                return 1 if found.faults else 0
            batch += 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
