"""Drops CAP_NET_RAW, which is needed only to open a packet socket, for the process and its children.

https://man7.org/linux/man-pages/man7/capabilities.7.html
"""

import ctypes
import os
import struct

CAP_NET_RAW = 13
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER = 24, 47, 3
_VERSION_3 = 0x2008_0522
# Effective, permitted and inheritable: the low words of all three, then the high ones.
_SETS = struct.Struct("=6I")


def drop_net_raw() -> None:
    """Drops the capability for this process and all processes that it starts. Raises OSError if the kernel refuses."""
    system = ctypes.CDLL(None, use_errno=True)
    system.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER, CAP_NET_RAW, 0, 0)
    system.prctl(
        _PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0
    )  # children of root get what the bounding set holds; other users may not change it
    header = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION_3, 0), 8)
    held = ctypes.create_string_buffer(_SETS.size)
    _checked(system.capget(header, held))
    sets = [word & ~(1 << CAP_NET_RAW) if place < 3 else word for place, word in enumerate(_SETS.unpack(held.raw))]
    _checked(system.capset(header, ctypes.create_string_buffer(_SETS.pack(*sets), _SETS.size)))


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
