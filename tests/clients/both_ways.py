"""A client in one conversation with the scripted model, directly and through a tap, by turns; and what differs."""

import json
import math
import os
import re
import ssl
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trustme

from streamgauge_demo.provider import Provider
from tests.clients.model import scripted
from tests.clients.websocket_model import websocket_model
from tests.running import CLEAN, Running, start_up, wait_for

DRIVE = Path(__file__).with_name("drive.py")
# The most that a tap may add to a conversation (seconds).
MAX_ADDED_S = 0.05
# How often an interval of the added time may miss it.
_DOUBT = 0.05
# How long a client may take for all its rounds (seconds).
PATIENCE_S = 300
# Clients that speak WebSocket, and those that need https: botocore sends a bearer key to nothing else.
WEBSOCKET = frozenset({"openai responses.connect", "openai realtime.connect", "Codex CLI, WebSocket"})
TLS = frozenset({"boto3 bearer"})
HOOK = "boto3 hook"
# No client asks another host, nor reads the credentials of the user who runs it.
ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "NO_PROXY": "127.0.0.1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
_SIGNED = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "test"}
_BEARER = {"AWS_BEARER_TOKEN_BEDROCK": "test"}
# What a line of stderr says of a place and not of an event: addresses of objects, ports and file descriptors.
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


class Way(NamedTuple):
    """How a client reaches the model. `requests`: how many the model has got so far."""

    url: str
    environment: Mapping[str, str]
    requests: Callable[[], int]


class Run(NamedTuple):
    """One run of a client. `seen`: objects and errors as the client gave them."""

    version: str
    seen: Any
    warnings: list[str]
    requests: int


class Comparison(NamedTuple):
    """A client directly and through the tap.

    `seconds`: pairs of conversations, one each way, that one process had one after the other; `records`: of the tap.
    """

    direct: Run
    tapped: Run
    seconds: list[tuple[float, float]]
    records: int

    @property
    def differences(self) -> list[str]:
        """What of output, requests and warnings differs; empty if nothing does."""
        names = ("seen", "requests", "warnings")
        return [name for name in names if getattr(self.direct, name) != getattr(self.tapped, name)]

    @property
    def direct_s(self) -> float:
        """The median conversation without the tap (seconds)."""
        return statistics.median(alone for alone, _ in self.seconds)

    @property
    def added(self) -> "Added":
        """What the tap adds to a conversation."""
        return added_by([tapped - alone for alone, tapped in self.seconds])

    @property
    def least_added_s(self) -> float:
        """What it adds to the fastest one (seconds): what other work on the machine adds by chance is in neither."""
        return min(tapped for _, tapped in self.seconds) - min(alone for alone, _ in self.seconds)


class Added(NamedTuple):
    """The median of differences (seconds), and the bounds between which the true median is with 95 % confidence.

    With fewer than six differences there are none with this confidence: they are infinite.
    """

    median: float
    low: float
    high: float

    @property
    def within_limit(self) -> bool | None:
        """Whether it is at most MAX_ADDED_S; None if the differences vary too much to tell."""
        if self.high <= MAX_ADDED_S:
            return True
        return False if self.low > MAX_ADDED_S else None


def added_by(differences: Sequence[float]) -> Added:
    """The interval of the sign test: it assumes nothing of how the differences are distributed."""
    ordered, count = sorted(differences), len(differences)
    outside, chance = 0, 2 * 0.5**count
    while chance <= _DOUBT:
        outside += 1
        chance += 2 * math.comb(count, outside) * 0.5**count
    bounds = (ordered[outside - 1], ordered[-outside]) if outside else (-math.inf, math.inf)
    return Added(statistics.median(ordered), *bounds)


@contextmanager
def ways(name: str, folder: Path, turns: int) -> Iterator[tuple[Way, Way, Running]]:
    """The way of a client to the model alone, the one through a tap, and the tap. Each has a model of its own.

    `turns`: how often the model calls a tool before it responds with text.
    """
    with ExitStack() as stack:
        if name in WEBSOCKET:
            alone, behind = (stack.enter_context(websocket_model(turns)) for _ in range(2))
            up = stack.enter_context(start_up({"one": behind.url}, folder / "data"))
            yield Way(alone.url, {}, lambda: alone.requests), Way(f"{up.url}/one", {}, lambda: behind.requests), up
            return
        options: list[str] = []
        environment: dict[str, str] = {}
        context = None
        if name in TLS:
            context, options, environment = _certified(folder)
        served = stack.enter_context(Provider(scripted(turns), tls=context))
        hidden = stack.enter_context(Provider(scripted(turns)))
        up = stack.enter_context(start_up({"one": hidden.url}, folder / "data", *options))
        tapped = f"{up.url}/one"
        if name == HOOK:
            environment = _SIGNED
            hook = {**environment, "STREAMGAUGE_DATA_DIR": str(up.data_dir), "HOOKED_URL": hidden.url}
            yield _way(served.url, environment, served), _way(hidden.url, hook, hidden), up
        else:
            yield _way(served.url, environment, served), _way(tapped, environment, hidden), up


def _way(url: str, environment: Mapping[str, str], provider: Provider) -> Way:
    return Way(url, environment, lambda: len(provider.exchanges))


def _certified(folder: Path) -> tuple[ssl.SSLContext, list[str], dict[str, str]]:
    """For a model and a tap with TLS: the model's context, the tap's options, and what a client of AWS needs."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    pem, trusted = folder / "tap.pem", folder / "ca.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
    pem.chmod(0o600)
    authority.cert_pem.write_to_path(str(trusted))
    return context, ["--tls-certificate", str(pem)], {**_BEARER, "AWS_CA_BUNDLE": str(trusted)}


def drive(command: Sequence[str], rounds: int, ways: Sequence[Way], folder: Path | None) -> tuple[Any, list[str]]:
    """Runs a driver to its end, in a folder: what it told, and the lines of its stderr."""
    environment = {name: value for way in ways for name, value in way.environment.items()}
    done = subprocess.run(
        [*command, str(rounds), *[way.url for way in ways]],
        env={**CLEAN, **ENVIRONMENT, **environment},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the driver ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1]), done.stderr.splitlines()


def run(command: Sequence[str], rounds: int, way: Way, folder: Path | None) -> Run:
    """Runs a client in one way."""
    before = way.requests()
    told, errors = drive(command, rounds, [way], folder)
    warnings = [_NUMBERS.sub("N", line.replace(way.url, "URL")) for line in errors]
    # An error may name the address that was asked.
    seen = json.loads(json.dumps(told["seen"]).replace(way.url, "URL"))
    return Run(told["version"], seen, warnings, way.requests() - before)


def compared(
    name: str,
    folder: Path,
    command: Sequence[str] = (),
    *,
    rounds: int = 2,
    timed: int = 9,
    turns: int = 1,
    installed: Path | None = None,
) -> Comparison:
    """Runs a client directly, through the tap, and then by turns.

    `command`: its driver, which gets the rounds and URLs (default: drive.py in this environment). `timed`: how many pairs of
    conversations are timed, after one in which a client imports its parts. `installed`: where the driver is run.
    """
    command = command or [sys.executable, "-W", "default", str(DRIVE), name]
    folder.mkdir(parents=True, exist_ok=True)
    with ways(name, folder, turns) as (alone, through, up):
        direct, tapped = (run(command, rounds, way, installed) for way in (alone, through))
        told, _ = drive(command, timed + 1, (alone, through), installed)
        # A WebSocket has a record a response; the other messages of a client, and its handshake, have none.
        least = (rounds + timed + 1) * (turns + 1)
        wait_for(lambda: up.recorded() >= least, f"{least} records")
        up.settled()
        return Comparison(direct, tapped, list(zip(*told["seconds"], strict=True))[1:], up.recorded())
