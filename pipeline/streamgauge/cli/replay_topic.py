"""`replay --kafka`: the bundles of the segments topic, assembled partition by partition as a worker does."""

import asyncio
import logging
from collections.abc import Callable, Iterator

from streamgauge.cli.kafka_options import brokers_of
from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.record import Record
from streamgauge.errors import Unavailable
from streamgauge.kafka.log_reader import LogUnreadableError, read_partition
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.topics import Job, Topics, TopicsError, segments_partitions
from streamgauge.settings.declarations import Settings
from streamgauge.taps.replay.contract import Log, Logged, Tally

# Assembles the records of a named log, and prints the notes on it.
Assemble = Callable[[str, Log, Tally], Iterator[Record]]


def records_of_topic(settings: Settings, assemble: Assemble) -> Iterator[Record]:
    """The records of the segments topic, partition by partition, from its beginning to its present end.

    Raises Unavailable.
    """
    brokers = brokers_of(settings)
    # aiokafka's log lines about an unreachable broker would repeat the error message of this command.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    topic = Topics(settings.topic_prefix).segments
    try:
        for partition in range(asyncio.run(segments_partitions(brokers, settings.topic_prefix, Job.REPLAY))):
            tally = Tally()
            yield from assemble(f"{topic}/{partition}", _log(brokers, topic, partition, tally), tally)
    except (TopicsError, LogUnreadableError) as error:
        raise Unavailable(str(error)) from None


def _log(brokers: Brokers, topic: str, partition: int, tally: Tally) -> Log:
    for message in read_partition(brokers, topic, partition):
        try:
            bundle = decode_bundle(message.value)
        except UnreadableBundle:
            tally.unreadable_rows += 1  # a worker writes it to the dead letter topic
            continue
        yield Logged(message.offset, message.log_ms, bundle)
