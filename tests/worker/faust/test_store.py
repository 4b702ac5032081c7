"""The store keeps the newest entry of each key in any order of arrival, and no foreign entry."""

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.assembly.assembler import PRODUCERS, TICK_INSTANCE, Assembler
from streamgauge.core.capture.segments import Bundle
from streamgauge.worker.faust.app import create_app
from streamgauge.worker.faust.store import NewestStore, key_of
from streamgauge.worker.settings import WorkerSettings


def new_store() -> NewestStore:
    app = create_app(WorkerSettings("127.0.0.1:1", Path("unused")), lambda message: None, None)
    store = app.tables["state"].data  # type: ignore[attr-defined]
    assert isinstance(store, NewestStore)
    return store


def entry_at(offset: int) -> bytes:
    assembler = Assembler()
    assembler.apply(offset, 1_000, Bundle(TICK_INSTANCE, 0, 0, 0))
    return assembler.dump(PRODUCERS)


@given(st.permutations([3, 9, 27, 81]))
def test_the_newest_wins_in_any_order(offsets: list[int]) -> None:
    store = new_store()
    for offset in offsets:
        store.apply_entry(2, key_of(2, PRODUCERS), entry_at(offset))
    assert store.entries(2) == {PRODUCERS: entry_at(81)}


def test_an_equal_offset_takes_the_later_entry() -> None:
    """The same entry is written again and again; a gap of the log changes it without moving its offset."""
    store = new_store()
    first, second = (msgspec.msgpack.encode([5, {}, closed]) for closed in ([], [b"stream"]))
    store.apply_entry(0, key_of(0, 3), first)
    store.apply_entry(0, key_of(0, 3), second)
    assert store.entries(0) == {3: second}


@given(st.one_of(st.none(), st.binary(max_size=40)), st.one_of(st.none(), st.binary(max_size=40)))
def test_nothing_that_is_not_ours_is_kept_or_raises(key: bytes | None, value: bytes | None) -> None:
    store = new_store()
    store.apply_entry(0, key, value)
    store.apply_entry(0, key_of(1, 3), entry_at(5))
    store.apply_entry(0, key_of(0, 65), entry_at(5))
    store.apply_entry(0, key_of(0, 3), None)
    store.apply_entry(0, key_of(0, 3), b"\x80\x04\x95cos\nsystem\n.")
    assert store.entries(0) == {}
