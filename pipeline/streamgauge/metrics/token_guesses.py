"""Slows down guesses of the admin port's token, by the address of the client.

The answer to a wrong token is delayed by DELAY_S, and while MAX_WAITING such answers of an address are delayed, further
tokens from it are refused without being compared. So an address has at most MAX_WAITING guesses a second. IPv6 addresses of
one /64 count as one, since a host has all of them. A client with the right token is refused only while another one at the
same address guesses, or very many do.
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


class TokenGuesses:
    """The wrong tokens of the last DELAY_S."""

    def __init__(self) -> None:
        self._waiting: Counter[str] = Counter()

    def may_try(self, address: str) -> bool:
        """Whether a token from this address is compared."""
        return self._waiting.get(_host_of(address), 0) < MAX_WAITING and self._waiting.total() < MAX_ALL

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
