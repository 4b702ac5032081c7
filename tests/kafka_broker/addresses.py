"""Addresses of brokers on this machine: free ones, and whether one is served."""

import socket
import struct
from collections.abc import Iterator

from tests.ports import HOST, free_ports


def free() -> Iterator[str]:
    """Addresses without a listener, in no order."""
    return (f"{HOST}:{port}" for port in free_ports())


def serves(address: str) -> bool:
    """Whether a broker at `address` lists itself when asked for metadata (Metadata v1, of no topics)."""
    host, port = address.split(":")
    body = struct.pack(">hhih2si", 3, 1, 7, 2, b"sg", 0)
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.settimeout(2)
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(answer) == 12 and struct.unpack(">iii", answer)[2] > 0
