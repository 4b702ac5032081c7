"""`streamgauge topics create|describe`."""

import argparse
import asyncio
import logging
import sys

from streamgauge.commands.tables import print_table
from streamgauge.config import Settings
from streamgauge.errors import DONE, FOUND, Unavailable, UsageFault
from streamgauge.topics import TopicsError, create, describe


def run(settings: Settings, args: argparse.Namespace) -> int:
    """Creating again changes nothing: 0 where what is there agrees, 1 where it differs."""
    if not settings.kafka:
        raise UsageFault("--kafka HOST:PORT is missing: which broker?")
    # aiokafka's own words on a broker that is away come beside our one sentence, and say nothing more.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        if args.action == "describe":
            return _describe(settings.kafka, settings.topic_prefix)
        return _create(settings.kafka, settings.partitions, settings.topic_prefix)
    except TopicsError as error:
        raise Unavailable(str(error)) from None


def _create(bootstrap: str, partitions: int | None, prefix: str) -> int:
    made = asyncio.run(create(bootstrap, partitions, prefix))
    for name in made.created:
        sys.stdout.write(f"created {name}\n")
    for difference in made.differences:
        sys.stderr.write(f"{difference}\n")
    if not made.created and not made.differences:
        sys.stdout.write("all topics are there, as they should be\n")
    return FOUND if made.differences else DONE


def _describe(bootstrap: str, prefix: str) -> int:
    topics = asyncio.run(describe(bootstrap, prefix))
    if not topics:
        sys.stderr.write(f"no topic of {prefix} is there: run `streamgauge topics create`\n")
        return FOUND
    rows = [[topic.name, topic.partitions, " ".join(f"{k}={v}" for k, v in topic.config.items())] for topic in topics]
    print_table(["topic", "partitions", "settings"], rows, max_width=None)
    return DONE
