"""Find out why a broker cannot be reached, as one sentence with what to do.

aiokafka only raises that it could not connect, and logs the cause. So after a client failed, this module opens one more
connection with the same options and reads the error of that connection.
"""

import contextlib
import ssl
from dataclasses import dataclass
from typing import Any

from aiokafka.conn import collect_hosts, create_conn  # type: ignore[import-untyped]
from aiokafka.errors import (  # type: ignore[import-untyped]
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest  # type: ignore[import-untyped]

from streamgauge.kafka.security import Brokers
from streamgauge.kafka.shims.connections import connections_closed
from streamgauge.runtime.certificates import Invalid, why_invalid

# How long one connection attempt, and its one request, may each take (milliseconds).
_TIMEOUT_MS = 5_000
# The highest number of addresses tried: the brokers of a cluster share one configuration, so three show what is wrong.
_MAX_ADDRESSES = 3

# What an operator does about an invalid certificate of a broker.
_CURES = {
    Invalid.UNTRUSTED: "give the CA file with --kafka-ca",
    Invalid.EXPIRED: "renew it on the broker",
    Invalid.NOT_YET: "check the clocks of both hosts",
    Invalid.OTHER_HOST: "use a host name of the certificate in --kafka and in the broker's advertised.listeners",
    Invalid.OTHER: "check it on the broker",
}


@dataclass(frozen=True)
class Refusal:
    """The refusal of a connection by a broker.

    `sentence`: the reason and the remedy. `final`: only an operator can fix it; if False, the broker may still be starting.
    """

    sentence: str
    final: bool


async def refusal_of(brokers: Brokers) -> Refusal | None:
    """The refusal of a connection by the brokers; None if no broker answers, or if the connection succeeds now."""
    tried: set[tuple[str, int]] = set()
    waiting = [(host, port) for host, port, _ in collect_hosts(brokers.bootstrap, randomize=False)]
    guess: Refusal | None = None
    while waiting and len(tried) < _MAX_ADDRESSES:
        address = waiting.pop(0)
        if address in tried:
            continue
        tried.add(address)
        try:
            waiting += await _connect(brokers, *address)
        except (OSError, KafkaError, TimeoutError, ValueError, EOFError) as fault:
            refusal = _meaning(brokers, f"{address[0]}:{address[1]}", _cause(fault))
            if refusal is not None and refusal.final:
                return refusal
            guess = guess or refusal
    return guess


async def _connect(brokers: Brokers, host: str, port: int) -> list[tuple[str, int]]:
    """Connect and log in. Returns the (host, port) pairs that the brokers advertise."""
    options = brokers.security()
    if brokers.login is not None:
        options["sasl_plain_password"] = brokers.login.password.now()
    try:
        connection: Any = await create_conn(host, port, request_timeout_ms=_TIMEOUT_MS, **options)
        try:
            answer = await connection.send(MetadataRequest([]))
        finally:
            with contextlib.suppress(OSError):
                connection.close()
    finally:
        await connections_closed()
    return [(broker[1], broker[2]) for broker in answer.brokers]


def _cause(fault: BaseException) -> BaseException:
    """The error that caused aiokafka's KafkaError; the KafkaError itself if no other error did."""
    while isinstance(fault, KafkaError) and isinstance(fault.__cause__, Exception):
        fault = fault.__cause__
    return fault


def _meaning(brokers: Brokers, at: str, fault: BaseException) -> Refusal | None:
    match fault:
        case ssl.SSLCertVerificationError():
            return Refusal(_of_certificate(at, fault), True)
        case SaslAuthenticationFailed():
            assert brokers.login is not None
            problem = f"the broker at {at} rejected the user {brokers.login.username!r} or its password"
            return Refusal(f"{problem}: check --kafka-username and --kafka-password-file", True)
        case UnsupportedSaslMechanismError():
            assert brokers.login is not None
            problem = f"the broker at {at} does not support the SASL mechanism {brokers.login.mechanism}"
            return Refusal(f"{problem}: choose another with --kafka-mechanism", True)
        case IllegalSaslStateError():
            problem = f"the broker at {at} does not use SASL on this port"
            return Refusal(f"{problem}: {_CHECK_PORT}", True)
        case ssl.SSLError() if _is_alert(fault):
            return Refusal(_of_alert(brokers, at, fault), True)
        case ssl.SSLError() if fault.reason == "WRONG_VERSION_NUMBER":
            return Refusal(f"the broker at {at} does not use TLS on this port: {_CHECK_PORT}", True)
        case ConnectionRefusedError() | TimeoutError():
            return None
        case OSError() if not isinstance(fault, ConnectionError | ssl.SSLError):
            return None  # the host is unknown or unreachable
        case ConnectionError() | ssl.SSLError() | EOFError() | KafkaError():
            return Refusal(_of_silence(brokers, at), False)
    return Refusal(f"the server at {at} does not answer like a Kafka broker: check the address in --kafka", False)


_CHECK_PORT = "check --kafka-security and the port"


def _of_certificate(at: str, fault: ssl.SSLCertVerificationError) -> str:
    why = why_invalid(fault)
    detail = f" ({fault.verify_message})" if why is Invalid.OTHER else ""
    return f"the certificate of the broker at {at} {why}{detail}: {_CURES[why]}"


def _is_alert(fault: ssl.SSLError) -> bool:
    """Whether the broker sent a TLS alert. For a client that is nearly always about the client's certificate."""
    return "ALERT" in (fault.reason or "")


def _of_alert(brokers: Brokers, at: str, fault: ssl.SSLError) -> str:
    problem = (fault.reason or "").lower().rpartition("alert_")[2].replace("_", " ")
    if brokers.tls is not None and brokers.tls.certificate is None:
        return f"the broker at {at} ended the TLS handshake ({problem}): it may require --kafka-certificate"
    return f"the broker at {at} rejected the client certificate ({problem}): check --kafka-certificate"


def _of_silence(brokers: Brokers, at: str) -> str:
    problem = f"the broker at {at} closed the connection without an answer to {brokers.protocol}"
    ours = brokers.tls is not None and brokers.tls.certificate is None
    return f"{problem}: unless it is still starting, {_CHECK_PORT}{', or give --kafka-certificate' if ours else ''}"
