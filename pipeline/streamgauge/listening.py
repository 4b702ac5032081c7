"""A listening socket that several processes share: made by the parent, inherited by its relays."""

import errno
import socket
import time

from streamgauge.config import Address
from streamgauge.errors import Unavailable

# After a kill the old processes need a moment to let go of the port (seconds).
BIND_RETRY_S = 2.0

# Connections that the kernel holds for us while we are busy; the kernel cuts it to its own limit.
BACKLOG = 1_024

_LOOK_S = 0.05


def listening_socket(address: Address, option: str) -> socket.socket:
    """A listening socket that children may inherit. `option` is named where another may help. Raises Unavailable."""
    deadline = time.monotonic() + BIND_RETRY_S
    while True:
        try:
            return _bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise not_to_be_had(str(address), option, error) from None
            time.sleep(_LOOK_S)


def not_to_be_had(address: str, option: str, error: OSError) -> Unavailable:
    """The sentence for an address that cannot be listened on."""
    if error.errno == errno.EADDRINUSE:
        return Unavailable(f"the address {address} is taken: choose another with {option}, or stop who has it")
    why = error.strerror or str(error)
    return Unavailable(f"the address {address} cannot be used ({why}): choose another with {option}")


def bound_address(listening: socket.socket) -> str:
    """HOST:PORT as bound."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind(address: Address) -> socket.socket:
    family, _, _, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
