"""`streamgauge topics create|describe`."""

import asyncio
import json
import logging
import sys
from collections.abc import Mapping

from streamgauge.cli.kafka_options import brokers_of
from streamgauge.cli.parser import JSON, TABLE, Arguments
from streamgauge.cli.tables import print_rows
from streamgauge.errors import DONE, FOUND, Unavailable
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.topics import Created, TopicsError, create, describe
from streamgauge.settings.declarations import Settings

_COLUMNS = ("topic", "partitions", "replicas", "settings")


def run(settings: Settings, args: Arguments) -> int:
    """Creates or describes the topics. `create` does not change existing topics: 0 if they match, 1 if they differ."""
    brokers = brokers_of(settings)
    # aiokafka's log lines about an unreachable broker would repeat the error message of this command.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        if args.action == "describe":
            return _describe(brokers, settings.topic_prefix, args.output)
        created = asyncio.run(create(brokers, settings.partitions, settings.topic_prefix, settings.replicas))
    except TopicsError as error:
        raise Unavailable(str(error)) from None
    return _say_created(created, args.output)


def _say_created(created: Created, output: str) -> int:
    if output == JSON:
        sys.stdout.write(json.dumps({"created": created.created, "differences": created.differences}) + "\n")
    else:
        sys.stdout.writelines(f"created {name}\n" for name in created.created)
        if not created.created and not created.differences:
            sys.stdout.write("all topics exist and have the expected settings\n")
    for difference in created.differences:
        sys.stderr.write(f"{difference}\n")
    return FOUND if created.differences else DONE


def _describe(brokers: Brokers, prefix: str, output: str) -> int:
    topics = asyncio.run(describe(brokers, prefix))
    if not topics:
        sys.stderr.write(f"there are no topics with the prefix {prefix}: run `streamgauge topics create`\n")
    if output != TABLE:
        print_rows(
            _COLUMNS, [[topic.name, topic.partitions, topic.replicas, topic.config] for topic in topics], output, None
        )
    elif topics:
        rows = [[topic.name, topic.partitions, topic.replicas, _settings(topic.config)] for topic in topics]
        print_rows(_COLUMNS, rows, output, None)
    return DONE if topics else FOUND


def _settings(config: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())
