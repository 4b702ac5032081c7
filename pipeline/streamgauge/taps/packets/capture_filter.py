"""The kernel's filter for a live capture: TCP to or from the servers' ports, as a classic BPF program. Pure.

The program sees packets without their link-layer header (`SOCK_DGRAM`), so one program serves every kind of interface. The
loopback interface shows each packet twice, outgoing and incoming; the filter drops the outgoing one. Later fragments carry
no ports and are dropped. IPv6 packets with extension headers all pass, and `decode.py` decides.
https://www.kernel.org/doc/html/latest/networking/filter.html
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

# Limit of server ports in one capture: a jump of the program reaches 255 instructions, and each port takes four.
MAX_PORTS = 32

# Loads: a byte or a half-word of the packet at k, or at x + k; x = the length of the IPv4 header at k.
_BYTE, _HALF, _HALF_AT_X, _HEADER_LENGTH = 0x30, 0x28, 0x48, 0xB1
_IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x15, 0x45, 0x06
# Offsets of the packet's metadata (linux/filter.h: SKF_AD_OFF and the constants after it).
_PROTOCOL, _PACKET_TYPE, _HARDWARE_TYPE = 0xFFFF_F000, 0xFFFF_F004, 0xFFFF_F01C
_LOOPBACK, _OUTGOING = 772, 4
_IPV4, _IPV6, _TCP = 0x0800, 0x86DD, 6
_EXTENSION_HEADERS = (0, 43, 44, 51, 60, 135)
_WHOLE_PACKET = 0xFFFF_FFFF

_INSTRUCTION = struct.Struct("=HBBI")


class _Step(NamedTuple):
    """One instruction. `then`, `other`: the labels to which a comparison jumps, empty for the next instruction; `name`: its
    own label.
    """

    code: int
    value: int
    then: str = ""
    other: str = ""
    name: str = ""


def filter_program(ports: Sequence[int]) -> bytes:
    """The program's instructions. Raises ValueError if there is no port, or more than MAX_PORTS."""
    if not 0 < len(ports) <= MAX_PORTS:
        raise ValueError(f"a capture has 1 to {MAX_PORTS} ports")
    steps = [
        _Step(_HALF, _HARDWARE_TYPE),
        _Step(_IF_EQUAL, _LOOPBACK, other="network"),
        _Step(_BYTE, _PACKET_TYPE),
        _Step(_IF_EQUAL, _OUTGOING, then="no"),
        _Step(_HALF, _PROTOCOL, name="network"),
        _Step(_IF_EQUAL, _IPV4, then="ipv4"),
        _Step(_IF_EQUAL, _IPV6, then="ipv6", other="no"),
        _Step(_BYTE, 9, name="ipv4"),
        _Step(_IF_EQUAL, _TCP, other="no"),
        _Step(_HALF, 6),
        _Step(_IF_ANY_BIT, 0x1FFF, then="no"),
        _Step(_HEADER_LENGTH, 0),
        *_either_port(_HALF_AT_X, 0, ports),
        _Step(_BYTE, 6, name="ipv6"),
        *[_Step(_IF_EQUAL, header, then="yes") for header in _EXTENSION_HEADERS],
        _Step(_IF_EQUAL, _TCP, other="no"),
        *_either_port(_HALF, 40, ports),
        _Step(_RETURN, 0, name="no"),
        _Step(_RETURN, _WHOLE_PACKET, name="yes"),
    ]
    indexes = {step.name: index for index, step in enumerate(steps) if step.name}
    return b"".join(_assembled(step, index, indexes) for index, step in enumerate(steps))


def _either_port(load: int, at: int, ports: Sequence[int]) -> list[_Step]:
    """Jumps to yes if the source or target port of the TCP header at `at` is one of `ports`, else to no."""
    equal = [_Step(_IF_EQUAL, port, then="yes") for port in ports]
    return [_Step(load, at), *equal, _Step(load, at + 2), *equal[:-1], equal[-1]._replace(other="no")]


def _assembled(step: _Step, index: int, indexes: dict[str, int]) -> bytes:
    then, other = (indexes[name] - index - 1 if name else 0 for name in (step.then, step.other))
    return _INSTRUCTION.pack(step.code, then, other, step.value)
