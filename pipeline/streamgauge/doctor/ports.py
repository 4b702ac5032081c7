"""The addresses on which the command listens: free, or in use by a running Streamgauge."""

import contextlib
import errno
import http.client
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamgauge.doctor.contract import Finding, Installation, fail, in_thread, ok, warn
from streamgauge.runtime.listeners import Address, reachable_host

_TIMEOUT_S = 5.0
# What an admin port answers to a question for its health: its name in the header Server, a status, and a few words (bytes).
_SERVER, _STATUSES, _MAX_BYTES = "streamgauge", (200, 401, 403, 503), 500
_UNREADY = 503


async def check_ports(installation: Installation) -> Sequence[Finding]:
    """One finding for each address."""
    return await in_thread(_findings, installation)


def _findings(installation: Installation) -> list[Finding]:
    settings = installation.settings
    relays = installation.command != "worker" and settings.upstream
    admin, runs = _of("--admin", settings.admin, lambda: is_streamgauge(settings.admin))
    findings = [admin]
    if runs and (reason := unready_reason(settings.admin)) is not None:
        findings.append(warn(f"the running process is not ready: {reason}", "see its log, and the other checks"))
    # The port for clients shows no name of ours. If the admin port is ours, the other one is taken for ours, too.
    return [_of("--listen", settings.listen, lambda: runs)[0], *findings] if relays else findings


def _of(option: str, address: Address, is_ours: Callable[[], bool]) -> tuple[Finding, bool]:
    """The finding, and whether a running Streamgauge has the address."""
    error = _bind_error(address)
    if error is None:
        return ok(f"{option} {address} is free"), False
    if error.errno == errno.EADDRINUSE and is_ours():
        return ok(f"{option} {address} is in use by a running Streamgauge"), True
    if error.errno == errno.EADDRINUSE:
        says = f"{option} {address} is in use by another process"
        return fail(says, f"choose another address with {option}, or stop the process that uses it"), False
    why = error.strerror or str(error)
    cure = f"choose another address with {option}"
    if error.errno == errno.EACCES:
        cure += ", above port 1023, or give the process the capability CAP_NET_BIND_SERVICE"
    return fail(f"{option} {address} cannot be used ({why})", cure), False


def _bind_error(address: Address) -> OSError | None:
    try:
        family, _, _, _, bound = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(bound)
            trial.listen(1)  # a bound address may still be in use by a listener
    except OSError as error:
        return error
    return None


def reached_at(address: Address) -> Address:
    """The address by which this host reaches a listener."""
    return Address(host=reachable_host(address.host), port=address.port)


def is_streamgauge(address: Address) -> bool:
    """Whether the admin port of a Streamgauge answers there."""
    answer = _get(address, "/health/live")
    return answer is not None and answer.server == _SERVER and answer.status in _STATUSES


def unready_reason(address: Address) -> str | None:
    """The reason why the process with this admin port is not ready; None if it is, or if it gives no answer."""
    answer = _get(address, "/health/ready")
    if answer is None or answer.status != _UNREADY:
        return None
    return (
        answer.body.decode(errors="replace").strip().removeprefix("not ready").removeprefix(": ")
        or "it gives no reason"
    )


class _Answer(NamedTuple):
    """`server`: the header Server; `body`: its beginning."""

    status: int
    server: str | None
    body: bytes


def _get(address: Address, path: str) -> _Answer | None:
    """The answer, over HTTP or TLS; None without one."""
    at = reached_at(address)
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE  # the address is this host's own, and no secret is sent
    for connection in (
        http.client.HTTPConnection(at.host, at.port, timeout=_TIMEOUT_S),
        http.client.HTTPSConnection(at.host, at.port, timeout=_TIMEOUT_S, context=tls),
    ):
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", path)
            with connection.getresponse() as answer:
                return _Answer(answer.status, answer.getheader("Server"), answer.read(_MAX_BYTES))
    return None
