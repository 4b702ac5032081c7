"""The page of a tap with Kafka: it assembles while someone looks, on a real spool."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.limits import Limits
from streamgauge.live import tap_watch
from streamgauge.live.answers import Overview
from streamgauge.live.tap_watch import TapWatch
from streamgauge.live.view import LiveView
from streamgauge.recorder.bundler import reads_of
from streamgauge.spool import NewRow, Row, Spool
from tests.live.streams import BEGAN, SECOND, segment, token
from tests.streams import INSTANCE, MS, bundles_of, chat_segments

Result = TypeVar("Result")
PATIENCE_S = 20.0


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with closing(Spool(tmp_path / "spool.sqlite")) as one:
        yield one


@pytest.fixture
def watch(spool: Spool) -> Iterator[TapWatch]:
    one = TapWatch("tap", spool, Limits())
    yield one
    one.stop()


def put(spool: Spool, *bundles: Bundle) -> None:
    spool.put([NewRow(bundle.slot, reads_of(bundle), encode_bundle(bundle)) for bundle in bundles])


def asked(watch: TapWatch, until: Callable[[Overview], bool] = lambda _: True) -> Overview:
    """The overview, once `until` holds."""

    def question(view: LiveView) -> Overview:
        return view.overview()

    deadline = time.monotonic() + PATIENCE_S
    while not until(answer := asyncio.run(watch.ask(question))):
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)
    return answer


def row(number: int, bundle: Bundle) -> Row:
    return Row(number, bundle.slot, reads_of(bundle), encode_bundle(bundle))


def test_nothing_runs_until_someone_asks(watch: TapWatch) -> None:
    before = set(threading.enumerate())  # threads of earlier tests may end meanwhile
    for number, bundle in enumerate(bundles_of(chat_segments(1)), 1):
        watch.put(row(number, bundle))
    assert not set(threading.enumerate()) - before
    assert asked(watch).open.total == 0
    assert len(set(threading.enumerate()) - before) == 1


def test_rows_of_the_shipper_are_assembled_each_once(watch: TapWatch) -> None:
    asked(watch)
    rows = [row(number, bundle) for number, bundle in enumerate(bundles_of(chat_segments(1), per_bundle=2), 1)]
    for one in (*rows, *rows):
        watch.put(one)
    answer = asked(watch, lambda found: found.hour.streams == 1)
    assert answer.process == "tap"
    assert [one.outcome for one in answer.worst.recent] == ["completed"]
    assert answer.worst.first_token[0].first_token_s is not None


def test_a_stream_that_had_begun_is_shown_and_not_measured(watch: TapWatch) -> None:
    asked(watch)
    middle = segment(1, 5, [token(3 * SECOND), token(4 * SECOND)])
    watch.put(row(7, Bundle(INSTANCE, 0, 30, BEGAN + 4 * SECOND, [middle])))
    [one] = asked(watch, lambda found: found.open.total == 1).open.streams
    assert (one.upstream, one.token_events, one.first_token_s, one.silent_s) == (None, 2, None, None)
    assert one.ticks is not None
    rest = [segment(1, 6, [token(5 * SECOND)]), *chat_segments(2)]
    watch.put(row(8, Bundle(INSTANCE, 0, 31, BEGAN + 5 * SECOND, rest)))
    answer = asked(watch, lambda found: found.hour.streams == 1)
    assert [one.token_events for one in answer.open.streams] == [3]


def test_while_the_broker_is_away_the_spool_is_read_and_not_changed(
    watch: TapWatch, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tap_watch, "QUIET_S", 0.0)
    put(spool, *bundles_of(chat_segments(1)))
    before = spool.waiting()
    assert asked(watch, lambda found: found.hour.streams == 1).missed_bundles == 0
    assert spool.waiting() == before
    put(spool, *bundles_of(chat_segments(2), instance=bytes(range(1, 17))))
    asked(watch, lambda found: found.hour.streams == 2)


def test_a_question_does_not_wait_for_the_next_bundle(watch: TapWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(watch)
    monkeypatch.setattr(tap_watch, "POLL_S", 60.0)
    time.sleep(0.3)  # until the thread waits so long
    assert asked(watch).open.total == 0
    time.sleep(0.3)
    began_s = time.monotonic()
    watch.stop()
    assert time.monotonic() - began_s < 30.0


def test_the_thread_ends_when_nobody_asks_any_more(watch: TapWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_watch, "LINGER_S", 0.2)
    before = threading.active_count()
    asked(watch)
    deadline = time.monotonic() + PATIENCE_S
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert asked(watch).open.total == 0, "the next request starts it again"


def test_too_many_bundles_are_missed_and_counted(watch: TapWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(watch)
    monkeypatch.setattr(tap_watch, "WAITING_BYTES", 0)
    watch.put(row(1, bundles_of(chat_segments(1))[0]))
    asked(watch, lambda found: found.missed_bundles == 1)


def test_a_row_that_cannot_be_read_is_skipped(watch: TapWatch) -> None:
    asked(watch)
    watch.put(Row(1, 0, 1, b"no bundle"))
    for number, bundle in enumerate(bundles_of(chat_segments(1)), 2):
        watch.put(row(number, bundle))
    asked(watch, lambda found: found.hour.streams == 1)


def test_a_stopped_watch_starts_no_thread(spool: Spool) -> None:
    watch = TapWatch("tap", spool, Limits())
    watch.stop()
    before = threading.active_count()
    assert asked(watch).open.total == 0
    assert threading.active_count() == before


def test_ticks_of_silence_follow_the_taps_clock(watch: TapWatch) -> None:
    asked(watch)
    watch.put(row(1, Bundle(INSTANCE, 0, 0, BEGAN + 100 * MS, [segment(1, 0, [token(100 * MS)])])))
    watch.put(row(2, Bundle(INSTANCE, 0, 1, BEGAN + 60 * SECOND)))
    answer = asked(watch, lambda found: found.open.silent == 1)
    assert answer.open.streams[0].silent_s == pytest.approx(59.9)
