"""Batches to a recorder that runs, is slow, cannot be reached, or stops within one: in order, complete, and every read
counted.
"""

import socket
from pathlib import Path

import pytest

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.client import MESSAGE_BYTES, DirectClient, RecorderClient, stream_numbers
from streamgauge.recorder.protocol import Encoded, ExchangeEnding, Message, RequestStarted, ResponseRead
from streamgauge.spool.read_counters import Counters, DropReason, read_balance, read_incidents
from tests.running import wait_for
from tests.taps.proxy.rig import RawRecorder, arrived, receive

BATCH_BYTES = 64 * 1024


def client_at(folder: Path, timeout_s: float = 0.02) -> RecorderClient:
    counters = Counters(folder / "counters", "app-0")
    return RecorderClient(lambda: str(folder / "recorder.sock"), counters, BATCH_BYTES, timeout_s)


def put(client: RecorderClient, *data: bytes) -> list[Message]:
    for at, one in enumerate(data):
        client.put_read(1, at, one)
    return [ResponseRead(1, at, one) for at, one in enumerate(data)]


def send(client: RecorderClient) -> bool:
    """Sends what the socket takes. Returns True if that is everything."""
    client.close_batch()
    try:
        while client.connected and not client.empty and client.send_batch():
            pass
    except OSError:
        client.disconnect()
    return client.empty


def send_all(client: RecorderClient) -> None:
    wait_for(lambda: client.connect() and send(client), "all is sent")


def test_everything_arrives_in_order(tmp_path: Path) -> None:
    client = client_at(tmp_path)
    with RawRecorder(tmp_path / "recorder.sock") as recorder:
        reported = put(client, *[bytes([number]) * 999 for number in range(250)])
        more: list[Message | Encoded] = [ResponseRead(2, at, b"abc") for at in range(3)]
        client.put_reads(more, 9)
        assert client.waiting_reads == 253
        client.close_batch()
        assert client.held == 250 * (999 + MESSAGE_BYTES) + 3 * (3 + MESSAGE_BYTES)
        send_all(client)
        assert recorder.wait(lambda messages: len(messages) == 253) == [*reported, *more]
    assert (client.held, client.empty, client.discard(DropReason.RECORDER_GONE)) == (0, True, 0)
    client.disconnect()
    assert not client.connected
    # They were sent to the recorder, which accounts for them.
    assert read_balance(tmp_path / "counters").waiting == 253


def test_nothing_is_sent_to_a_socket_of_another_user(tmp_path: Path) -> None:
    """A symbolic link may lead there, and what a tap captures is not masked yet."""
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    client = client_at(place)
    with RawRecorder(place / "recorder.sock") as recorder:
        reported = put(client, b"captured")
        assert not client.connect()
        place.chmod(0o700)
        send_all(client)
        recorder.wait(lambda messages: messages == reported)
        client.disconnect()


def test_a_recorder_that_cannot_be_reached_does_not_raise(tmp_path: Path) -> None:
    client = client_at(tmp_path)
    put(client, b"x")
    assert not client.connect()
    (tmp_path / "recorder.sock").write_bytes(b"no socket")
    assert not client.connect()
    assert not client.empty


def test_a_path_that_is_too_long_does_not_raise(tmp_path: Path) -> None:
    with Counters(tmp_path / "counters", "app-0") as counters:
        assert not RecorderClient(lambda: str(tmp_path / ("x" * 200)), counters, BATCH_BYTES).connect()


@pytest.mark.parametrize("timeout_s", [0.0, 0.02])
def test_a_slow_recorder_gets_the_rest_later(tmp_path: Path, timeout_s: float) -> None:
    client = client_at(tmp_path, timeout_s)
    with RawRecorder(tmp_path / "recorder.sock") as recorder:
        recorder.hold()
        reported = put(client, *[bytes(BATCH_BYTES)] * 40)
        assert client.connect()
        assert not send(client)
        assert client.connected
        recorder.release()
        send_all(client)
        assert recorder.wait(lambda messages: len(messages) == 40) == reported
        client.disconnect()


def test_a_partly_sent_batch_is_sent_again_whole(tmp_path: Path) -> None:
    client, path = client_at(tmp_path), tmp_path / "recorder.sock"
    large = bytes(range(256)) * 8_000  # more than a socket holds
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        put(client, b"first")
        assert client.connect()
        assert send(client)
        put(client, large)
        assert not send(client)
        one, _ = listening.accept()
        receive(one, 100_000)
        one.close()
    path.unlink()
    wait_for(lambda: not send(client) and not client.connected, "the end of the connection is seen")
    put(client, b"last")
    with RawRecorder(path) as recorder:
        send_all(client)
        recorder.wait(lambda messages: len(messages) == 2)
        assert arrived(recorder.messages) == large + b"last"
        client.disconnect()
    assert client.empty


def test_discarded_reads_are_counted(tmp_path: Path) -> None:
    client = client_at(tmp_path)
    put(client, *[bytes(50_000)] * 7)
    client.put(ExchangeEnding(1, 5, Ending.COMPLETE), 0)
    assert client.discard(DropReason.RECORDER_GONE) == 7
    balance = read_balance(tmp_path / "counters")
    assert (balance.seen, balance.waiting, balance.dropped["recorder_gone"]) == (7, 0, 7)
    assert (client.held, client.empty) == (0, True)


def test_a_batch_that_cannot_be_encoded_blocks_no_other(tmp_path: Path) -> None:
    client = client_at(tmp_path)
    client.put_read(1, 2**100, b"x")
    client.put(RequestStarted(object(), None, None, None, "", ""), BATCH_BYTES)  # type: ignore[arg-type]
    put(client, b"fine")
    with RawRecorder(tmp_path / "recorder.sock") as recorder:
        send_all(client)
        assert arrived(recorder.wait(lambda messages: len(messages) == 1)) == b"fine"
        client.disconnect()
    assert read_balance(tmp_path / "counters").dropped["capture_fault"] == 1
    assert read_incidents(tmp_path / "counters")["capture_fault"] == 1


def test_other_counters_take_over_the_waiting_reads(tmp_path: Path) -> None:
    client = client_at(tmp_path)
    put(client, *[bytes(50_000)] * 3)
    (tmp_path / "counters").unlink()
    with Counters(tmp_path / "counters", "app-5") as counters:
        client.use_counters(counters)
        client.discard(DropReason.RECORDER_GONE)
    balance = read_balance(tmp_path / "counters")
    assert (balance.seen, balance.waiting, balance.dropped["recorder_gone"]) == (3, 0, 3)


def test_a_dropped_read_is_also_counted_as_seen(tmp_path: Path) -> None:
    client = client_at(tmp_path)
    put(client, b"x")
    client.count_dropped(DropReason.RECORDER_BEHIND)
    client.count_fault()
    balance = read_balance(tmp_path / "counters")
    assert (balance.seen, balance.dropped["recorder_behind"], balance.waiting) == (2, 1, 1)
    assert read_incidents(tmp_path / "counters")["capture_fault"] == 1


def test_a_read_that_cannot_be_added_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object) -> None:
        raise MemoryError

    client = client_at(tmp_path)
    client.full = True
    assert not client.put_read(1, 2, b"x")
    client.full = False
    with monkeypatch.context() as broken:
        broken.setattr("streamgauge.recorder.client.ResponseRead", raising)
        with pytest.raises(MemoryError):
            client.put_read(1, 2, b"x")
    assert (client.empty, read_balance(tmp_path / "counters").seen) == (True, 0)


def test_a_direct_client_passes_each_message_on() -> None:
    messages: list[Message] = []
    client = DirectClient(messages.append)
    stream = client.new_stream()
    assert client.new_stream() != stream
    client.put_read(stream, None, b"x")
    client.put(ExchangeEnding(stream, 5, Ending.COMPLETE), 0)
    client.count_dropped(DropReason.RECORDER_BEHIND)
    client.count_fault()
    assert messages == [ResponseRead(stream, None, b"x"), ExchangeEnding(stream, 5, Ending.COMPLETE)]
    assert not client.full and not client.overfull


def test_stream_numbers_of_a_process_fit_and_differ() -> None:
    numbers = stream_numbers()
    first, second = next(numbers), next(numbers)
    assert 0 <= first < second < 2**63
