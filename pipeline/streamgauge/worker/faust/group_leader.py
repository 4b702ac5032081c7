"""Let a group leader assign partitions only once it has the metadata of the topics.

Written for aiokafka 0.13 to 0.14; https://github.com/aio-libs/aiokafka/issues/906.

aiokafka's consumer requests the metadata of its topics when it subscribes. If that one request fails, the leader has no
partitions to assign: Faust's assignor ignores an unknown topic, and no member of the group gets a partition.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiokafka.consumer.group_coordinator import GroupCoordinator  # type: ignore[import-untyped]
from aiokafka.coordinator.protocol import ConsumerProtocol  # type: ignore[import-untyped]

# The part of a session that a leader may spend on metadata: the group removes a leader that is silent for a session.
_SHARE_OF_SESSION = 0.5

Assign = Callable[[Any], Awaitable[Any]]


def wait_for_topics_before_assigning(coordinator: GroupCoordinator) -> None:
    """Make this coordinator fetch the metadata of all topics of its group before it assigns partitions."""
    coordinator._perform_assignment = partial(_assign, coordinator, coordinator._perform_assignment)


async def _assign(coordinator: GroupCoordinator, assign: Assign, response: Any) -> Any:
    """Fetch the metadata, then assign. If a topic stays unknown, the known ones are assigned; aiokafka requests the metadata
    again after `metadata_max_age_ms`, and then rejoins.
    """
    topics = {
        topic for member in response.members for topic in ConsumerProtocol.METADATA.decode(member[-1]).subscription
    }
    client = coordinator._client
    client.set_topics(topics)
    loop = asyncio.get_running_loop()
    gives_up_at = loop.time() + _SHARE_OF_SESSION * coordinator._session_timeout_ms / 1000
    while not coordinator._closing.done() and loop.time() < gives_up_at:
        if all(client.cluster.partitions_for_topic(topic) for topic in topics):
            break
        await client.force_metadata_update()
        await asyncio.sleep(coordinator._retry_backoff_ms / 1000)
    return await assign(response)
