"""A client in one conversation with the scripted model, directly and through a tap, by turns; and what differs."""

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
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
# How long a client may take for all its rounds (seconds).
PATIENCE_S = 120
# Clients that speak WebSocket, and those that need https: botocore sends a bearer key to nothing else.
WEBSOCKET = frozenset({"openai responses.connect", "openai realtime.connect"})
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
    """One run of a client. `seen`: objects and errors as the client gave them; `seconds`: of each round."""

    version: str
    seen: Any
    warnings: list[str]
    requests: int
    seconds: list[float]


class Comparison(NamedTuple):
    """Runs of a client, in pairs: directly, and through the tap. `records`: of the tap's runs."""

    direct: list[Run]
    tapped: list[Run]
    records: int

    @property
    def differences(self) -> list[str]:
        """What of output, requests and warnings differs; empty if nothing does."""
        pairs = list(zip(self.direct, self.tapped, strict=True))
        return [
            name
            for name in ("seen", "requests", "warnings")
            if any(getattr(alone, name) != getattr(tapped, name) for alone, tapped in pairs)
        ]

    def median_s(self, runs: list[Run]) -> float:
        """The median conversation of these runs (seconds), each run's first one left out: it imports the client's parts."""
        return statistics.median(second for run in runs for second in run.seconds[1:])

    @property
    def added_s(self) -> float:
        """What the tap adds to the median conversation (seconds)."""
        return self.median_s(self.tapped) - self.median_s(self.direct)

    @property
    def least_added_s(self) -> float:
        """The same of the fastest conversations: what other work on the machine adds by chance is in neither."""
        fastest = [min(second for run in runs for second in run.seconds[1:]) for runs in (self.tapped, self.direct)]
        return fastest[0] - fastest[1]


@contextmanager
def ways(name: str, folder: Path) -> Iterator[tuple[Way, Way, Running]]:
    """The way of a client to the model alone, the one through a tap, and the tap. Each has a model of its own."""
    with ExitStack() as stack:
        if name in WEBSOCKET:
            alone, behind = (stack.enter_context(websocket_model()) for _ in range(2))
            up = stack.enter_context(start_up({"one": behind.url}, folder / "data"))
            yield Way(alone.url, {}, lambda: alone.requests), Way(f"{up.url}/one", {}, lambda: behind.requests), up
            return
        options: list[str] = []
        environment: dict[str, str] = {}
        context = None
        if name in TLS:
            context, options, environment = _certified(folder)
        served = stack.enter_context(Provider(scripted(), tls=context))
        hidden = stack.enter_context(Provider(scripted()))
        up = stack.enter_context(start_up({"one": hidden.url}, folder / "data", *options))
        tapped = f"{up.url}/one"
        if name == HOOK:
            environment = _SIGNED
            hook = {**environment, "STREAMGAUGE_DATA_DIR": str(up.data_dir)}
            yield _way(served.url, environment, served), _way(hidden.url, hook, hidden), up
        else:
            yield _way(served.url, environment, served), _way(tapped, environment, hidden), up


def _way(url: str, environment: Mapping[str, str], provider: Provider) -> Way:
    return Way(url, environment, lambda: len(provider.exchanges))


def _certified(folder: Path) -> tuple[Any, list[str], dict[str, str]]:
    """For a model and a tap with TLS: the model's context, the tap's options, and what a client of AWS needs."""
    import ssl

    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    pem, trusted = folder / "tap.pem", folder / "ca.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
    pem.chmod(0o600)
    authority.cert_pem.write_to_path(str(trusted))
    return context, ["--tls-certificate", str(pem)], {**_BEARER, "AWS_CA_BUNDLE": str(trusted)}


def run(command: list[str], way: Way) -> Run:
    """Runs a driver to its end."""
    before = way.requests()
    variables = {**CLEAN, **ENVIRONMENT, **way.environment}
    done = subprocess.run(
        command,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    warnings = [_NUMBERS.sub("N", line) for line in done.stderr.splitlines()]
    # An error may name the address that was asked.
    seen = json.loads(json.dumps(told["seen"]).replace(way.url, "URL"))
    return Run(told["version"], seen, warnings, way.requests() - before, told["seconds"])


def compared(
    name: str, folder: Path, *, runs: int = 1, rounds: int = 5, command: list[str] | None = None
) -> Comparison:
    """Runs a client by turns directly and through the tap. `command`: its driver, which gets URL and `rounds`."""
    command = command or [sys.executable, "-W", "default", str(DRIVE), name]
    direct, tapped = [], []
    folder.mkdir(parents=True, exist_ok=True)
    with ways(name, folder) as (alone, through, up):
        for _ in range(runs):
            direct.append(run([*command, alone.url, str(rounds)], alone))
            tapped.append(run([*command, through.url, str(rounds)], through))
        # A WebSocket has a record a response; the other messages of a client, and its handshake, have none.
        least = runs * rounds * 2
        wait_for(lambda: up.recorded() >= least, f"{least} records")
        up.settled()
        return Comparison(direct, tapped, up.recorded())
