"""The capability for packet sockets is dropped for a process and its children; in its own process, as it cannot be
undone.
"""

import subprocess
import sys

import pytest

from streamgauge.taps.packets.privilege import CAP_NET_RAW
from tests.taps.packets.privileged import captures_packets

TRIAL = """
import subprocess, sys
from streamgauge.taps.packets.privilege import drop_net_raw
from streamgauge.taps.packets.ring import capture_socket

def can():
    try:
        capture_socket().close()
    except PermissionError:
        return False
    return True

def sets():
    return [int(line.split()[1], 16) >> 13 & 1 for line in open("/proc/self/status") if line.startswith("Cap")]

if sys.argv[1:] == ["child"]:
    print("child", can(), sets())
    sys.exit()
print("before", can())
kept = capture_socket()
drop_net_raw()
print("after", can(), sets())
kept.bind(("lo", 3))
print("bound")
print(subprocess.run([sys.executable, "-c", CODE, "child"], capture_output=True, text=True).stdout)
"""


@captures_packets
@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_the_capability_is_dropped_and_the_socket_stays() -> None:
    assert CAP_NET_RAW == 13
    code = f"CODE = {TRIAL!r}\n{TRIAL}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert done.stderr == ""
    lines = done.stdout.split("\n")
    assert lines[0] == "before True"
    assert lines[1] == "after False [0, 0, 0, 0, 0]"
    assert lines[2] == "bound"
    assert lines[3] == "child False [0, 0, 0, 0, 0]"
