"""Accepts clients, within the relay's limits, on its own listening socket and for relays that do not accept.

Each relay has its own listening socket, and the kernel spreads the clients over these sockets. A client in the queue of a
relay that crashed, hangs or is overloaded would wait for that relay alone. So each relay holds the listening sockets of all
relays, and accepts clients that have waited too long on another relay's socket.
"""

import asyncio
import errno
import select
import socket
from collections.abc import Callable

from streamgauge.taps.proxy.limits import Connections, address_of

# Connections accepted from one socket in one turn of the loop. The rest waits for the next turn, or for another relay.
AT_A_TIME = 64
# Interval at which the other relays' sockets are checked (seconds). If clients wait there at two checks in a row, they
# are accepted. So a client of a relay that has ended waits for half a second at most, and a burst of clients stays with
# its relay.
CHECK_S = 0.25
# Pause in accepting while the relay is full, or after descriptors or memory were short (seconds).
REST_S = 0.1
_NOT_ENOUGH = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Acceptor:
    """Accepts on `own`, and on `others` if clients wait there for too long. It owns and closes these listening sockets.

    `connections`: when it is full, `make_room` is called; while it stays full, clients wait in the kernel's queue.
    `make_room` gets the address that needs a free connection, or None for any. `serve` gets each accepted connection and the
    address that it counts for; `refuse` gets each connection above its address's limit.
    """

    def __init__(
        self,
        own: socket.socket,
        others: list[socket.socket],
        connections: Connections,
        *,
        make_room: Callable[[str | None], None],
        serve: Callable[[socket.socket, str], None],
        refuse: Callable[[socket.socket], None],
    ) -> None:
        self._own, self._others = own, {listening.fileno(): listening for listening in others}
        self._connections = connections
        self._make_room, self._serve, self._refuse = make_room, serve, refuse
        self._loop = asyncio.get_running_loop()
        self._accepting = False
        self._closed = False
        self._rest: asyncio.TimerHandle | None = None
        self._waited: set[int] = set()  # descriptors on which clients waited at the last check
        self._poll = select.poll()
        self._timer: asyncio.TimerHandle | None = None
        for listening in (own, *others):
            listening.setblocking(False)
        for listening in others:
            self._poll.register(listening, select.POLLIN)
        self.resume()
        if others:
            self._timer = self._loop.call_later(CHECK_S, self._check)

    def resume(self) -> None:
        """Accepts again. Called when a connection has ended, or after REST_S."""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if not self._accepting and not self._closed:
            self._accepting = True
            self._loop.add_reader(self._own, self._accept_own)

    def close(self) -> None:
        """Stops accepting, and closes the listening sockets."""
        self._pause()
        self._closed = True
        for timer in (self._timer, self._rest):
            if timer is not None:
                timer.cancel()
        for listening in (self._own, *self._others.values()):
            listening.close()

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._own)
            self._rest = self._loop.call_later(REST_S, self.resume)

    def _accept_own(self) -> None:
        self._accept(self._own)
        if self._connections.full:
            self._pause()

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_S, self._check)
        waiting = {fd for fd, _ in self._poll.poll(0)}
        for fd in waiting & self._waited:
            self._accept(self._others[fd])
        self._waited = waiting

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_A_TIME):
            if self._connections.full:
                self._make_room(None)
            if self._connections.full:
                return
            try:
                accepted, peer = listening.accept()
            except OSError as error:  # no client waits, the client has left, or descriptors are short
                if error.errno in _NOT_ENOUGH:
                    self._pause()
                return
            self._admit(accepted, address_of(peer))

    def _admit(self, accepted: socket.socket, address: str) -> None:
        if self._connections.address_is_full(address):
            self._make_room(address)
        if self._connections.address_is_full(address):
            self._refuse(accepted)
        else:
            self._connections.add(address)
            self._serve(accepted, address)
