"""Taps: where streams are captured. Each hands `messages` to a `recorder`, and never waits for it.

A new tap is its module and its line in TAPS; its driver in tests/taps/contract/drivers.py then has to show that it says of
a stream what all others say of it. Nothing is imported here: an application that uses one tap loads no other.
"""

from typing import Literal, NamedTuple

# What a read's stamp is: when the tap's own read of the upstream's socket returned; when the library handed out the chunk;
# when the application handed out the piece; when the kernel saw the packet; whatever the recording has, which may be nothing.
Stamps = Literal["socket", "chunk", "piece", "kernel", "recorded"]


class Tap(NamedTuple):
    """`name`: as records have it; `module`: below this package; `stamps`: what its times are times of."""

    name: str
    module: str
    stamps: Stamps
    about: str


TAPS = (
    Tap("proxy", "proxy", "socket", "a relay between clients and providers"),
    Tap("httpx", "httpx", "chunk", "a transport inside of a client, for httpx and httpx2, sync and async"),
    Tap("asgi", "asgi", "piece", "middleware inside of a model server"),
    Tap("packets", "packets", "kernel", "plain HTTP/1.1 as it passes an interface, or lies in a capture file"),
    Tap("replay", "replay", "recorded", "recordings of any of these formats: bodies, HAR, cassettes, flows, captures"),
)
