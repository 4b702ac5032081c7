"""Why a broker cannot be reached: each cause, with a real broker, gives a sentence that says what to do."""

import asyncio
from collections.abc import Callable

import pytest

from streamgauge.kafka import topics
from streamgauge.kafka.connection_diagnosis import refusal_of
from streamgauge.kafka.security import Brokers, Login, Mechanism, Password, TlsFiles
from tests.kafka_broker.secured import PLAIN_PASSWORD, PLAIN_USER, Secured

pytestmark = pytest.mark.kafka
SECRET = "right-and-secret"


@pytest.fixture(scope="module")
def user(secured: Secured) -> str:
    return secured.user(SECRET)


Case = Callable[[Secured, Login], Brokers]


def scram(user: str, mechanism: Mechanism = Mechanism.SCRAM_SHA_512, password: str = SECRET) -> Login:
    return Login(user, Password(password), mechanism)


GOOD: dict[str, Case] = {
    "SCRAM over TLS": lambda at, who: Brokers(at.address["SCRAM"], TlsFiles(at.files.ca), who),
    "shorter SCRAM": lambda at, who: Brokers(
        at.address["SCRAM"], TlsFiles(at.files.ca), scram(who.username, Mechanism.SCRAM_SHA_256)
    ),
    "PLAIN": lambda at, who: Brokers(
        at.address["PLAIN"], None, Login(PLAIN_USER, Password(PLAIN_PASSWORD), Mechanism.PLAIN)
    ),
    "certificates": lambda at, who: Brokers(at.address["MUTUAL"], TlsFiles(at.files.ca, at.files.client)),
    "plain text": lambda at, who: Brokers(at.bootstrap),
}


@pytest.mark.parametrize("case", GOOD)
def test_working_broker_is_no_refusal(secured: Secured, user: str, case: str) -> None:
    assert asyncio.run(refusal_of(GOOD[case](secured, scram(user)))) is None


# What is wrong, what the sentence says of it, and what it says to do.
BAD: dict[str, tuple[Case, str]] = {
    "another authority": (
        lambda at, who: Brokers(at.address["SCRAM"], TlsFiles(at.files.other_ca), who),
        r"is not signed by a trusted CA: .*--kafka-ca",
    ),
    "the system's authorities": (
        lambda at, who: Brokers(at.address["SCRAM"], TlsFiles(), who),
        r"is not signed by a trusted CA: .*--kafka-ca",
    ),
    "expired": (
        lambda at, who: Brokers(at.address["EXPIRED"], TlsFiles(at.files.ca), who),
        r"has expired: renew it",
    ),
    "another host": (
        lambda at, who: Brokers(at.address["ELSEWHERE"], TlsFiles(at.files.ca), who),
        r"is for another host: .*advertised\.listeners",
    ),
    "wrong password": (
        lambda at, who: Brokers(
            at.address["SCRAM"], TlsFiles(at.files.ca), scram(who.username, password="wrong-and-secret")
        ),
        r"rejected the user 'user-\w+' or its password: .*--kafka-password-file",
    ),
    "unknown user": (
        lambda at, who: Brokers(at.address["SCRAM"], TlsFiles(at.files.ca), scram("unknown")),
        r"rejected the user 'unknown' or its password: .*--kafka-username",
    ),
    "wrong password, PLAIN": (
        lambda at, who: Brokers(
            at.address["PLAIN"], None, Login(PLAIN_USER, Password("wrong-and-secret"), Mechanism.PLAIN)
        ),
        r"rejected the user 'plain-user' or its password",
    ),
    "a mechanism that is not offered": (
        lambda at, who: Brokers(at.address["SCRAM"], TlsFiles(at.files.ca), scram(who.username, Mechanism.PLAIN)),
        r"does not support the SASL mechanism PLAIN: .*--kafka-mechanism",
    ),
    "no certificate of ours": (
        lambda at, who: Brokers(at.address["MUTUAL"], TlsFiles(at.files.ca)),
        r"may require --kafka-certificate",
    ),
    "our certificate has expired": (
        lambda at, who: Brokers(at.address["MUTUAL"], TlsFiles(at.files.ca, at.files.expired_client)),
        r"rejected the client certificate .*--kafka-certificate",
    ),
    "our certificate is another authority's": (
        lambda at, who: Brokers(at.address["MUTUAL"], TlsFiles(at.files.ca, at.files.foreign_client)),
        r"rejected the client certificate .*--kafka-certificate",
    ),
    "a log-in that the broker does not require": (
        lambda at, who: Brokers(at.bootstrap, None, who),
        r"does not use SASL on this port: .*--kafka-security",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_refusal_says_what_is_wrong_and_what_to_do(secured: Secured, user: str, case: str) -> None:
    make, says = BAD[case]
    brokers = make(secured, scram(user))
    with pytest.raises(topics.BrokerRefusesError, match=says) as refused:
        asyncio.run(topics.segments_partitions(brokers))
    assert brokers.bootstrap in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


# Where the broker only hangs up it may also be starting: it is waited for, with a guess.
GUESSED: dict[str, Case] = {
    "plain text where it is TLS": lambda at, who: Brokers(at.address["SCRAM"]),
    "plain text where it is a log-in": lambda at, who: Brokers(at.address["PLAIN"]),
    "TLS where it is plain text": lambda at, who: Brokers(at.bootstrap, TlsFiles(at.files.ca)),
    "TLS alone where it is a log-in": lambda at, who: Brokers(at.address["SCRAM"], TlsFiles(at.files.ca)),
    "a log-in in plain text where it is TLS": lambda at, who: Brokers(at.address["SCRAM"], None, who),
}


@pytest.mark.parametrize("case", GUESSED)
def test_another_protocol_never_works_and_is_guessed_at(secured: Secured, user: str, case: str) -> None:
    brokers = GUESSED[case](secured, scram(user))
    with pytest.raises(
        topics.BrokerUnreachableError, match=r"closed the connection without an answer.*--kafka-security"
    ):
        asyncio.run(topics.segments_partitions(brokers))


def test_unreachable_broker_is_no_refusal() -> None:
    assert asyncio.run(refusal_of(Brokers("127.0.0.1:1,no-such-host.invalid:9092"))) is None
