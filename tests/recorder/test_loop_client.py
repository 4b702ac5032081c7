"""A recorder that cannot be reached, is slow, or is killed: bytes unchanged, memory bounded, every read counted."""

import time
from pathlib import Path

import pytest

from streamgauge.recorder.loop_client import BATCH_BYTES, QUIET_S, RESERVE
from streamgauge.recorder.protocol import ExchangeEnding, ReadsDropped, RequestStarted, ResponseRead
from streamgauge.spool.read_counters import Incident, read_balance
from tests.taps.proxy.rig import (
    PATIENCE_S,
    RawRecorder,
    RawUpstream,
    RunningRelay,
    answering,
    arrived,
    chunked,
    receive,
    settings_for,
)

pytestmark = pytest.mark.slow

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(
    *[b"data: %d\n\n" % number for number in range(20)]
)
BIG = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 3000000\r\n\r\n" + bytes(3_000_000)
POST = b"POST /v1/messages HTTP/1.1\r\nHost: c\r\nContent-Length: 2\r\n\r\n{}"


def ask(relay: RunningRelay, answer: bytes, times: int = 1) -> None:
    with relay.connect() as client:
        for _ in range(times):
            client.sendall(POST)
            assert receive(client, len(answer)) == answer


def test_a_recorder_that_starts_later_gets_everything(tmp_path: Path) -> None:
    recorder = RawRecorder(tmp_path / "recorder.sock")
    with RawUpstream(answering(*[SSE] * 5)) as upstream, RunningRelay(settings_for(tmp_path, upstream.url)) as relay:
        ask(relay, SSE, 5)
        with recorder:
            messages = recorder.ended(5)
            assert arrived(messages) == SSE * 5
            balance = read_balance(tmp_path / "counters")
            assert balance.seen == balance.waiting == sum(isinstance(message, ResponseRead) for message in messages)


def test_nothing_is_sent_to_a_socket_of_another_user(tmp_path: Path) -> None:
    """The socket's directory may have been removed and created again by another user."""
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    with RawUpstream(answering(SSE)) as upstream, RawRecorder(place / "recorder.sock") as recorder:
        settings = settings_for(tmp_path, upstream.url, recorder_socket=str(place / "recorder.sock"))
        with RunningRelay(settings) as relay:
            ask(relay, SSE)
            time.sleep(1.5)  # it has tried to connect again
            assert recorder.messages == []
            place.chmod(0o700)
            assert arrived(recorder.ended(1)) == SSE


def test_a_recorder_that_never_starts_costs_only_reads(tmp_path: Path) -> None:
    with RawUpstream(answering(*[BIG] * 5)) as upstream:
        settings = settings_for(tmp_path, upstream.url, capture_buffer_bytes=2_000_000)
        with RunningRelay(settings) as relay:
            ask(relay, BIG, 5)
            held = relay.call(lambda: relay.relay.recorder.held)
            assert 1_500_000 < held < 2_600_000
            balance = read_balance(tmp_path / "counters")
            assert balance.dropped["recorder_behind"] > 0
    balance = read_balance(tmp_path / "counters")
    assert balance.waiting == 0 and balance.dropped["recorder_gone"] > 0


def test_the_reserve_is_bounded_as_well(tmp_path: Path) -> None:
    """Beginnings and ends of the streams have more than the bound in all, and their reads are dropped from the first on."""
    capacity, streams = 50_000, 2_500
    most = capacity + capacity // RESERVE + 2 * BATCH_BYTES  # what is gathered for a batch is not counted yet
    with RawUpstream(answering(*[SSE] * streams)) as upstream:
        settings = settings_for(tmp_path, upstream.url, capture_buffer_bytes=capacity)
        with RunningRelay(settings) as relay:
            ask(relay, SSE, streams)
            # What is gathered for a batch counts once the batch is closed.
            deadline = time.monotonic() + PATIENCE_S
            while (held := relay.call(lambda: relay.relay.recorder.held)) <= capacity and time.monotonic() < deadline:
                time.sleep(0.01)
            assert capacity < held < most
            balance = read_balance(tmp_path / "counters")
            assert balance.seen >= streams and balance.dropped["recorder_behind"] > 100


def test_a_slow_recorder_delays_no_client_and_gets_the_rest_later(tmp_path: Path) -> None:
    with RawRecorder(tmp_path / "recorder.sock") as recorder, RawUpstream(answering(*[BIG] * 4)) as upstream:
        settings = settings_for(tmp_path, upstream.url, capture_buffer_bytes=4_000_000)
        with RunningRelay(settings) as relay:
            recorder.hold()
            begun = time.monotonic()
            ask(relay, BIG, 4)
            assert time.monotonic() - begun < 10
            refused = relay.incidents(Incident.STREAM_OVER_SHARE)  # whole: the last ones
            assert 0 < refused < 4
            recorder.release()
            messages = recorder.ended(4 - refused)
    reads = sum(isinstance(message, ResponseRead) for message in messages)
    dropped = sum(message.reads for message in messages if isinstance(message, ReadsDropped))
    assert sum(isinstance(message, RequestStarted) for message in messages) == 4 - refused
    balance = read_balance(tmp_path / "counters")
    behind = balance.dropped["recorder_behind"]
    assert behind >= dropped + refused
    assert (balance.seen, balance.waiting) == (reads + behind, reads)


def test_a_restarted_recorder_is_connected_and_open_streams_continue(tmp_path: Path) -> None:
    recorder = RawRecorder(tmp_path / "recorder.sock")
    recorder.start()
    with RawUpstream(answering(*[SSE] * 30)) as upstream, RunningRelay(settings_for(tmp_path, upstream.url)) as relay:
        ask(relay, SSE, 2)
        recorder.ended(2)
        recorder.stop()
        ask(relay, SSE, 3)
        again = RawRecorder(tmp_path / "recorder.sock")
        with again:
            messages = again.wait(lambda some: sum(isinstance(one, ExchangeEnding) for one in some) >= 3)
            assert arrived(messages) == SSE * 3
            ask(relay, SSE, 2)
            assert arrived(again.ended(5)) == SSE * 5


def test_a_partly_sent_batch_is_sent_again_whole(tmp_path: Path) -> None:
    with RawUpstream(answering(*[BIG] * 2)) as upstream, RunningRelay(settings_for(tmp_path, upstream.url)) as relay:
        first = RawRecorder(tmp_path / "recorder.sock")
        first.start()
        time.sleep(1.2)
        first.hold()
        ask(relay, BIG)  # the socket's buffer fills within a batch
        time.sleep(0.2)
        first.stop()
        with RawRecorder(tmp_path / "recorder.sock") as second:
            messages = second.ended()
            ask(relay, BIG)
            second.ended(2)
        tail = arrived(messages)
        assert tail and BIG.endswith(tail)


def test_t10_a_stop_waits_for_a_slow_recorder_until_the_drains_deadline(tmp_path: Path) -> None:
    """It once waited for two seconds only, and dropped the rest without a log line."""
    lines: list[str] = []
    with RawRecorder(tmp_path / "recorder.sock") as recorder, RawUpstream(answering(*[BIG] * 4)) as upstream:
        with RunningRelay(settings_for(tmp_path, upstream.url), say=lines.append) as relay:
            recorder.hold()
            ask(relay, BIG, 4)
            recorder.pause_s = 0.25  # some fifty batches
            recorder.release()
            relay.drain(50.0)
        messages = recorder.ended(4)
    assert arrived(messages) == BIG * 4
    balance = read_balance(tmp_path / "counters")
    assert (sum(balance.dropped.values()), lines) == (0, [])


def test_t10_a_stop_logs_what_was_dropped_for_a_recorder_that_reads_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    with (
        RawRecorder(tmp_path / "recorder.sock") as recorder,
        RawUpstream(answering(*[BIG] * 4)) as upstream,
        RunningRelay(settings_for(tmp_path, upstream.url), say=lines.append) as relay,
    ):
        recorder.hold()
        ask(relay, BIG, 4)
        began = time.monotonic()
        relay.drain(50.0)
        assert QUIET_S <= time.monotonic() - began < 30.0
    lost = read_balance(tmp_path / "counters").dropped["recorder_gone"]
    (sentence,) = lines
    assert lost > 0
    assert sentence.startswith(f"{lost} reads are discarded (recorder_gone)")
