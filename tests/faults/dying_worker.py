"""`python -m tests.faults.dying_worker JSON`: a worker that ends by SIGKILL between two sends of a checkpoint.

`before`: what it is about to send then, a key of KINDS; `skip`: how many of these it sends before; `durable`: whether the
broker has confirmed all earlier sends when it dies.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from streamgauge.core.assembly.assembler import PRODUCERS
from streamgauge.kafka.producer import Message, Producer
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.faust.store import key_of
from tests.integration import workers

# The steps of a checkpoint, in their order.
KINDS = ("record", "bucket", "producers", "commit")


def kind_of(message: Message) -> str | None:
    if message.topic.endswith(".records"):
        return "record"
    if message.topic.endswith(".state"):
        return "producers" if message.key == key_of(message.partition or 0, PRODUCERS) else "bucket"
    return None


def die_before(kind: str, skip: int, durable: bool) -> None:
    """Ends the process before the send or the commit of this kind that follows `skip` others."""
    sent: list[asyncio.Future[Any]] = []
    left = [skip]
    send, commit = Producer.send, FaustConsumer.commit

    async def step(now: str | None) -> None:
        if now != kind:
            return
        if left[0] == 0:
            if durable:
                with contextlib.suppress(Exception):
                    await asyncio.gather(*sent)
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    async def send_or_die(self: Producer, message: Message) -> "asyncio.Future[Any]":
        await step(kind_of(message))
        future = await send(self, message)
        sent.append(future)
        return future

    async def commit_or_die(self: FaustConsumer, offsets: Mapping[int, int]) -> dict[int, int] | None:
        if self.topic.endswith(".segments"):
            await step("commit")
        return await commit(self, offsets)

    Producer.send = send_or_die  # type: ignore[method-assign]
    FaustConsumer.commit = commit_or_die  # type: ignore[method-assign]


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    die_before(arguments.pop("before"), arguments.pop("skip"), arguments.pop("durable"))
    sys.argv[1] = json.dumps(arguments)
    sys.exit(workers.main())
