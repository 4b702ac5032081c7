"""The floor: a bare loop around aiokafka that reads bundles and assembles streams, and does nothing else.

It has no group and no state, writes no records and acknowledges nothing, so a crash loses everything. It decodes and
assembles with the same functions as the worker, on uvloop. It prints the number of records whenever it has made more.

    python -m bench.worker_floor BOOTSTRAP TOPIC PARTITION...
"""

import sys
from collections.abc import Sequence

import uvloop
from aiokafka import AIOKafkaConsumer, TopicPartition

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import decode_bundle


async def read(bootstrap: str, topic: str, partitions: Sequence[int]) -> None:
    """Reads until it is killed."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    await consumer.start()
    topic_partitions = [TopicPartition(topic, number) for number in partitions]
    consumer.assign(topic_partitions)
    assemblers = {number: Assembler() for number in partitions}
    made = 0
    print("ready", flush=True)
    while True:
        before = made
        for topic_partition, messages in (await consumer.getmany(timeout_ms=1_000)).items():
            assembler = assemblers[topic_partition.partition]
            for message in messages:
                made += len(assembler.apply(message.offset, message.timestamp, decode_bundle(message.value)))
        if made > before:
            print(made, flush=True)


if __name__ == "__main__":
    uvloop.run(read(sys.argv[1], sys.argv[2], [int(partition) for partition in sys.argv[3:]]))
