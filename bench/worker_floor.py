"""The floor: a bare loop around aiokafka that reads bundles and puts streams together, and does nothing else.

No group, no state, no records written, nothing acknowledged: a crash loses all. It decodes and assembles by the same
functions as the worker, on uvloop. Prints how many records it has made, each time when there are more.

    python -m bench.worker_floor BOOTSTRAP TOPIC PARTITION...
"""

import sys
from collections.abc import Sequence

import uvloop
from aiokafka import AIOKafkaConsumer, TopicPartition

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import decode_bundle


async def read(bootstrap: str, topic: str, partitions: Sequence[int]) -> None:
    """Until it is killed."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    await consumer.start()
    places = [TopicPartition(topic, number) for number in partitions]
    consumer.assign(places)
    assemblers = {number: Assembler() for number in partitions}
    made = 0
    print("ready", flush=True)
    while True:
        before = made
        for place, messages in (await consumer.getmany(timeout_ms=1_000)).items():
            assembler = assemblers[place.partition]
            for message in messages:
                made += len(assembler.apply(message.offset, message.timestamp, decode_bundle(message.value)))
        if made > before:
            print(made, flush=True)


if __name__ == "__main__":
    uvloop.run(read(sys.argv[1], sys.argv[2], [int(partition) for partition in sys.argv[3:]]))
