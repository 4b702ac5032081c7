"""`python -m tests.faults.moment_worker JSON`: a worker that stops at one step of its start or of its work until the test
lets it continue.

`moment`: a key of MOMENTS; `reached`: a file that is created before that step. The step is taken once the file `reached`
+ ".go" exists. `request_timeout_s`: how long Faust waits for each step of a recovery.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.group_coordinator import CoordinatorGroupRebalance
from faust.tables.recovery import Recovery
from faust.transport.consumer import Consumer

from streamgauge.worker.assignment import Assignment
from streamgauge.worker.faust import app, recovery
from streamgauge.worker.log import Log
from streamgauge.worker.partition import Partition
from streamgauge.worker.process import Worker
from streamgauge.worker.topic_identity import TopicIdentityCheck
from tests.integration import workers

MOMENTS: dict[str, tuple[Any, str]] = {
    "log_start": (Log, "start"),
    "faust_start": (Worker, "_run_faust"),
    "subscribe": (AIOKafkaConsumer, "subscribe"),
    "join": (CoordinatorGroupRebalance, "perform_group_join"),
    "sync": (CoordinatorGroupRebalance, "_send_sync_group_request"),
    "highwaters": (Recovery, "_build_highwaters"),
    "offsets": (Recovery, "_build_offsets"),
    "seek": (recovery.Recovery, "_seek_offsets"),
    "load": (Assignment, "_load"),
    "recognition": (TopicIdentityCheck, "check"),
    "perform_seek": (Consumer, "perform_seek"),
    "rebalance": (Partition, "drop"),
    "checkpoint": (Partition, "_checkpoint"),
}


def stop_at(moment: str, reached: Path) -> None:
    """Stops the whole process when the step is about to be taken for the first time, as on a busy machine."""
    owner, name = MOMENTS[moment]
    step: Callable[..., Any] = getattr(owner, name)

    def wait() -> None:
        if not reached.exists():
            reached.touch()
            while not reached.with_suffix(".go").exists():
                time.sleep(0.005)

    async def later(*given: Any, **more: Any) -> Any:
        wait()
        return await step(*given, **more)

    def now(*given: Any, **more: Any) -> Any:
        wait()
        return step(*given, **more)

    setattr(owner, name, later if asyncio.iscoroutinefunction(step) else now)


def fail_one_metadata_request() -> None:
    """The consumer's first request for the metadata of its topics fails, although the broker works."""
    update = AIOKafkaClient._metadata_update
    failed: list[object] = []

    async def fail_once(self: AIOKafkaClient, cluster: Any, topics: Any) -> bool:
        if len(topics or ()) > 1 and not failed:
            failed.append(topics)
            return False
        return bool(await update(self, cluster, topics))

    AIOKafkaClient._metadata_update = fail_once


def main() -> int:
    arguments = json.loads(sys.argv[1])
    app._REQUEST_TIMEOUT_S = arguments.pop("request_timeout_s", app._REQUEST_TIMEOUT_S)
    moment, reached = arguments.pop("moment"), Path(arguments.pop("reached", ""))
    if moment == "metadata":
        fail_one_metadata_request()
    else:
        stop_at(moment, reached)
    sys.argv[1] = json.dumps(arguments)
    return workers.main()


if __name__ == "__main__":
    sys.exit(main())
