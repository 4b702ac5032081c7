"""Accepts for other relays what they leave waiting: one that died, hangs, or is far behind.

Each relay has a listening socket of its own, over which the kernel spreads the clients. Whom it has given to a relay that
does not accept would wait for that relay alone. So all relays hold all sockets, and look after those of the others.
"""

import asyncio
import contextlib
import select
import socket
from collections.abc import Callable

# How often the others' sockets are looked at (seconds). Where clients wait at two looks in a row, they are taken: so a client
# whose relay is gone waits half a second at most, and a relay that is well, or has a burst to accept, is let do its work.
LOOK_S = 0.25
# Connections taken at a time from one of them: the rest is left for the next one to look.
AT_A_TIME = 64


class Deputy:
    """Looks after `others`, listening sockets that it takes over; hands what it accepts to `take`."""

    def __init__(self, others: list[socket.socket], take: Callable[[socket.socket], None]) -> None:
        self._others = {one.fileno(): one for one in others}
        self._waited: set[int] = set()  # where clients waited at the last look
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._poll = select.poll()
        for one in others:
            one.setblocking(False)
            self._poll.register(one, select.POLLIN)
        if others:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def close(self) -> None:
        """Lets go of the sockets."""
        if self._timer is not None:
            self._timer.cancel()
        for one in self._others.values():
            one.close()

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        waiting = {fd for fd, _ in self._poll.poll(0)}
        for fd in waiting & self._waited:
            self._accept(self._others[fd])
        self._waited = waiting

    def _accept(self, one: socket.socket) -> None:
        with contextlib.suppress(OSError):  # none waits any more, or we have no descriptors left
            for _ in range(AT_A_TIME):
                self._take(one.accept()[0])
