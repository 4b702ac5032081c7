"""The sender's thread: with a recorder, without one, with one that goes; the application waits for none of it."""

import logging
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.spool.read_counters import read_incidents
from streamgauge.taps.inprocess import background_sender as sender_module
from streamgauge.taps.inprocess import recorder_client
from streamgauge.taps.inprocess.background_sender import BackgroundSender
from streamgauge.taps.inprocess.capture import NotedStream
from tests.taps.asking import WHOLE
from tests.taps.inprocess.rig import (
    PATIENCE_S,
    Nobody,
    asking,
    balance_of,
    note_stream,
    reads_told,
    recorder_at,
    wait_until,
)
from tests.taps.proxy.rig import arrived, kinds
from tests.taps.talk import BODY, EVENTS

_OTHERS: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _others() -> None:
    """What other tests of this process left running is not looked at here."""
    _OTHERS.clear()
    _OTHERS.update(threading.enumerate())


def threads() -> list[str]:
    """Senders' threads since the test began."""
    running = set(threading.enumerate()) - _OTHERS
    return [thread.name for thread in running if thread.name == "streamgauge-sender"]


def test_streams_of_several_threads_arrive(tmp_path: Path) -> None:
    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path, Nobody())
        assert threads() == []
        running = [threading.Thread(target=lambda: [note_stream(sender) for _ in range(20)]) for _ in range(5)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        messages = recorder.ended(100)
        assert len({message.stream for message in messages}) == 100
        assert threads() == ["streamgauge-sender"]
        for stream in {message.stream for message in messages}:
            mine = [message for message in messages if message.stream == stream]
            assert kinds(mine) == WHOLE
            assert arrived(mine) == BODY
        sender.close(PATIENCE_S)
    assert threads() == []
    assert balance_of(tmp_path).seen == balance_of(tmp_path).waiting == 100 * len(EVENTS)


def test_a_recorder_that_comes_later_gets_everything(tmp_path: Path) -> None:
    agents = Nobody()
    sender = BackgroundSender(tmp_path, agents)
    open_one = note_stream(sender, end=False)
    note_stream(sender)
    wait_until(lambda: agents.asked > 0)
    with recorder_at(tmp_path) as recorder:
        recorder.ended(1)
        open_one.ended(1, Ending.COMPLETE)
        assert arrived(recorder.ended(2)) == BODY + BODY
        sender.close(PATIENCE_S)
    assert balance_of(tmp_path).dropped["recorder_gone"] == 0


def test_a_recorder_that_never_comes_costs_reads_and_nothing_else(tmp_path: Path) -> None:
    sender = BackgroundSender(tmp_path, Nobody(), capacity=50_000)
    for _ in range(30):
        note_stream(sender, *[bytes(1_000)] * 10)
    wait_until(lambda: balance_of(tmp_path).seen == 300)
    assert balance_of(tmp_path).dropped["recorder_behind"] > 200
    wait_until(lambda: sender.full)
    begun = time.monotonic()
    sender.close(PATIENCE_S)
    assert time.monotonic() - begun < PATIENCE_S / 2  # nobody expects a recorder: nobody waits for one
    balance = balance_of(tmp_path)
    assert (balance.seen, balance.waiting) == (300, 0)
    assert balance.dropped["recorder_gone"] == 300 - balance.dropped["recorder_behind"]


def test_at_the_end_one_that_is_expected_is_waited_for(tmp_path: Path) -> None:
    sender = BackgroundSender(tmp_path, Nobody(hoped=True))
    note_stream(sender)
    recorder = recorder_at(tmp_path)
    later = threading.Timer(0.5, recorder.start)
    later.start()
    sender.close(PATIENCE_S)
    later.join()
    assert arrived(recorder.ended()) == BODY
    recorder.stop()


def test_a_recorder_that_goes_is_found_again(tmp_path: Path) -> None:
    sender = BackgroundSender(tmp_path, Nobody())
    with recorder_at(tmp_path) as recorder:
        note_stream(sender)
        recorder.ended()
    open_one = note_stream(sender, end=False)
    with recorder_at(tmp_path) as recorder:
        wait_until(lambda: reads_told(recorder.messages)[0] == len(EVENTS))
        open_one.ended(5, Ending.COMPLETE)
        assert arrived(recorder.ended()) == BODY
        sender.close(PATIENCE_S)


def test_the_reads_of_a_slow_recorder_are_bounded_and_told(tmp_path: Path) -> None:
    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path, Nobody(), capacity=300_000)
        recorder.hold()
        streams = [NotedStream(sender, asking()) for _ in range(10)]
        for number in range(400):
            for stream in streams:
                stream.arrived(number, bytes(1_000))
            if number % 50 == 0:
                time.sleep(0.06)
        recorder.release()
        for stream in streams:
            stream.ended(1_000, Ending.COMPLETE)
        messages = recorder.ended(10)
        sender.close(PATIENCE_S)
    told, missing = reads_told(messages)
    assert (told + missing, told > 0, missing > 0) == (4_000, True, True)
    balance = balance_of(tmp_path)
    assert (balance.seen, balance.dropped["recorder_behind"], balance.waiting) == (4_000, missing, told)


def test_idle_it_holds_no_connection_and_takes_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "IDLE_S", 0.2)
    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path, Nobody())
        note_stream(sender)
        recorder.ended()
        wait_until(lambda: sender._courier is not None and not sender._courier.connected)
        wait_until(lambda: sender._asleep)
        turns: list[recorder_client.RecorderConnection] = []
        monkeypatch.setattr(recorder_client.RecorderConnection, "turn", lambda self, *_, **__: turns.append(self))
        time.sleep(0.5)
        assert sender._courier not in turns
        monkeypatch.undo()
        note_stream(sender)
        recorder.ended(2)
        assert recorder.connections == 2
        sender.close(PATIENCE_S)


def test_a_flush_hands_over_what_was_noted(tmp_path: Path) -> None:
    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path, Nobody())
        sender.flush(PATIENCE_S)  # nothing ever began: nothing to wait for
        for number in range(20):
            open_one = note_stream(sender, end=False)
            sender.flush(PATIENCE_S)
            balance = balance_of(tmp_path)
            assert balance.seen == (number + 1) * len(EVENTS)
            wait_until(lambda seen=balance.seen: reads_told(recorder.messages)[0] == seen)  # type: ignore[misc]
            open_one.ended(1, Ending.COMPLETE)
        sender.close(PATIENCE_S)


def test_a_data_directory_that_cannot_be_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    sender = BackgroundSender(tmp_path / "file", Nobody())
    captures = []
    for _ in range(5):
        captures.append(note_stream(sender, *EVENTS * 100))
        sender.flush(PATIENCE_S)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    assert "not captured" in caplog.text
    assert not sender._begun
    assert len(captures[-1].notes) < 10  # what is noted for nobody is not kept
    sender.close(PATIENCE_S)


def test_a_data_directory_that_is_made_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    sender = BackgroundSender(data, Nobody())
    with recorder_at(data) as recorder:
        note_stream(sender)
        recorder.ended()
    shutil.rmtree(data)
    note_stream(sender)
    with recorder_at(data) as recorder:
        assert arrived(recorder.ended()) == BODY
        sender.close(PATIENCE_S)
    balance = balance_of(data)
    assert (balance.seen, balance.waiting, sum(balance.dropped.values())) == (len(EVENTS), len(EVENTS), 0)


def test_a_bug_in_a_turn_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path, Nobody())
        note_stream(sender)
        recorder.ended()
        with monkeypatch.context() as broken:
            broken.setattr(recorder_client.RecorderConnection, "turn", raising)
            note_stream(sender)
            wait_until(lambda: read_incidents(tmp_path / "counters")["capture_fault"] > 0)
        recorder.ended(2)
        sender.close(PATIENCE_S)


def test_after_its_end_streams_go_on_uncaptured(tmp_path: Path) -> None:
    with recorder_at(tmp_path) as recorder:
        sender = BackgroundSender(tmp_path, Nobody())
        before = note_stream(sender, end=False)
        sender.close(PATIENCE_S)
        after = note_stream(sender)
        before.arrived(1, b"x")
        before.ended(2, Ending.COMPLETE)
        assert len(after.notes) < 10
        messages = recorder.wait(lambda some: reads_told(some)[0] == len(EVENTS))
    assert kinds(messages) == ["RequestStarted", "RequestBody", "RequestSent", "ResponseHead", "ResponseRead"]


def test_one_thread_however_many_begin_at_once(tmp_path: Path) -> None:
    for round_ in range(10):
        sender, barrier = BackgroundSender(tmp_path / str(round_), Nobody()), threading.Barrier(8)

        def begin(sender: BackgroundSender = sender, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            note_stream(sender)

        running = [threading.Thread(target=begin) for _ in range(8)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        wait_until(lambda: threads() == ["streamgauge-sender"])  # that of the round before may be ending
        sender.close(PATIENCE_S)
        assert balance_of(tmp_path / str(round_)).seen == 8 * len(EVENTS)


def test_numbers_of_processes_are_apart(tmp_path: Path) -> None:
    sender = BackgroundSender(tmp_path, Nobody())
    numbers = [note_stream(sender).stream for _ in range(3)]
    assert numbers == [(os.getpid() & 0xFFFFFF) << 36 | at for at in range(3)]
    sender.close(PATIENCE_S)
