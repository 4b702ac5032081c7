"""Taps capture streams. Each tap passes its messages to a recorder without waiting for it.

proxy/        the relay, which forwards HTTP/1.1
httpx.py      public: a transport for clients; httpx_streams.py: its request and response streams
boto3.py      public: a hook for clients of Amazon Bedrock
asgi.py       public: middleware for servers
inprocess/    what the taps above share: capture in the application's process
packets/      packets of an interface or a file
envoy/        what an Envoy proxy reports of its traffic
tap_process.py  the life of a process of the two taps above
replay/       recordings of other programs

A new tap needs a module, a line in TAPS, and a driver in tests/taps/contract/drivers.py, which checks that all taps report
the same about a stream. This package imports no tap, so that an application loads only the one that it uses.
"""

from typing import Literal, NamedTuple

# What the stamp of a read measures. socket: the tap's own read of the upstream's socket returned; chunk: the library
# returned the chunk; piece: the application sent the piece; kernel: the kernel received the packet; report: Envoy's
# report of the read was read; recorded: the time in the recording, which may have none.
Stamps = Literal["socket", "chunk", "piece", "kernel", "report", "recorded"]


class Tap(NamedTuple):
    """A kind of tap. `name`: the value of `tap` in records; `module`: below this package; `stamps`: what they measure."""

    name: str
    module: str
    stamps: Stamps
    about: str


TAPS = (
    Tap("proxy", "proxy", "socket", "a relay between clients and providers"),
    Tap("httpx", "httpx", "chunk", "a transport inside a client, for httpx and httpx2, sync and async"),
    Tap("boto3", "boto3", "chunk", "a hook inside a client of Amazon Bedrock, for boto3 and botocore"),
    Tap("asgi", "asgi", "piece", "middleware inside a model server"),
    Tap("packets", "packets", "kernel", "plain HTTP/1.1 as it passes an interface, or lies in a capture file"),
    Tap("envoy", "envoy", "report", "what Envoy reports by its external processor and its access log"),
    Tap("replay", "replay", "recorded", "recordings of any of these formats: bodies, HAR, cassettes, flows, captures"),
)
