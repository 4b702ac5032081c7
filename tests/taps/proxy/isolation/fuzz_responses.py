"""`python -m tests.taps.proxy.isolation.fuzz_responses [--seconds N | --responses N] [--seed S]`: mutated responses of a
hostile upstream through a real relay, with another request right after each. Readers of three clients judge what comes.

Exit codes: 0 nothing was found, 1 something was: then it is printed, with the seed that repeats it.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.taps.proxy.isolation import pipelined
from tests.taps.proxy.isolation.forms import FORMS, ORDINARY
from tests.taps.proxy.isolation.upstreams import GOOD, HOSTILE, MOMENTS, Case, relay_between

# Responses that share a relay and its upstreams.
BATCH = 200
_SCRAPS = [
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\0", b":", b";", b",", b"0", b"2", b"\xa0", b"\x0b",
    b"Content-Length: 0\r\n", b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n",
    b"Connection: keep-alive\r\n", b"0\r\n\r\n", b"HTTP/1.1 103 X\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n",
]  # fmt: skip


def mutated(random_: random.Random) -> bytes:
    """A form with one to three changes: bytes inserted, removed, replaced or doubled, mostly at the ends of lines."""
    form = random_.choice(list(FORMS.values()) + list(ORDINARY.values()) * 3)
    for _ in range(random_.randint(1, 3)):
        ends = [at for at in range(len(form)) if form[at : at + 1] in b"\r\n:"] or [0]
        at = random_.choice(ends) if random_.random() < 0.7 else random_.randrange(len(form) + 1)
        size = random_.choice((0, 0, 1, 1, 2))
        added = random_.choice((*_SCRAPS, form[at : at + random_.randint(1, 20)], b""))
        form = form[:at] + added + form[at + size :]
    return form


def cases(seed: str, batch: int) -> list[Case]:
    """The cases of a batch: the same ones for the same seed and number."""
    random_ = random.Random(f"{seed} {batch}")
    return [Case(number, mutated(random_), random_.choice(MOMENTS)) for number in range(BATCH)]


def fuzz(seed: str, batch: int, folder: Path) -> tuple[int, list[str]]:
    """How many of the responses passed to the client as a final response, and what is wrong."""
    tried = {case.number: case for case in cases(seed, batch)}
    with relay_between(folder, list(tried.values())) as relay:
        came = pipelined.ask(relay.port, list(tried))
    faults, passed = [], 0
    for number, data in came.items():
        passed += not data.startswith((b"HTTP/1.1 502 ", b"HTTP/1.1 504 "))
        for name, read in pipelined.READERS.items():
            first, *later = read(data) or [b""]
            if GOOD in first or any(HOSTILE in body for body in later):
                faults.append(f"{name} reads {[first, *later]} in {data!r}, sent as {tried[number]!r}")
    return passed, faults


def main(arguments: list[str]) -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz responses", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long (default 60)")
    parser.add_argument("--responses", type=int, help="so many responses, however long it takes")
    parser.add_argument("--seed", default=str(time.time_ns()), help="which responses (default: others each time)")
    settings = parser.parse_args(arguments)
    began, batch, passed, faults = time.monotonic(), 0, 0, list[str]()
    with tempfile.TemporaryDirectory() as folder:
        over = False
        while not over and not faults:
            more, faults = fuzz(settings.seed, batch, Path(folder))
            batch, passed = batch + 1, passed + more
            took = time.monotonic() - began
            over = took >= settings.seconds if settings.responses is None else batch * BATCH >= settings.responses
    print(*faults[:3], sep="\n")
    print(f"{batch * BATCH} responses in {took:.1f} s: {passed} passed to the client (seed {settings.seed})")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
