"""Commits of offsets: each success is counted, and what the broker does not accept is tried again."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.offset_commits import OffsetCommits
from tests.metrics.pages import read_page


class Consumer:
    """`accepts`: whether the broker accepts commits now."""

    def __init__(self) -> None:
        self.accepts = True
        self.committed: list[dict[int, int]] = []

    async def commit(self, offsets: Mapping[int, int]) -> bool:
        self.committed.append(dict(offsets))
        return self.accepts


def test_successful_commits_are_counted() -> None:
    consumer, metrics = Consumer(), Metrics()
    commits = OffsetCommits(cast("FaustConsumer", cast("Any", consumer)), metrics)

    def counted() -> float:
        return read_page(metrics.render()).value("streamgauge_worker_commits_total")

    async def run() -> None:
        await commits.flush()
        assert (consumer.committed, counted()) == ([], 0)
        commits.done(0, 5)
        commits.done(0, 7)
        consumer.accepts = False
        await commits.flush()
        assert (consumer.committed, counted()) == ([{0: 7}], 0)
        consumer.accepts = True
        await commits.flush()
        await commits.flush()
        assert (consumer.committed, counted()) == ([{0: 7}, {0: 7}], 1)

    asyncio.run(run())
