"""Batches to a recorder that is there, slow, away, or gone amid one: in order, whole, and every read accounted for."""

import socket
import threading
import time
from pathlib import Path

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import ExchangeEnded, Message, RequestStarted, ResponseRead
from streamgauge.spool.read_counters import Counters, read_balance, read_incidents
from streamgauge.taps.inprocess import outbox as outbox_module
from streamgauge.taps.inprocess.outbox import BATCH_BYTES, MESSAGE_BYTES, MessageBatches
from tests.taps.inprocess.rig import PATIENCE_S, wait_until
from tests.taps.proxy.rig import RawRecorder, arrived, receive


def outbox_at(folder: Path, capacity: int = 1 << 30) -> MessageBatches:
    counters = Counters(folder / "counters", "app-0")
    return MessageBatches(lambda: str(folder / "recorder.sock"), counters, capacity)


def put(outbox: MessageBatches, *data: bytes) -> list[Message]:
    messages: list[Message] = [ResponseRead(1, at, one) for at, one in enumerate(data)]
    for message in messages:
        assert isinstance(message, ResponseRead)
        outbox.counters.seen(1)
        outbox.put(message, len(message.data))
    return messages


def send_all(outbox: MessageBatches) -> None:
    wait_until(lambda: outbox.connect() and outbox.send())


def test_everything_arrives_in_order(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    with RawRecorder(tmp_path / "recorder.sock") as recorder:
        told = put(outbox, *[bytes([number]) * 999 for number in range(250)])
        assert outbox.held == 250 * (999 + MESSAGE_BYTES)
        assert outbox.waiting_reads == 250
        send_all(outbox)
        recorder.wait(lambda messages: len(messages) == 250)
        assert recorder.messages == told
    outbox.give_up()
    assert (outbox.held, outbox.empty, outbox.connected) == (0, True, False)
    assert (
        read_balance(tmp_path / "counters").waiting == 250
    )  # handed over: what becomes of them is the recorder's to say


def test_nothing_is_handed_over_where_another_user_could_listen(tmp_path: Path) -> None:
    """A link may lead there: what an application's taps capture is not masked yet."""
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    outbox = outbox_at(place)
    with RawRecorder(place / "recorder.sock") as recorder:
        told = put(outbox, b"captured")
        assert not outbox.connect()
        place.chmod(0o700)
        send_all(outbox)
        recorder.wait(lambda messages: messages == told)
    outbox.give_up()


def test_full_and_overfull(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path, capacity=8_000)
    put(outbox, bytes(8_000 - MESSAGE_BYTES))
    assert (outbox.full, outbox.overfull) == (False, False)
    put(outbox, b"")
    assert (outbox.full, outbox.overfull) == (True, False)
    put(outbox, bytes(1_000))
    assert (outbox.full, outbox.overfull) == (True, True)


def test_a_recorder_that_is_away_is_no_error(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    put(outbox, b"x")
    assert not outbox.connect()
    assert not outbox.send()
    (tmp_path / "recorder.sock").write_bytes(b"no socket")
    assert not outbox.connect()


def test_a_path_that_is_too_long_is_no_error(tmp_path: Path) -> None:
    with Counters(tmp_path / "counters", "app-0") as counters:
        assert not MessageBatches(lambda: str(tmp_path / ("x" * 200)), counters).connect()


def test_a_slow_recorder_is_waited_for_a_moment_only(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    with RawRecorder(tmp_path / "recorder.sock") as recorder:
        recorder.hold()
        told = put(outbox, *[bytes(BATCH_BYTES)] * 40)
        assert outbox.connect()
        assert not outbox.send()
        assert outbox.connected
        recorder.release()
        send_all(outbox)
        assert recorder.wait(lambda messages: len(messages) == 40) == told
        outbox.disconnect()


def test_a_batch_that_was_taken_in_part_comes_again_whole(tmp_path: Path) -> None:
    outbox, path = outbox_at(tmp_path), tmp_path / "recorder.sock"
    large = bytes(range(256)) * 8_000  # more than a socket holds
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        put(outbox, b"first")
        assert outbox.connect()
        assert outbox.send()
        put(outbox, large)
        assert not outbox.send()
        one, _ = listening.accept()
        receive(one, 100_000)
        one.close()
    path.unlink()
    wait_until(lambda: not outbox.send() and not outbox.connected)
    put(outbox, b"last")
    with RawRecorder(path) as recorder:
        send_all(outbox)
        recorder.wait(lambda messages: len(messages) == 2)
        assert arrived(recorder.messages) == large + b"last"
        outbox.disconnect()
    assert outbox.empty


def test_what_does_not_go_out_is_dropped_when_it_is_given_up(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    put(outbox, *[bytes(50_000)] * 7)
    outbox.put(ExchangeEnded(1, 5, Ending.COMPLETE), 0)
    outbox.give_up()
    balance = read_balance(tmp_path / "counters")
    assert (balance.seen, balance.waiting, balance.dropped["recorder_gone"]) == (7, 0, 7)
    assert (outbox.held, outbox.empty) == (0, True)


def test_a_batch_that_cannot_be_encoded_holds_up_no_other(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    outbox.counters.seen(1)
    outbox.put(ResponseRead(1, 2**100, b"x"), 1)
    outbox.put(RequestStarted(object(), None, None, None, "", ""), BATCH_BYTES)  # type: ignore[arg-type]
    put(outbox, b"fine")
    with RawRecorder(tmp_path / "recorder.sock") as recorder:
        send_all(outbox)
        assert arrived(recorder.wait(lambda messages: len(messages) == 1)) == b"fine"
        outbox.disconnect()
    assert read_balance(tmp_path / "counters").dropped["capture_fault"] == 1
    assert read_incidents(tmp_path / "counters")["capture_fault"] == 1


def test_new_books_take_over_what_waits(tmp_path: Path) -> None:
    outbox = outbox_at(tmp_path)
    put(outbox, *[bytes(50_000)] * 3)
    (tmp_path / "counters").unlink()
    with Counters(tmp_path / "counters", "app-5") as counters:
        outbox.count_in(counters)
        outbox.give_up()
    balance = read_balance(tmp_path / "counters")
    assert (balance.seen, balance.waiting, balance.dropped["recorder_gone"]) == (3, 0, 3)


def test_a_send_does_not_hold_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a send waits for a recorder that takes nothing, the application's threads go on."""
    monkeypatch.setattr(outbox_module, "PATIENCE_S", 0.5)
    outbox = outbox_at(tmp_path)
    with RawRecorder(tmp_path / "recorder.sock") as recorder:
        recorder.hold()
        put(outbox, bytes(3_000_000))
        assert outbox.connect()
        sending = threading.Thread(target=outbox.send)
        sending.start()
        counted = 0
        while sending.is_alive():
            counted += 1
            time.sleep(0.001)
        assert counted > 10
        outbox.disconnect()
        sending.join(PATIENCE_S)
