"""`streamgauge topics create|describe`."""

import argparse
import asyncio
import sys

from streamgauge.commands.tables import print_table
from streamgauge.config import Settings
from streamgauge.errors import DONE, FOUND, UsageFault
from streamgauge.topics import create, describe


def run(settings: Settings, args: argparse.Namespace) -> int:
    """Creating again changes nothing: 0 where what is there agrees, 1 where it differs."""
    if not settings.kafka:
        raise UsageFault("--kafka HOST:PORT is missing: which broker?")
    if args.action == "describe":
        return _describe(settings.kafka, settings.topic_prefix)
    return _create(settings)


def _create(settings: Settings) -> int:
    partitions = settings.partitions
    if partitions is not None and partitions & (partitions - 1):
        raise UsageFault(f"--partitions {partitions}: it takes a power of two up to 64")
    made = asyncio.run(create(str(settings.kafka), partitions, settings.topic_prefix))
    for name in made.created:
        sys.stdout.write(f"created {name}\n")
    for difference in made.differences:
        sys.stderr.write(f"{difference}\n")
    if not made.created and not made.differences:
        sys.stdout.write("all topics are there, as they should be\n")
    return FOUND if made.differences else DONE


def _describe(bootstrap: str, prefix: str) -> int:
    topics = asyncio.run(describe(bootstrap, prefix))
    rows = [[topic.name, topic.partitions, " ".join(f"{k}={v}" for k, v in topic.config.items())] for topic in topics]
    print_table(["topic", "partitions", "settings"], rows)
    return DONE if topics else FOUND
