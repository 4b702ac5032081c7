"""`streamgauge topics create|describe`."""

import asyncio
import logging
import sys

from streamgauge.cli.commands import Arguments
from streamgauge.cli.kafka_options import brokers_of
from streamgauge.cli.tables import print_table
from streamgauge.config import Settings
from streamgauge.errors import DONE, FOUND, Unavailable
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.topics import TopicsError, create, describe


def run(settings: Settings, args: Arguments) -> int:
    """Creates or describes the topics. `create` does not change existing topics: 0 if they match, 1 if they differ."""
    brokers = brokers_of(settings)
    # aiokafka's log lines about an unreachable broker would repeat our own error message.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        if args.action == "describe":
            return _describe(brokers, settings.topic_prefix)
        return _create(brokers, settings.partitions, settings.topic_prefix, settings.replicas)
    except TopicsError as error:
        raise Unavailable(str(error)) from None


def _create(brokers: Brokers, partitions: int | None, prefix: str, replicas: int | None) -> int:
    made = asyncio.run(create(brokers, partitions, prefix, replicas))
    for name in made.created:
        sys.stdout.write(f"created {name}\n")
    for difference in made.differences:
        sys.stderr.write(f"{difference}\n")
    if not made.created and not made.differences:
        sys.stdout.write("all topics exist and have the expected settings\n")
    return FOUND if made.differences else DONE


def _describe(brokers: Brokers, prefix: str) -> int:
    topics = asyncio.run(describe(brokers, prefix))
    if not topics:
        sys.stderr.write(f"there are no topics with the prefix {prefix}: run `streamgauge topics create`\n")
        return FOUND
    rows = [
        [topic.name, topic.partitions, topic.replicas, " ".join(f"{k}={v}" for k, v in topic.config.items())]
        for topic in topics
    ]
    print_table(["topic", "partitions", "replicas", "settings"], rows, max_width=None)
    return DONE
