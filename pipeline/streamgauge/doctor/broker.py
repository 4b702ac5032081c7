"""The brokers: whether they answer and can be reached, whether the topics fit, and whether this client has its rights."""

import asyncio
import ssl
import time
from collections.abc import Iterator, Sequence

from streamgauge.doctor.cluster import Cluster, Facts
from streamgauge.doctor.contract import Finding, Installation, fail, failure_of, ok, warn
from streamgauge.doctor.probe import ProbeError, certificate_ends_s, connected
from streamgauge.doctor.upstreams import WARN_DAYS
from streamgauge.kafka.administrator import Right
from streamgauge.kafka.topic_settings import TIMESTAMP_TYPE
from streamgauge.kafka.topics import (
    Job,
    Topic,
    TopicsError,
    TopicsUnfitError,
    check_partitions,
    differences,
    missing_rights,
)
from streamgauge.runtime.certificates import Invalid

# The most brokers to which a connection is tried.
_MAX_NODES = 50

# Clients verify the name that a broker gives itself, not only that in --kafka.
_CURES = dict.fromkeys(Invalid, "give the broker a certificate that is valid for the host of its advertised.listeners")


async def check_broker(installation: Installation) -> Sequence[Finding]:
    """One finding for the brokers that the settings name; one more for each broker that cannot be reached."""
    if installation.cluster is None:
        return []  # the check of the settings reports it
    brokers = installation.cluster.brokers
    try:
        facts = await installation.cluster.facts()
    except TopicsError as error:
        return [failure_of(error)]
    nodes = facts.nodes[:_MAX_NODES]
    tls = brokers.context
    unreached = [
        failure for failure in await asyncio.gather(*(_reach(*node, tls) for node in nodes)) if failure is not None
    ]
    count = f"{len(facts.nodes)} broker{'s' if len(facts.nodes) != 1 else ''}"
    return unreached or [ok(f"the cluster at {brokers} answers over {brokers.protocol} and has {count}, all reached")]


async def _reach(host: str, port: int, tls: ssl.SSLContext | None) -> Finding | None:
    """A failure if a broker cannot be reached at the address that it names; clients use that one, not --kafka."""
    try:
        async with connected(host, port, tls, _CURES) as (_, writer):
            ends_s = certificate_ends_s(writer)
    except ProbeError as error:
        return fail(
            f"a broker names itself {host}:{port} to clients, but {error.says}",
            f"correct advertised.listeners of the broker, or {error.cure}",
        )
    if ends_s is not None and (days := (ends_s - time.time()) / 86_400) < WARN_DAYS:
        return warn(
            f"the certificate of the broker at {host}:{port} expires in {days:.0f} days", "renew it on the broker"
        )
    return None


async def check_topics(installation: Installation) -> Sequence[Finding]:
    """One finding for each topic that is missing or does not fit; else one for all."""
    cluster = installation.cluster
    if cluster is None or (facts := await cluster.facts_if_known()) is None:
        return []  # the check of the broker reports it
    findings = [*_missing_topics(cluster, facts), *_partitions(cluster, facts), *_configurations(cluster, facts)]
    segments = facts.topics.get(cluster.topics.segments)
    if findings or segments is None:
        return findings
    return [ok(f"{len(facts.topics)} topics with the prefix {cluster.topics.prefix}, {segments.partitions} partitions")]


def _missing_topics(cluster: Cluster, facts: Facts) -> Iterator[Finding]:
    for name in cluster.topics.names:
        if name not in facts.topics and name not in facts.denied:
            prefix = "" if cluster.topics.prefix == "streamgauge" else f" --topic-prefix {cluster.topics.prefix}"
            cure = f"run `streamgauge topics create --kafka {cluster.brokers}{prefix}`"
            needed = cluster.job is Job.WORKER or name == cluster.topics.segments
            yield (fail if needed else warn)(f"the topic {name} does not exist", cure)


def _partitions(cluster: Cluster, facts: Facts) -> Iterator[Finding]:
    segments, state = (facts.topics.get(name) for name in (cluster.topics.segments, cluster.topics.state))
    if segments is None:
        return
    try:
        check_partitions(cluster.topics.segments, segments.partitions)
    except TopicsUnfitError as error:
        yield failure_of(error)
    if state is not None and state.partitions != segments.partitions:
        yield fail(
            f"{cluster.topics.segments} has {segments.partitions} partitions, {cluster.topics.state} has {state.partitions}",
            "add partitions to the smaller one: both must have the same number",
        )


def _configurations(cluster: Cluster, facts: Facts) -> Iterator[Finding]:
    segments = facts.topics.get(cluster.topics.segments)
    for target in cluster.topics.wanted(1):
        if (topic := facts.topics.get(target.name)) is None:
            continue
        if topic.replicas == 1 and len(facts.nodes) > 1:
            yield warn(
                f"{target.name} has 1 replica, in a cluster of {len(facts.nodes)} brokers: it is lost with one of them",
                "add replicas with kafka-reassign-partitions",
            )
        # The partitions have a check of their own; partitions of the dead letters are not compared.
        existing = Topic(target.name, target.partitions, facts.configs.get(target.name, {}))
        for difference in differences(target, existing):
            key = difference.partition(" has ")[2].partition("=")[0]
            value = target.config[key]
            cure = (
                f"kafka-configs --bootstrap-server {cluster.brokers} --alter --entity-type topics --entity-name {target.name}"
                f" --add-config {key}={value}"
            )
            is_fatal = key == TIMESTAMP_TYPE and topic is segments
            yield (fail if is_fatal else warn)(difference, cure)


async def check_rights(installation: Installation) -> Sequence[Finding]:
    """One failure for each missing right; else one finding for all."""
    cluster = installation.cluster
    if cluster is None or (facts := await cluster.facts_if_known()) is None:
        return []  # the check of the broker reports it
    rights = cluster.topics.rights(cluster.job)
    missing = missing_rights(rights, facts.topics, facts.denied, facts.group)
    login = cluster.brokers.login
    if missing:
        principal = f"User:{login.username}" if login else "PRINCIPAL"
        return [
            fail(f"the broker denies {right}", _right_command(cluster.brokers.bootstrap, principal, right))
            for right in missing
        ]
    client = f"the user {login.username}" if login else "this client"
    return [ok(f"{client} has the rights of `{cluster.job}`: {', '.join(map(str, rights))}")]


def _right_command(bootstrap: str, principal: str, right: Right) -> str:
    return (
        f"kafka-acls --bootstrap-server {bootstrap} --add --allow-principal {principal}"
        f" --operation {right.operation.acl_name} --{right.kind} {right.name}"
    )
