"""Drops CAP_NET_RAW, which is needed only to open a packet socket, for the process and its children.

https://man7.org/linux/man-pages/man7/capabilities.7.html
"""

import ctypes
import os
import struct

CAP_NET_RAW = 13
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER = 24, 38, 47, 3
_VERSION_3 = 0x2008_0522
# Effective, permitted and inheritable: the low words of all three, then the high ones.
_SETS = struct.Struct("=6I")


def drop_net_raw() -> None:
    """Drops the capability for this process and all processes that it starts. Raises OSError if the kernel refuses."""
    system = ctypes.CDLL(None, use_errno=True)
    system.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER, CAP_NET_RAW, 0, 0)
    # An exec of root would get the capability from the bounding set. Changing that set needs CAP_SETPCAP; no_new_privs,
    # which needs no capability, has the same effect for children.
    system.prctl(_PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0)
    _checked(system.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    header = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION_3, 0), 8)
    held = ctypes.create_string_buffer(_SETS.size)
    _checked(system.capget(header, held))
    sets = [word & ~(1 << CAP_NET_RAW) if index < 3 else word for index, word in enumerate(_SETS.unpack(held.raw))]
    _checked(system.capset(header, ctypes.create_string_buffer(_SETS.pack(*sets), _SETS.size)))


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
