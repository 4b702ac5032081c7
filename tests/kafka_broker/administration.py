"""What tests do to a broker's topics beside reading and writing them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import TopicPartition

# A change that a broker has confirmed reaches its partitions a moment later (seconds).
APPLIED_S = 1.0


@asynccontextmanager
async def admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def delete_topic(bootstrap: str, name: str) -> None:
    """Returns when the topic is gone."""
    async with admin(bootstrap) as client:
        await client.delete_topics([name])
        for _ in range(300):
            if name not in await client.list_topics():
                return
            await asyncio.sleep(0.1)
    raise TimeoutError(f"topic {name} is still there")


async def delete_topics(bootstrap: str, prefix: str) -> None:
    """Asks for the deletion of all topics that begin with a prefix, and does not wait for it."""
    async with admin(bootstrap) as client:
        await client.delete_topics([name for name in await client.list_topics() if name.startswith(prefix)])


async def delete_beginning(bootstrap: str, name: str, partition: int, before: int) -> None:
    """Delete a partition's messages below an offset, as retention does."""
    async with admin(bootstrap) as client:
        await client.delete_records({TopicPartition(name, partition): RecordsToDelete(before)})


async def set_config(bootstrap: str, name: str, **config: str) -> None:
    """Set a topic's configuration; everything that is not named goes back to its default."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    async with admin(bootstrap) as client:
        await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, keys)])
    await asyncio.sleep(APPLIED_S)
