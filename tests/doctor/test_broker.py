"""Brokers, topics and rights, with a real Kafka: plain, and with TLS, log-ins and an authorizer."""

import asyncio
from pathlib import Path

import pytest

from streamgauge.doctor.cluster import Cluster, Facts
from streamgauge.doctor.contract import Installation
from streamgauge.kafka import topics
from streamgauge.kafka.administrator import ExistingTopic, Kind, Operation, Right
from streamgauge.kafka.security import Brokers, Login, Password, TlsFiles
from streamgauge.kafka.topics import Job, Topics
from tests.doctor.examined import FAIL, OK, WARN, found, installation, only
from tests.doctor.test_upstreams import signed, tls
from tests.faults.doors import SECRET
from tests.faults.log_faults import add_partitions
from tests.kafka_broker.administration import delete_topic
from tests.kafka_broker.fixtures import PARTITIONS, make_topics
from tests.kafka_broker.secured import Secured
from tests.taps.proxy.pki import make_pki

CHECKS = ("broker", "topics", "rights")


def without_kafka(folder: Path, facts: Facts, brokers: Brokers | None = None) -> Installation:
    """A worker whose brokers say these facts."""

    class Told(Cluster):
        async def facts(self) -> Facts:
            return facts

    examined = installation("worker", folder, "b:1")
    told = Told(brokers or Brokers("b:1"), "streamgauge", Job.WORKER)
    return Installation("worker", examined.settings, examined.read_key, told)


@pytest.mark.kafka
@pytest.mark.parametrize("command", ["tap", "worker"])
def test_a_cluster_that_fits_is_ok(command: str, kafka: str, prefix: str, tmp_path: Path) -> None:
    examined = installation(command, tmp_path, kafka, topic_prefix=prefix)
    assert (
        only("broker", examined).says == f"the cluster at {kafka} answers over PLAINTEXT and has 1 broker, all reached"
    )
    examined = installation(command, tmp_path, kafka, topic_prefix=prefix)
    assert only("topics", examined).says == f"4 topics with the prefix {prefix}, {PARTITIONS} partitions"
    examined = installation(command, tmp_path, kafka, topic_prefix=prefix)
    assert only("rights", examined).level is OK


@pytest.mark.kafka
def test_missing_topics_are_not_made(kafka: str, prefix: str, tmp_path: Path) -> None:
    for command, levels in {"worker": [FAIL] * 4, "tap": [FAIL, WARN, WARN, WARN]}.items():
        seen = found("topics", installation(command, tmp_path, kafka, topic_prefix="no-such"))
        assert [one.level for one in seen] == levels
        assert {one.cure for one in seen} == {f"run `streamgauge topics create --kafka {kafka} --topic-prefix no-such`"}
    assert asyncio.run(topics.describe(kafka, "no-such")) == []
    asyncio.run(delete_topic(kafka, f"{prefix}.records"))
    seen_one = only("topics", installation("worker", tmp_path, kafka, topic_prefix=prefix))
    assert seen_one.says == f"the topic {prefix}.records does not exist"


@pytest.mark.kafka
def test_partitions_that_do_not_fit(kafka: str, prefix: str, tmp_path: Path) -> None:
    asyncio.run(add_partitions(kafka, PARTITIONS + 1, f"{prefix}.segments"))
    odd, unequal = found("topics", installation("worker", tmp_path, kafka, topic_prefix=prefix))
    assert (odd.level, f"{PARTITIONS + 1} is not allowed" in odd.says, "power of two" in odd.cure) == (FAIL, True, True)
    assert (unequal.level, f"{prefix}.state has {PARTITIONS}" in unequal.says) == (FAIL, True)


def topics_of_four(**configs: str) -> Facts:
    names = Topics().names
    wanted = {topic.name: dict(topic.config) for topic in Topics().wanted(4)}
    wanted["streamgauge.segments"] |= configs
    return Facts(
        dict.fromkeys(names, ExistingTopic(4, None, 1)), (), wanted, None, [("127.0.0.1", 1), ("127.0.0.1", 2)]
    )


def test_a_topic_that_is_configured_otherwise(tmp_path: Path) -> None:
    facts = topics_of_four(**{"message.timestamp.type": "CreateTime", "retention.ms": "1"})
    seen = [one for one in found("topics", without_kafka(tmp_path, facts)) if "segments has" in one.says]
    assert [(one.level, one.says) for one in seen] == [
        (WARN, "streamgauge.segments has 1 replica, in a cluster of 2 brokers: it is lost with one of them"),
        (FAIL, "streamgauge.segments has message.timestamp.type=CreateTime, not LogAppendTime"),
        (WARN, "streamgauge.segments has retention.ms=1, not 259200000"),
    ]
    assert seen[1].cure.endswith("--entity-name streamgauge.segments --add-config message.timestamp.type=LogAppendTime")


def test_brokers_that_name_addresses_which_cannot_be_reached(tmp_path: Path) -> None:
    first, second = found("broker", without_kafka(tmp_path, topics_of_four()))
    assert first.says == "a broker names itself 127.0.0.1:1 to clients, but 127.0.0.1:1 refuses connections"
    assert second.cure.startswith("correct advertised.listeners of the broker, or ")


def test_without_a_broker_one_check_fails_and_the_others_are_silent(tmp_path: Path) -> None:
    examined = installation("worker", tmp_path, "127.0.0.1:1")
    seen = only("broker", installation("worker", tmp_path, "127.0.0.1:1"))
    assert (seen.level, seen.cure) == (FAIL, "check that it runs and that --kafka is right")
    for name in ("topics", "rights"):
        assert found(name, installation("worker", tmp_path, "127.0.0.1:1")) == []
    assert examined.cluster is not None
    for name in CHECKS:
        assert found(name, installation("worker", tmp_path)) == [], "the check of the settings says why"


def test_a_brokers_certificate_that_expires_soon(tmp_path: Path) -> None:
    pki = make_pki(tmp_path)
    with tls(signed(pki, tmp_path, "soon.pem", "127.0.0.1", days=3.2)) as server:
        facts = Facts(nodes=[("127.0.0.1", server.port)])
        seen = only("broker", without_kafka(tmp_path, facts, Brokers("b:1", TlsFiles(pki.ca))))
    assert (seen.level, seen.says) == (
        WARN,
        f"the certificate of the broker at 127.0.0.1:{server.port} expires in 3 days",
    )


def login(secured: Secured, user: str, listener: str = "SCRAM", password: str = SECRET) -> Brokers:
    return Brokers(secured.address[listener], TlsFiles(secured.files.ca), Login(user, Password(password)))


@pytest.mark.kafka
def test_each_missing_right_is_named_with_its_command(secured: Secured, tmp_path: Path) -> None:
    prefix = make_topics(secured.bootstrap)
    user = secured.user(SECRET)
    rights = Topics(prefix).rights(Job.WORKER)
    secured.allow(user, rights)
    secured.deny(user, Right(Operation.READ, Kind.TOPIC, f"{prefix}.state"))
    secured.deny(user, Right(Operation.READ, Kind.GROUP, prefix))

    def seen() -> list[str]:
        examined = installation("worker", tmp_path, login(secured, user), topic_prefix=prefix)
        return [f"{one.level} {one.says}; {one.cure}" for one in found("rights", examined)]

    acls = f"kafka-acls --bootstrap-server {secured.address['SCRAM']} --add --allow-principal User:{user}"
    assert seen() == [
        f"fail the broker denies Read on topic {prefix}.state; {acls} --operation Read --topic {prefix}.state",
        f"fail the broker denies Read on group {prefix}; {acls} --operation Read --group {prefix}",
    ]
    secured.allow(user, rights)
    [granted] = seen()
    assert granted.startswith(f"ok the user {user} has the rights of `worker`: Read on topic {prefix}.segments")


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("listener", "password", "says"),
    [
        ("EXPIRED", SECRET, "has expired; renew it on the broker"),
        ("ELSEWHERE", SECRET, "is for another host; use a host name of the certificate"),
        ("SCRAM", "wrong", "or its password; check --kafka-username and --kafka-password-file"),
    ],
)
def test_a_broker_that_is_refused_or_refuses(
    listener: str, password: str, says: str, secured: Secured, tmp_path: Path
) -> None:
    brokers = login(secured, secured.user(SECRET), listener, password)
    seen = only("broker", installation("tap", tmp_path, brokers))
    assert (seen.level, says in f"{seen.says}; {seen.cure}") == (FAIL, True), seen
