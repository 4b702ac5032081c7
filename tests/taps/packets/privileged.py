"""Whether packets can be captured here: tests that need it give the reason for which they are skipped."""

import socket

import pytest

from streamgauge.taps.packets.ring import capture_socket


def why_not() -> str:
    """Empty if they can."""
    try:
        capture_socket().close()
        socket.if_nametoindex("lo")
    except OSError as error:
        return f"no packet capture here: {error}"
    return ""


WHY_NOT = why_not()
captures_packets = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "captures packets")
