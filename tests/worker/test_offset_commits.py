"""Commits of offsets: each success is counted, and what the broker does not accept is tried again."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.offset_commits import OffsetCommits
from tests.metrics.pages import read_page


class Consumer:
    """`accepts`: whether the broker accepts commits now; `ours`: the partitions that are assigned."""

    def __init__(self) -> None:
        self.accepts = True
        self.ours = {0}
        self.committed: list[dict[int, int]] = []

    async def commit(self, offsets: Mapping[int, int]) -> dict[int, int] | None:
        self.committed.append(dict(offsets))
        sent = {partition: offset for partition, offset in offsets.items() if partition in self.ours}
        return sent if self.accepts else None


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
        assert commits.committed == {0: 7}
        commits.forget()
        assert commits.committed == {}

    asyncio.run(run())


def test_a_commit_that_was_not_sent_is_not_counted() -> None:
    """The partitions had moved away in the meantime, so nothing was sent to the broker."""
    consumer, metrics = Consumer(), Metrics()
    commits = OffsetCommits(cast("FaustConsumer", cast("Any", consumer)), metrics)

    async def run() -> None:
        commits.done(1, 5)
        await commits.flush()
        await commits.flush()

    asyncio.run(run())
    assert (consumer.committed, commits.committed) == ([{1: 5}], {})
    assert read_page(metrics.render()).value("streamgauge_worker_commits_total") == 0
