"""Addresses of brokers on this machine: free ones, and whether one is served."""

import random
import socket
import struct
from collections.abc import Iterator

_HOST = "127.0.0.1"

# Below Linux's ephemeral ports (32768 and up): while the broker is down no client's own socket can sit on its port.
_PORTS = range(20_000, 32_000)


def free() -> Iterator[str]:
    """Addresses without a listener, in no order."""
    return (f"{_HOST}:{port}" for port in random.sample(_PORTS, len(_PORTS)) if _is_free(port))


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


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex((_HOST, port)) != 0
