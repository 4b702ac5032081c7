"""Reads a request from a connection: only as much of HTTP as clients and taps send here."""

import asyncio
import json
import time
from dataclasses import dataclass

# Limit of a request's head (bytes): clients send well under 4 KiB.
MAX_HEAD_BYTES = 64 * 1024

# Limit of a request's body (bytes): the driver's are a few hundred bytes; users' prompts may be long.
MAX_BODY_BYTES = 16 * 1024 * 1024


class BadRequestError(Exception):
    """The bytes are not a request that this reader supports."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `at_ns`: CLOCK_MONOTONIC when its first byte was read."""

    at_ns: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def asked(self) -> dict[str, object]:
        """The body's JSON object; empty if it is not one."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


async def read_request(reader: asyncio.StreamReader, begun: bytes = b"") -> Request | None:
    """The next request; None if the other side closed before it began. `begun`: bytes of it that were read already.

    Raises BadRequestError, and ConnectionError if the connection breaks.
    """
    first = begun or await reader.read(1)
    at_ns = time.monotonic_ns()
    if not first:
        return None
    try:
        head = first + await reader.readuntil(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, _ = line.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (item.partition(":") for item in lines)}
        body = await _body(reader, headers)
    except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise BadRequestError("not a whole HTTP/1.1 request") from error
    return Request(at_ns, method, target.partition("?")[0], headers, body)


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader)
    return await reader.readexactly(_allowed(int(headers.get("content-length", "0"))))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).partition(b";")[0], 16):
        _allowed(len(body) + size)
        body += (await reader.readexactly(size + 2))[:-2]
    while (await reader.readline()).strip():  # trailers
        pass
    return body


def _allowed(size: int) -> int:
    if not 0 <= size <= MAX_BODY_BYTES:
        raise BadRequestError(f"a body of {size} bytes: the limit is {MAX_BODY_BYTES}")
    return size
