"""Reports of the brokers on themselves, our topics and our rights. They are read once, for all checks."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamgauge.kafka.administrator import (
    ExistingTopic,
    administrator,
    configs_of,
    existing_topics,
    may_with_group,
)
from streamgauge.kafka.log_reader import Ends, ends_of
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.topics import Job, Topics, TopicsError


@dataclass(frozen=True)
class Facts:
    """Facts that the brokers report. `denied`: the topics that this client may not see; `group`: as of `may_with_group`.

    `nodes`: HOST and PORT of each broker, as the brokers name them to clients; `configs`: by topic, without topics whose
    configuration this client may not read.
    """

    topics: Mapping[str, ExistingTopic] = field(default_factory=dict)
    denied: Sequence[str] = ()
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    group: frozenset[int] | None = None
    nodes: Sequence[tuple[str, int]] = ()


class Cluster:
    """The brokers of an installation. `job`: decides which rights it needs."""

    def __init__(self, brokers: Brokers, prefix: str, job: Job) -> None:
        self.brokers, self.topics, self.job = brokers, Topics(prefix), job
        self._reading: asyncio.Task[Facts] | None = None

    async def facts(self) -> Facts:
        """The facts, read by the first call. Raises TopicsError."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)  # a check that is out of time ends without the others

    async def facts_if_known(self) -> Facts | None:
        """The facts; None if the brokers cannot be asked, which another check reports."""
        try:
            return await self.facts()
        except TopicsError:
            return None

    async def ends(self, topic: str, partitions: int) -> Ends:
        """The first and the last message of each partition. Raises LogUnreadableError."""
        return await ends_of(self.brokers, topic, partitions)

    async def _read(self) -> Facts:
        names = self.topics.names
        async with administrator(self.brokers) as admin:
            seen, denied = await existing_topics(admin, names)
            keys = {key for topic in self.topics.wanted(1) for key in topic.config}
            configs = await configs_of(admin, list(seen), keys)
            group = await may_with_group(admin, self.topics.prefix) if self.job is Job.WORKER else None
            nodes = [(node["host"], node["port"]) for node in (await admin.describe_cluster())["brokers"]]
        return Facts(seen, denied, configs, group, nodes)
