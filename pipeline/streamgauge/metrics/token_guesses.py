"""Slows down guesses of the admin port's token, by the address of the client.

The answer to a wrong token is delayed by DELAY_S, and while MAX_WAITING such answers of an address are delayed, further
tokens from it are refused without being compared. So an address has at most MAX_WAITING guesses a second. IPv6 addresses of
one /64 count as one, since a host has all of them. A client with the right token is refused only while another one at the
same address guesses. While very many addresses guess, those from which the right token came before are served.
"""

import asyncio
import ipaddress
from collections import Counter

# How long the answer to a wrong token is delayed (seconds).
DELAY_S = 1.0
# The most delayed answers of an address: more than the scrapers of a host that have an old token after a rotation.
MAX_WAITING = 8
# The same of all addresses together, so that a client with many addresses uses no memory.
MAX_ALL = 256
# The latest addresses with the right token that are known: scrapers and operators.
MAX_KNOWN = 64


class TokenGuesses:
    """The wrong tokens of the last DELAY_S, and the latest addresses with the right one."""

    def __init__(self) -> None:
        self._waiting: Counter[str] = Counter()
        self._known: dict[str, None] = {}  # the latest one last

    def may_try(self, address: str) -> bool:
        """Whether a token from this address is compared."""
        host = _host_of(address)
        return self._waiting.get(host, 0) < MAX_WAITING and (self._waiting.total() < MAX_ALL or host in self._known)

    def was_right(self, address: str) -> None:
        """Note that the right token came from this address."""
        host = _host_of(address)
        self._known.pop(host, None)
        self._known[host] = None
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    async def delay(self, address: str) -> None:
        """Delay the answer to a wrong token."""
        host = _host_of(address)
        self._waiting[host] += 1
        try:
            await asyncio.sleep(DELAY_S)
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host]


def _host_of(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # the connection is gone
        return ""
    return address if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
