"""tests/ports.py: no two processes get the same port."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# Takes as many of 40 ports as its argument says, and keeps them until its stdin ends.
TAKES = """
import sys
from itertools import islice
from tests import ports

ports._PORTS = range(31_000, 31_040)
print(*islice(ports.free_ports(), int(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def taking(count: int, folder: Path) -> "subprocess.Popen[str]":
    """A process with ports, and with locks of its own folder: not those of the tests that run now."""
    return subprocess.Popen(
        [sys.executable, "-c", TAKES, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )


def test_a_port_is_given_to_one_process_until_that_ends(tmp_path: Path) -> None:
    def ports_of(process: "subprocess.Popen[str]") -> set[int]:
        assert process.stdout is not None
        return {int(port) for port in process.stdout.readline().split()}

    with taking(15, tmp_path) as first, taking(15, tmp_path) as second:
        one, other = ports_of(first), ports_of(second)
        assert (len(one), len(other), one & other) == (15, 15, set())
        first.communicate("")
        with taking(15, tmp_path) as third:
            assert ports_of(third) & one
            third.communicate("")
        second.communicate("")
