"""What the recovery has got of a changelog: messages that were fetched and dropped are found, and gaps are not."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.worker.faust.app import create_app
from streamgauge.worker.faust.delivery import BEFORE_ALL, DeliveryCheck, Rewind
from streamgauge.worker.settings import WorkerSettings

PLACE = TP("state", 3)


def check_after(recovered: int, *fetches: list[int]) -> DeliveryCheck:
    check = DeliveryCheck()
    check.sought(PLACE, recovered)
    for offsets in fetches:
        check.fetched(PLACE, offsets)
    return check


def test_a_compacted_changelog_has_gaps_and_nothing_is_lost() -> None:
    check = check_after(BEFORE_ALL, [3, 4, 9], [12, 40])
    assert [check.delivered(PLACE, offset) for offset in (3, 4, 9, 12, 40)] == [None] * 5


def test_the_message_after_the_lost_ones_shows_where_they_begin() -> None:
    check = check_after(BEFORE_ALL, [200, 212, 213, 229, 230])
    assert [check.delivered(PLACE, offset) for offset in (200, 212)] == [None, None]
    assert check.delivered(PLACE, 230) == Rewind(212, is_lost=True)


def test_a_fetch_that_is_dropped_whole_is_found_by_the_next_one() -> None:
    check = check_after(7, [7, 8, 9], [10, 11])
    assert check.delivered(PLACE, 10) == Rewind(7, is_lost=True)


def test_a_fetch_that_returned_nothing_may_have_lost_messages() -> None:
    check = check_after(7, [7, 8])
    check.fetch_failed([PLACE, TP("segments", 3)])
    check.fetched(PLACE, [12])
    assert [check.delivered(PLACE, 8), check.delivered(PLACE, 12)] == [None, Rewind(8, is_lost=True)]


def test_a_message_of_before_a_seek_is_no_progress_and_will_be_fetched_again() -> None:
    check = check_after(7, [7, 8, 9])
    check.sought(PLACE, 7)
    assert check.delivered(PLACE, 9) == Rewind(7, is_lost=False)
    check.fetched(PLACE, [7, 8, 9])
    assert [check.delivered(PLACE, 8), check.delivered(PLACE, 9)] == [None, None]


def test_after_a_step_back_messages_are_fetched_again() -> None:
    check = check_after(BEFORE_ALL, [0, 1, 2], [0, 1, 2, 3])
    assert [check.delivered(PLACE, offset) for offset in range(4)] == [None] * 4


def test_other_partitions_are_not_checked() -> None:
    check = check_after(7, [7, 8])
    check.fetched(TP("segments", 3), [50])
    assert check.delivered(TP("segments", 3), 51) is None


@given(st.sets(st.integers(0, 200), min_size=1), st.data())
def test_whatever_is_dropped_a_message_is_accepted_only_after_all_before_it(log: set[int], data: st.DataObject) -> None:
    """Fetches of any size, of which any messages are dropped; after each loss reading starts again, as the recovery does."""
    offsets, check, got = sorted(log), DeliveryCheck(), list[int]()
    check.sought(PLACE, BEFORE_ALL)
    place, losses = 0, 0
    while place < len(offsets):
        fetched = offsets[place : place + data.draw(st.integers(1, 9))]
        check.fetched(PLACE, fetched)
        place += len(fetched)
        for offset in fetched:
            if losses < 20 and data.draw(st.booleans()):
                losses += 1
                continue
            if (rewind := check.delivered(PLACE, offset)) is None:
                got.append(offset)
            else:
                assert rewind == Rewind(got[-1] if got else BEFORE_ALL, is_lost=True)
                check.sought(PLACE, rewind.offset)
                place = len(got)
                break
    assert got == offsets[: len(got)]
    assert losses or got == offsets


async def recovery_after(*delivered: int) -> tuple[Any, list[str]]:
    """A recovery of the state table after its changelog's messages 0 to 39 were fetched and these were delivered."""
    app: Any = create_app(WorkerSettings("127.0.0.1:1", Path("unused")), lambda message: None, None)
    recovery, table, calls = app.tables.recovery, app.tables["state"], list[str]()

    async def count(name: str) -> None:
        calls.append(name)

    table.on_recover(lambda: count("recovered"))
    table.on_recovery_restart(lambda: count("discarded"))
    consumer: Any = app.consumer
    consumer._thread.thread_loop.close()  # the thread is never started
    consumer.delivery_check.sought(PLACE, BEFORE_ALL)
    consumer.delivery_check.fetched(PLACE, range(40))
    recovery.active_highwaters[PLACE] = 39
    for offset in delivered:
        recovery.active_offsets[PLACE] = offset  # as `Recovery._slurp_changelogs` does first
        await table.on_changelog_event(SimpleNamespace(message=SimpleNamespace(tp=PLACE, offset=offset)))
    await table.on_recovery_completed({PLACE}, set())
    return recovery, calls


@pytest.mark.parametrize("lost", [range(1, 5), range(0, 39), range(13, 30), range(38, 39)], ids=str)
def test_a_recovery_that_lost_messages_starts_again_before_them(lost: range) -> None:
    async def work() -> None:
        recovery, calls = await recovery_after(*[offset for offset in range(40) if offset not in lost])
        assert calls == ["discarded"]
        assert recovery.active_offsets[PLACE] == lost[0] - 1
        assert recovery.signal_recovery_start.is_set()

    asyncio.run(work())


def test_a_recovery_that_got_all_is_complete() -> None:
    async def work() -> None:
        recovery, calls = await recovery_after(*range(40))
        assert calls == ["recovered"]
        assert not recovery.signal_recovery_start.is_set()

    asyncio.run(work())
