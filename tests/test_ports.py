"""tests/ports.py: two processes get no port twice."""

import subprocess
import sys
from itertools import islice

import pytest

from tests import ports
from tests.ports import free_ports

pytestmark = pytest.mark.slow

OTHER = """
import sys
from itertools import islice
from tests import ports

ports._PORTS = range({first}, {first} + 40)
print(*islice(ports.free_ports(), 40), flush=True)
sys.stdin.read()
"""


def test_a_port_is_given_to_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    first = 31_000
    monkeypatch.setattr(ports, "_PORTS", range(first, first + 40))
    mine = list(islice(free_ports(), 20))
    assert len(set(mine)) == len(mine) > 10
    with subprocess.Popen(
        [sys.executable, "-c", OTHER.format(first=first)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        assert theirs
        assert not theirs & set(mine)
        assert not theirs & set(free_ports())
        other.communicate("")
