"""The capability for packet sockets is dropped for a process and its children; in its own process, as it cannot be
undone.
"""

import subprocess
import sys

import pytest

from streamgauge.taps.packets.privilege import CAP_NET_RAW
from tests.taps.packets.privileged import captures_packets

pytestmark = pytest.mark.slow

TRIAL = """
import ctypes, struct, subprocess, sys
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

def lose_setpcap():
    system = ctypes.CDLL(None, use_errno=True)
    header, held = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0), 8), ctypes.create_string_buffer(24)
    assert system.capget(header, held) == 0
    words = [word & ~(1 << 8) if place < 3 else word for place, word in enumerate(struct.unpack("=6I", held.raw))]
    assert system.capset(header, ctypes.create_string_buffer(struct.pack("=6I", *words), 24)) == 0

if sys.argv[1:] == ["child"]:
    print("child", can(), sets())
    sys.exit()
print("before", can())
kept = capture_socket()
if sys.argv[1:] == ["no SETPCAP"]:
    lose_setpcap()
drop_net_raw()
print("after", can(), sets())
kept.bind(("lo", 3))
print("bound")
print(subprocess.run([sys.executable, "-c", CODE, "child"], capture_output=True, text=True).stdout)
"""


def tried(*arguments: str) -> list[str]:
    """What the trial prints, in a process of its own with these arguments."""
    code = f"CODE = {TRIAL!r}\n{TRIAL}"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")


@captures_packets
@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_the_capability_is_dropped_and_the_socket_stays() -> None:
    assert CAP_NET_RAW == 13
    lines = tried()
    assert lines[0] == "before True"
    assert lines[1] == "after False [0, 0, 0, 0, 0]"
    assert lines[2] == "bound"
    assert lines[3] == "child False [0, 0, 0, 0, 0]"


@captures_packets
@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_children_do_not_get_it_back_where_the_bounding_set_cannot_be_changed() -> None:
    """A container with NET_RAW as its only capability has no CAP_SETPCAP."""
    before, after, bound, child, *_ = tried("no SETPCAP")
    assert (before, after, bound) == ("before True", "after False [0, 0, 0, 1, 0]", "bound")
    assert child == "child False [0, 0, 0, 1, 0]"
