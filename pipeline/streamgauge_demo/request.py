"""Reading a request off a connection: no more of HTTP than clients and taps send here."""

import asyncio
import json
import time
from dataclasses import dataclass

# A request's head: clients send well under 4 KiB (bytes).
MAX_HEAD_BYTES = 64 * 1024

# A request's body: the driver's are a few hundred bytes, other people's prompts may be long (bytes).
MAX_BODY_BYTES = 16 * 1024 * 1024


class BadRequestError(Exception):
    """What came is no request that can be read here."""


@dataclass(frozen=True, slots=True)
class Request:
    """`at_ns`: CLOCK_MONOTONIC when its first byte was read."""

    at_ns: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def asked(self) -> dict[str, object]:
        """The body's JSON object; empty where it is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


async def read_request(reader: asyncio.StreamReader, begun: bytes = b"") -> Request | None:
    """The next request; None if the other side closed before one began. `begun`: bytes of it that were read already.

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
