"""The ledger sink with a replaced consumer: which partitions it pauses, and which losses it counts."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.worker import ledger_sink
from streamgauge.worker.ledger_sink import LedgerSink
from streamgauge.worker.settings import Stored, WorkerSettings
from tests.metrics.pages import read_page


class Consumer:
    """The part of FaustConsumer that the sink uses, for partition 0. `end`: of its log."""

    topic = "sg.records"
    generation, assignment_epoch = 1, (1, 1, 1)

    def __init__(self) -> None:
        self.paused: set[int] = set()
        self.committed: dict[int, int] = {}

    def on_revoked(self, callback: Callable[[], Any]) -> None:
        pass

    def assigned(self) -> set[int]:
        return {0}

    async def is_current(self) -> bool:
        return True

    def end(self, partition: int) -> int | None:
        return None

    def pause(self, partition: int) -> None:
        self.paused.add(partition)

    def resume(self, partition: int) -> None:
        self.paused.discard(partition)

    async def commit(self, offsets: dict[int, int]) -> dict[int, int]:
        self.committed |= offsets
        return offsets


class Log:
    """A log that begins at `begin`; `committed`: the group's offset, None without one."""

    def __init__(self, committed: int | None, begin: int) -> None:
        self._committed, self._begin = committed, begin

    async def committed(self, topic: str) -> dict[int, int]:
        return {} if self._committed is None else {0: self._committed}

    async def begins(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        return {0: self._begin}

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        return {0: 1000}


class Sink:
    """A sink whose partition is assigned by `on_recovered`."""

    def __init__(self, committed: int | None, begin: int, unreadable: Sequence[int] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self.failed: list[BaseException] = []
        self.consumer = Consumer()
        metrics: Any = SimpleNamespace(add=lambda name, value=1.0, **labels: self.counts.update({name: value}))
        store: Any = SimpleNamespace(insert=lambda records: Stored(len(records), 0, 0, unreadable))
        state: Any = SimpleNamespace(on_recover=lambda callback: None, on_recovery_restart=lambda callback: None)
        self.sink = LedgerSink(WorkerSettings("127.0.0.1:1", Path("unused")), store, metrics, self.failed.append)
        log: Any = Log(committed, begin)
        consumer: Any = self.consumer
        self.commits = self.sink.connect(consumer, state, log, dead_letters=None)  # type: ignore[arg-type]

    def put(self, offset: int) -> None:
        self.sink.receive(
            SimpleNamespace(partition=0, offset=offset, generation_id=1, key=b"", value=b"{}", headers=())
        )

    @property
    def lost(self) -> int:
        return self.counts[table.LOG_GAP_MESSAGES.name]


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(5):
            await work

    asyncio.run(limited())


def test_a_paused_partition_is_fetched_again_when_no_queued_record_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_sink, "FULL", 4)
    monkeypatch.setattr(ledger_sink, "LOW", 2)

    async def work() -> None:
        made = Sink(committed=100, begin=0)
        await made.sink.on_recovered()
        for offset in range(5):  # read before
            made.put(offset)
        assert made.consumer.paused == {0}
        running = asyncio.create_task(made.sink.run())
        while made.consumer.paused:  # noqa: ASYNC110 - the sink takes the queue by itself
            await asyncio.sleep(0.01)
        running.cancel()
        made.sink.close()
        assert made.failed == []

    run(work())


def test_the_rows_of_each_result_begin_at_0() -> None:
    """The first batch after a restart made the series, so no increase of it was seen: LedgerStoresNothing fired."""

    async def work() -> None:
        metrics, anything = Metrics(), cast("Any", None)
        LedgerSink(WorkerSettings("127.0.0.1:1", Path("unused")), anything, metrics, anything).close()
        page = read_page(metrics.render())
        assert [page.value(table.LEDGER_ROWS.name, result=one) for one in ("new", "same", "different")] == [0, 0, 0]

    run(work())


@pytest.mark.parametrize(("committed", "lost"), [(None, 0), (100, 400), (500, 0), (600, 0)])
def test_deleted_records_count_as_lost_only_above_a_committed_offset(committed: int | None, lost: int) -> None:
    """Without one, the ledger may have them all: the group's offsets expire, or an operator deletes them."""

    async def work() -> None:
        made = Sink(committed, begin=500)
        await made.sink.on_recovered()
        assert made.lost == lost
        await made.commits.flush()
        assert made.consumer.committed == ({0: 500} if lost else {}), "so that they are not counted again"
        made.sink.close()
        assert made.failed == []

    run(work())


def test_the_sentence_about_an_internal_error_does_not_quote_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser's error quotes the record that it read."""
    monkeypatch.setattr(ledger_sink, "version_of", lambda _: int("a prompt"))

    async def work() -> None:
        made = Sink(committed=0, begin=0, unreadable=[0])
        await made.sink.on_recovered()
        made.put(0)
        await made.sink.run()
        assert [str(error) for error in made.failed] == ["internal error while storing records: ValueError"]
        made.sink.close()

    run(work())
