"""The topics: they exist, their partitions fit, and they are configured as Streamgauge needs it."""

from collections.abc import Iterator, Sequence

from streamgauge.doctor.cluster import Cluster, Facts
from streamgauge.doctor.findings import Finding, fail, failure_of, ok, warn
from streamgauge.doctor.installation import Installation
from streamgauge.kafka.topic_settings import TIMESTAMP_TYPE
from streamgauge.kafka.topics import Job, Topic, TopicsUnfitError, check_partitions, differences


async def find(installation: Installation) -> Sequence[Finding]:
    """One finding for each topic that is missing or does not fit; else one for all."""
    cluster = installation.cluster
    if cluster is None or (facts := await cluster.facts_if_known()) is None:
        return []  # the check of the broker says why
    found = [*_missing(cluster, facts), *_partitions(cluster, facts), *_configured(cluster, facts)]
    segments = facts.topics.get(cluster.topics.segments)
    if found or segments is None:
        return found
    return [ok(f"{len(facts.topics)} topics with the prefix {cluster.topics.prefix}, {segments.partitions} partitions")]


def _missing(cluster: Cluster, facts: Facts) -> Iterator[Finding]:
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


def _configured(cluster: Cluster, facts: Facts) -> Iterator[Finding]:
    segments = facts.topics.get(cluster.topics.segments)
    for wanted in cluster.topics.wanted(1):
        if (there := facts.topics.get(wanted.name)) is None:
            continue
        if there.replicas == 1 and len(facts.nodes) > 1:
            yield warn(
                f"{wanted.name} has 1 replica, in a cluster of {len(facts.nodes)} brokers: it is lost with one of them",
                "add replicas with kafka-reassign-partitions",
            )
        # The partitions have a check of their own; those of the dead letters are not compared.
        found = Topic(wanted.name, wanted.partitions, facts.configs.get(wanted.name, {}))
        for difference in differences(wanted, found):
            key = difference.partition(" has ")[2].partition("=")[0]
            value = wanted.config[key]
            cure = (
                f"kafka-configs --bootstrap-server {cluster.brokers} --alter --entity-type topics --entity-name {wanted.name}"
                f" --add-config {key}={value}"
            )
            is_fatal = key == TIMESTAMP_TYPE and there is segments
            yield (fail if is_fatal else warn)(difference, cure)
