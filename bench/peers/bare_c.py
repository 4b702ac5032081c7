"""The lowest cost of a relay in any language: `bare_relay.c`, compiled on the machine."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port

from bench.peers.peer import MissingError, Origin, Peer, started

_SOURCE = Path(__file__).with_name("bare_relay.c")


@contextmanager
def bare_c(upstream: Origin, directory: Path) -> Iterator[Peer]:
    """Runs it in front of the upstream, without TLS. Raises MissingError if there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise MissingError("there is no C compiler 'cc' on the PATH")
    program = directory / "bare_relay"
    subprocess.run([compiler, "-O2", "-o", program, _SOURCE], check=True)
    port = free_port()
    with started([str(program), str(port), str(upstream.port)], port, directory / "bare_relay.log") as peer:
        yield peer
