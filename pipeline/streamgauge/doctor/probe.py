"""Connects to a server as a tap would, and requests its time by HEAD. The error reports how far it got, and the cure."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from streamgauge.doctor.contract import in_thread
from streamgauge.runtime.certificates import Invalid, why_invalid

# How long one connection attempt, its handshake or its answer may take (seconds).
STEP_S = 8.0
# The largest head of an answer that is read (bytes).
_MAX_HEAD = 64 * 1024
_MAX_ADDRESSES = 4

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ProbeError(Exception):
    """The server was not reached. `says`: what failed, as the end of a sentence; `cure`: what to do."""

    def __init__(self, says: str, cure: str) -> None:
        super().__init__(f"{says}: {cure}")
        self.says, self.cure = says, cure


@dataclass(frozen=True)
class Answer:
    """A server's answer to HEAD. Times are seconds since 1970.

    `certificate_ends_s`: when the server's certificate expires, None without TLS; `date_s`: its Date header, which is whole
    seconds, None without one.
    """

    status: int
    certificate_ends_s: float | None
    date_s: float | None


@asynccontextmanager
async def connected(
    host: str, port: int, tls: ssl.SSLContext | None, cures: Mapping[Invalid, str]
) -> AsyncIterator[Stream]:
    """A connection as a context. `cures`: what to do about an invalid certificate. Raises ProbeError."""
    at = f"{host}:{port}"
    addresses = await _resolved(host, port)
    for number, address in enumerate(addresses):
        try:
            async with asyncio.timeout(STEP_S / len(addresses)):
                plain = await asyncio.open_connection(*address)
            break
        except OSError as error:  # a TimeoutError is one, too
            if number == len(addresses) - 1:
                raise _unreached(at, error) from None
    reader, writer = plain
    try:
        if tls is not None:
            await _secured(writer, tls, host, at, cures)
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):  # a TimeoutError is one, too
            async with asyncio.timeout(1):
                await writer.wait_closed()


def _unreached(at: str, error: OSError) -> ProbeError:
    match error:
        case TimeoutError():
            return ProbeError(f"{at} does not answer within {STEP_S:g} s", "check firewalls and routes to it")
        case ConnectionRefusedError():
            return ProbeError(f"{at} refuses connections", "check that it runs, and its port")
    return ProbeError(f"{at} cannot be reached ({error.strerror or error})", "check the network")


async def _resolved(host: str, port: int) -> list[tuple[str, int]]:
    """The addresses of a name, at most _MAX_ADDRESSES: a tap, too, tries one after the other."""
    try:
        async with asyncio.timeout(STEP_S):
            addresses = await in_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise ProbeError(f"the name {host} is not resolved within {STEP_S:g} s", "check the DNS of this host") from None
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        cure = "check the name, and the DNS of this host"
        raise ProbeError(f"the name {host} cannot be resolved ({why})", cure) from None
    return [(str(address[0]), port) for *_, address in addresses][:_MAX_ADDRESSES]


async def _secured(
    writer: asyncio.StreamWriter, tls: ssl.SSLContext, host: str, at: str, cures: Mapping[Invalid, str]
) -> None:
    try:
        async with asyncio.timeout(STEP_S):
            await writer.start_tls(tls, server_hostname=host)
    except ssl.SSLCertVerificationError as fault:
        why = why_invalid(fault)
        detail = f" ({fault.verify_message})" if why is Invalid.OTHER else ""
        raise ProbeError(f"the certificate of {at} {why}{detail}", cures[why]) from None
    except TimeoutError:
        raise ProbeError(f"{at} does not answer a TLS handshake", "check that this port speaks TLS") from None
    except ssl.SSLError as fault:
        reason = (fault.reason or "").lower().replace("_", " ")
        raise ProbeError(f"the TLS handshake with {at} fails ({reason})", "check that this port speaks TLS") from None
    except OSError:
        raise ProbeError(
            f"{at} closes the connection in the TLS handshake", "check that this port speaks TLS"
        ) from None


def certificate_ends_s(writer: asyncio.StreamWriter) -> float | None:
    """The expiry of a server's certificate (seconds since 1970); None without TLS."""
    certificate = writer.get_extra_info("peercert")
    return ssl.cert_time_to_seconds(certificate["notAfter"]) if certificate else None


async def head(host: str, port: int, path: str, tls: ssl.SSLContext | None, cures: Mapping[Invalid, str]) -> Answer:
    """The answer to a HEAD request without credentials. Raises ProbeError."""
    name = f"[{host}]" if ":" in host else host
    request = f"HEAD {path or '/'} HTTP/1.1\r\nHost: {name}:{port}\r\nConnection: close\r\nAccept: */*\r\n\r\n"
    async with connected(host, port, tls, cures) as (reader, writer):
        ends_s = certificate_ends_s(writer)
        try:
            async with asyncio.timeout(STEP_S):
                writer.write(request.encode())
                lines = (await reader.readuntil(b"\r\n\r\n"))[:_MAX_HEAD].decode("latin-1").split("\r\n")
        except TimeoutError:
            raise ProbeError(f"{host}:{port} gives no HTTP answer within {STEP_S:g} s", "check the URL") from None
        except ssl.SSLError:
            cure = "check the client certificate, which it may require"
            raise ProbeError(f"{host}:{port} ends the TLS connection after the handshake", cure) from None
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            cure = "check the URL: its scheme and port"
            raise ProbeError(f"{host}:{port} gives no HTTP answer", cure) from None
    version, _, rest = lines[0].partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise ProbeError(f"{host}:{port} does not answer in HTTP/1.1", "check the URL: its scheme and port")
    return Answer(int(rest[:3]), ends_s, _date_of(lines[1:]))


def _date_of(lines: list[str]) -> float | None:
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() == "date":
            with contextlib.suppress(ValueError):
                return parsedate_to_datetime(value.strip()).timestamp()
    return None
