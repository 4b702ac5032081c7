"""A response handed to the pump is returned as if the relay had read it: every byte, every read, and the position in the
body.
"""

import os
import random
import select
import shutil
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.http1.framing import BodyPosition, Phase
from streamgauge.recorder.loop_client import LoopClient
from streamgauge.recorder.protocol import Encoded, ExchangeEnding, Message, ReadsDropped, ResponseRead, ResponseReads
from streamgauge.spool.read_counters import Counters, read_balance
from streamgauge.taps.proxy import pump_handle
from streamgauge.taps.proxy.response import ResponseFraming
from tests.running import wait_for
from tests.taps.proxy.rig import apart, arrived, exchange_rig, receive, receive_head

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ASKED = b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
ROOM = 1 << 20

try:
    from streamgauge.taps.proxy.native._pump import follow
except ImportError:
    assert not pump_handle.BUILT

pumps = pytest.mark.skipif(not pump_handle.BUILT, reason="the pump is not built: it needs Linux and a C compiler")


def test_it_is_built_where_it_can_be() -> None:
    if not sys.platform.startswith("linux") or shutil.which(os.environ.get("CC") or "cc") is None:
        pytest.skip("no Linux, or no C compiler")
    assert pump_handle.BUILT, "python scripts/build_native.py"


# --- places ---------------------------------------------------------------------------------------------------------


def chunked(pieces: list[bytes], upper: bool, zeros: int) -> bytes:
    sizes = [f"{len(piece):x}" for piece in pieces]
    lines = [("0" * zeros + (size.upper() if upper else size)).encode() for size in sizes]
    return b"".join(b"%b\r\n%b\r\n" % (line, piece) for line, piece in zip(lines, pieces, strict=True)) + b"0\r\n\r\n"


@pumps
@given(
    pieces=st.lists(
        st.binary(min_size=1, max_size=40) | st.sampled_from([b"0\r\n\r\n", b"\r\n"]), min_size=1, max_size=6
    ),
    upper=st.booleans(),
    zeros=st.integers(0, 2),
    data=st.data(),
)
def test_a_chunked_body_continues_where_the_pump_left_it(
    pieces: list[bytes], upper: bool, zeros: int, data: st.DataObject
) -> None:
    body = chunked(pieces, upper, zeros)
    lent = data.draw(st.integers(0, len(body)))
    cuts = sorted({0, lent, *data.draw(st.lists(st.integers(0, lent), max_size=4))})
    framing = ResponseFraming(b"GET")
    framing.feed(CHUNKED)
    place, given_back = framing.position, 0
    assert place == BodyPosition(Phase.SIZE_BEGIN, 0)
    for start, end in pairwise(cuts):
        found = follow(*place, body[start:end], 0)
        if found is None:
            break
        place, given_back = BodyPosition(*found), end
    assert given_back < len(body)  # the last chunk is never an inner one
    framing.continue_at(place)
    rest = body[given_back:] + b"HTTP/1.1"
    assert (framing.feed(rest), framing.complete, framing.fault) == (len(body) - given_back, True, None)


@pumps
@given(body=st.binary(max_size=60), cut=st.integers(0, 60))
def test_a_malformed_chunked_body_is_never_taken_for_a_valid_one(body: bytes, cut: int) -> None:
    """Where the pump continues, the relay would have continued too, and be at the same position."""
    found = follow(Phase.SIZE_BEGIN, 0, body[:cut], 0)
    if found is None:
        return
    one, other = ResponseFraming(b"GET"), ResponseFraming(b"GET")
    one.feed(CHUNKED)
    other.feed(CHUNKED)
    if body[:cut]:
        assert one.feed(body[:cut]) == len(body[:cut])
    assert (one.fault, one.complete) == (None, False)
    assert one.position in (BodyPosition(*found), None)
    other.continue_at(BodyPosition(*found))
    if body[cut:]:
        assert one.feed(body[cut:]) == other.feed(body[cut:])
    assert (one.fault, one.complete) == (other.fault, other.complete)


@pumps
def test_a_body_with_a_length_ends_and_one_without_does_not() -> None:
    assert follow(Phase.LENGTH, 10, b"123456789", 0) == (Phase.LENGTH, 1)
    assert follow(Phase.LENGTH, 10, b"1234567890", 0) is None
    assert follow(Phase.UNTIL_EOF, 0, b"0\r\n\r\n", 0) == (Phase.UNTIL_EOF, 0)
    assert follow(Phase.SIZE_BEGIN, 0, b"head 3\r\nab", 5) == (Phase.DATA, 1)


@pumps
def test_implausible_sizes_are_left_to_the_relay() -> None:
    for body in (
        b"3;a=b\r\nabc\r\n",
        b"3 \r\n",
        b"\r\n",
        b"x",
        b"f" * 17 + b"\r\n",
        b"80000000\r\n",
        b"3\n",
        b"3\r\nabcd",
    ):
        assert follow(Phase.SIZE_BEGIN, 0, body, 0) is None
    assert follow(Phase.SIZE_BEGIN, 0, b"7fffffff\r\n", 0) == (Phase.DATA, 0x7FFFFFFF)


# --- the pump by itself ---------------------------------------------------------------------------------------------


class Rig:
    """A pump between two pairs of sockets."""

    def __init__(self, folder: Path, room: int = ROOM, batch: int = 1 << 16, hold_s: float = 0.0) -> None:
        self.path = folder / "counters"
        self.counters = Counters(self.path, "relay-0")
        self.seen = self.counters.pump_seen_word()
        self.pump = pump_handle.Pump(room, batch, round(hold_s * 1e9), self.seen)  # type: ignore[attr-defined]
        self.server, self.upstream = socket.socketpair()
        self.client, self.browser = socket.socketpair()
        self.reported: list[Message] = []
        self.batches = self.lost = 0
        self.back: list[Any] = []

    def hand_over(self, phase: Phase = Phase.UNTIL_EOF, left: int = 0, stream: int = 7) -> int:
        return self.pump.hand_over(self.upstream.fileno(), self.client.fileno(), True, stream, phase, left)

    @property
    def messages(self) -> list[Message]:
        return apart(self.reported)

    def collect(self, room: int = ROOM, *, due: bool = True, most: int = 1 << 40) -> None:
        batches, lost, returns = self.pump.collect(room, due, most)
        for encoded, count, reads in batches:
            body = b"\xdd" + struct.pack(">I", count) + encoded
            found = msgspec.msgpack.decode(body, type=list[Message])
            assert sum(len(one.reads) for one in found if isinstance(one, ResponseReads)) == reads
            self.reported += found
        self.batches, self.lost = self.batches + len(batches), self.lost + lost
        self.back += returns

    def until_back(self) -> Any:
        def back() -> bool:
            self.collect()
            return bool(self.back)

        assert wait_for(back, "it is returned")
        return self.back.pop()

    def close(self) -> None:
        self.pump.close()
        self.seen.release()
        self.counters.close()
        for one in (self.server, self.upstream, self.client, self.browser):
            one.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


@pumps
def test_reads_are_passed_on_and_reported_in_order(rig: Rig) -> None:
    token, before = rig.hand_over(), time.monotonic_ns()
    for number in range(50):
        rig.server.sendall(b"%d," % number)
        assert receive(rig.browser, len(b"%d," % number)) == b"%d," % number
    assert rig.pump.moved(token) >= before
    rig.pump.recall(token)
    returned = rig.until_back()
    assert (returned[0], returned[4], returned[6], returned[7]) == (token, None, False, 0)
    stamps = [message.at_ns for message in rig.messages if isinstance(message, ResponseRead)]
    assert arrived(rig.messages) == b"".join(b"%d," % number for number in range(50))
    assert before <= stamps[0] and stamps == sorted(stamps) and len(stamps) == 50  # type: ignore[operator, type-var]
    assert read_balance(rig.path).seen == 50
    rig.server.sendall(b"x")  # it belongs to the relay again
    assert receive(rig.upstream, 1) == b"x"
    assert rig.pump.moved(token) == 0
    rig.pump.recall(token)
    rig.collect()
    assert not rig.back


def pass_on(rig: Rig, data: bytes) -> None:
    rig.server.sendall(data)
    assert receive(rig.browser, len(data)) == data


@pumps
@pytest.mark.parametrize("chosen", [os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE])
def test_during_bulk_transfers_the_thread_yields_to_others(tmp_path: Path, chosen: int) -> None:
    """And no longer when they are over. A scheduling policy that was set from outside is not changed."""
    tasks = Path("/proc/self/task")
    before = set(tasks.iterdir())
    rig = Rig(tmp_path)
    (task,) = set(tasks.iterdir()) - before
    thread = int(task.name)
    os.sched_setscheduler(thread, chosen, os.sched_param(0))
    rig.hand_over()

    def policy_behind(data: bytes, *, pause_s: float, seconds: float = 0.0) -> set[int]:
        found, until = set(), time.monotonic() + seconds
        while time.monotonic() < until:
            pass_on(rig, data)
            rig.collect()
            found.add(os.sched_getscheduler(thread))
            time.sleep(pause_s)
        return found

    def is_(policy: int, data: bytes, pause_s: float) -> bool:
        return policy in policy_behind(data, pause_s=pause_s, seconds=0.03)

    if chosen == os.SCHED_OTHER:
        assert policy_behind(b"x", pause_s=0.005, seconds=0.1) == {os.SCHED_OTHER}
        assert wait_for(lambda: is_(os.SCHED_BATCH, b"y" * 50_000, 0.0), "a bulk")
        assert wait_for(lambda: is_(os.SCHED_OTHER, b"z", 0.005), "its end")
    else:
        assert policy_behind(b"y" * 50_000, pause_s=0.0, seconds=0.1) == {chosen}
        assert policy_behind(b"z", pause_s=0.005, seconds=0.1) == {chosen}
    rig.close()


@pumps
@pytest.mark.parametrize("reset", [False, True])
def test_each_kind_of_end_is_reported(tmp_path: Path, reset: bool) -> None:
    rig = Rig(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = socket.create_connection(listening.getsockname())
        upstream, _ = listening.accept()
    token = rig.pump.hand_over(upstream.fileno(), rig.client.fileno(), True, 7, Phase.LENGTH, 5)
    server.sendall(b"ab")
    assert receive(rig.browser, 2) == b"ab"
    if reset:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    returned = rig.until_back()
    assert (returned[0], *returned[2:]) == (token, Phase.LENGTH, 3, None, 0, reset, 0)
    upstream.close()
    rig.close()


@pumps
def test_a_partly_sent_read_is_returned_whole(rig: Rig) -> None:
    """The client takes a part of it: the pump returns how much, and the relay reports the read."""
    rig.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    rig.hand_over()
    taken = 0
    while not rig.back:
        rig.server.send(b"y" * 3000)
        time.sleep(0.001)
        rig.collect()
    _, _, phase, left, data, sent, reset, dropped = rig.back.pop()
    assert (phase, left, reset, dropped) == (Phase.UNTIL_EOF, 0, False, 0)
    assert data and 0 <= sent < len(data)
    rig.client.shutdown(socket.SHUT_WR)
    while piece := rig.browser.recv(65536):
        taken += len(piece)
    assert taken == len(arrived(rig.messages)) + sent


@pumps
def test_a_disconnected_client_is_left_to_the_relay(rig: Rig) -> None:
    rig.hand_over()
    rig.browser.close()
    rig.server.sendall(b"abc")
    assert rig.until_back()[4:7] == (b"abc", 0, False)


@pumps
def test_without_room_reads_are_passed_on_and_counted(rig: Rig) -> None:
    token = rig.hand_over()
    rig.collect(room=0)
    for _ in range(3):
        rig.server.sendall(b"abc")
        assert receive(rig.browser, 3) == b"abc"
    assert wait_for(lambda: read_balance(rig.path).seen == 3, "they were seen")
    rig.collect()
    assert (rig.lost, rig.messages) == (3, [])
    rig.server.sendall(b"d")
    assert receive(rig.browser, 1) == b"d"
    assert wait_for(lambda: read_balance(rig.path).seen == 4, "it was seen")
    rig.collect(room=0)
    assert [(type(message), getattr(message, "reads", None)) for message in rig.messages] == [
        (ReadsDropped, 3),
        (ResponseRead, None),
    ]
    rig.server.sendall(b"e")
    assert receive(rig.browser, 1) == b"e"
    rig.pump.recall(token)
    assert rig.until_back()[7] == 1


@pumps
def test_a_flow_with_much_data_leaves_room_for_the_reads_of_others(tmp_path: Path) -> None:
    """It fills the room before anything is collected: the relay has no time to."""
    rig = Rig(tmp_path, room=ROOM, batch=1 << 14, hold_s=3600)
    rig.hand_over()
    for size in [8192] * 256 + [128] * 128:
        pass_on(rig, bytes(size))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        pairs = [(socket.create_connection(listening.getsockname()), listening.accept()[0]) for _ in range(2)]
    (server, upstream), (browser, client) = pairs
    rig.pump.hand_over(upstream.fileno(), client.fileno(), True, 8, Phase.UNTIL_EOF, 0)
    for _ in range(20):
        server.sendall(bytes(200))
        assert receive(browser, 200) == bytes(200)

    def kept(stream: int) -> int:
        reads = [message for message in rig.messages if isinstance(message, ResponseRead)]
        return sum(len(read.data) for read in reads if read.stream == stream)

    assert wait_for(lambda: read_balance(rig.path).seen == 404, "all reads were seen")
    rig.collect()
    assert kept(8) == 20 * 200
    assert ROOM * 3 // 4 < kept(7) < ROOM
    rig.close()
    for end in (server, upstream, browser, client):
        end.close()


@pumps
def test_reads_of_one_response_are_collected_together(tmp_path: Path) -> None:
    rig = Rig(tmp_path, hold_s=3600)
    token = rig.hand_over()
    for _ in range(3):
        rig.server.sendall(b"abc")
        assert receive(rig.browser, 3) == b"abc"
        rig.collect()
    assert rig.reported == []
    rig.pump.recall(token)
    rig.until_back()
    assert [len(one.reads) for one in rig.reported if isinstance(one, ResponseReads)] == [3]
    rig.close()


@pumps
def test_responses_that_begin_together_are_not_reported_together(tmp_path: Path) -> None:
    rig = Rig(tmp_path, hold_s=0.5)
    pairs = [socket.socketpair() for _ in range(32)]
    for stream, (upstream, server) in enumerate(pairs):
        rig.pump.hand_over(upstream.fileno(), rig.client.fileno(), True, stream, Phase.UNTIL_EOF, 0)
        server.sendall(b"a")
    assert receive(rig.browser, 32) == b"a" * 32
    looks = []

    def all_reported() -> bool:
        before = len(rig.reported)
        rig.collect()
        looks.append(len(rig.reported) - before)
        return len(rig.reported) == 32

    assert wait_for(all_reported, "all are reported")
    assert sum(looks) == 32 and max(looks) < 32
    rig.close()
    for pair in pairs:
        for end in pair:
            end.close()


@pumps
def test_nothing_is_delayed_when_half_of_the_room_is_used(tmp_path: Path) -> None:
    rig = Rig(tmp_path, room=1 << 16, batch=1 << 14, hold_s=3600)
    rig.hand_over()
    for _ in range(12):
        rig.server.sendall(b"z" * 3000)
        assert receive(rig.browser, 3000) == b"z" * 3000
    assert wait_for(lambda: read_balance(rig.path).seen == 12, "they were seen")
    assert wait_for(lambda: bool(select.select([rig.pump.fileno()], [], [], 0)[0]), "it asks to be collected")
    rig.collect(due=False)
    assert len(arrived(rig.messages)) > 1 << 15
    assert rig.lost == 0
    rig.close()


@pumps
def test_a_batch_is_complete_when_it_is_large_enough(tmp_path: Path) -> None:
    rig = Rig(tmp_path, batch=1000, hold_s=3600)
    rig.hand_over()
    for _ in range(50):
        rig.server.sendall(b"z" * 3000)
        assert receive(rig.browser, 3000) == b"z" * 3000
    assert wait_for(lambda: read_balance(rig.path).seen == 50, "they were seen")
    rig.collect(due=False)
    assert rig.batches == len(rig.reported) == 2
    assert arrived(rig.messages) == b"z" * 44 * 3000
    rig.close()


@pumps
def test_many_reads_are_collected_in_several_calls(tmp_path: Path) -> None:
    """And a response is returned as soon as all its reads have been collected."""
    rig = Rig(tmp_path, room=1 << 24, batch=1 << 16, hold_s=3600)
    upstream, server = socket.socketpair()
    early, much = (
        rig.pump.hand_over(upstream.fileno(), rig.client.fileno(), True, 8, Phase.UNTIL_EOF, 0),
        rig.hand_over(),
    )
    server.sendall(b"early")
    assert receive(rig.browser, 5) == b"early"
    rig.pump.recall(early)
    for number in range(100):
        pass_on(rig, b"%05d" % number * 1000)
    rig.pump.recall(much)
    sizes: list[int] = []
    turns: list[Any] = []
    while len(turns) < 2:
        assert select.select([rig.pump.fileno()], [], [], 10)[0], "it requests to be collected"
        before = len(arrived(rig.messages))
        rig.collect(due=False, most=100_000)
        sizes.append(len(arrived(rig.messages)) - before)
        turns += [(one[0], len(sizes)) for one in rig.back]
        rig.back.clear()
    assert turns == [(early, 1), (much, len(sizes))]
    assert len(sizes) > 2 and max(sizes) < 300_000
    assert arrived(rig.messages) == b"early" + b"".join(b"%05d" % number * 1000 for number in range(100))
    assert not select.select([rig.pump.fileno()], [], [], 0)[0]
    for one in (upstream, server):
        one.close()
    rig.close()


@pumps
def test_more_flows_than_there_was_room_for(tmp_path: Path) -> None:
    rig, pairs = Rig(tmp_path), [socket.socketpair() for _ in range(300)]
    tokens = [rig.pump.hand_over(one.fileno(), rig.client.fileno(), False, 0, Phase.UNTIL_EOF, 0) for one, _ in pairs]
    assert len(set(tokens)) == 300
    for _, other in pairs:
        other.sendall(b".")
        assert receive(rig.browser, 1) == b"."
    for _, other in pairs:
        other.close()

    def all_back() -> bool:
        rig.collect()
        return len(rig.back) == 300

    assert wait_for(all_back, "all are returned")
    assert {one[0] for one in rig.back} == set(tokens)
    assert (rig.messages, read_balance(rig.path).seen) == ([], 0)  # nothing of it was to be captured
    for one, _ in pairs:
        one.close()
    rig.close()


@pumps
def test_a_response_that_cannot_be_handed_over_is_refused(rig: Rig) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        rig.pump.hand_over(999_999, rig.client.fileno(), True, 7, Phase.UNTIL_EOF, 0)
    with pytest.raises(ValueError, match="one word"):
        pump_handle.Pump(ROOM, ROOM, 0, memoryview(bytearray(16)))  # type: ignore[attr-defined]
    rig.hand_over()  # closed while it has the response


OUT_OF_RANGE = [-1, -(2**63), -(2**64), 2**64, 2**80]


@pumps
@pytest.mark.parametrize("number", OUT_OF_RANGE)
def test_integers_that_are_out_of_range_are_refused(rig: Rig, number: int) -> None:
    upstream, client, pump = rig.upstream.fileno(), rig.client.fileno(), rig.pump
    for refused in (
        lambda: follow(number, 0, b"abc", 0),
        lambda: follow(Phase.DATA, number, b"abc", 0),
        lambda: follow(Phase.DATA, 9, b"abc", number),
        lambda: pump_handle.Pump(number, ROOM, 0, rig.seen),  # type: ignore[attr-defined]
        lambda: pump_handle.Pump(ROOM, number, 0, rig.seen),  # type: ignore[attr-defined]
        lambda: pump_handle.Pump(ROOM, ROOM, number, rig.seen),  # type: ignore[attr-defined]
        lambda: pump.hand_over(upstream, client, True, number, Phase.DATA, 1),
        lambda: pump.hand_over(upstream, client, True, 7, number, 1),
        lambda: pump.hand_over(upstream, client, True, 7, Phase.DATA, number),
        lambda: pump.recall(number),
        lambda: pump.moved(number),
        lambda: pump.collect(number, True),
        lambda: pump.collect(ROOM, True, number),
    ):
        with pytest.raises(ValueError, match="between 0 and"):
            refused()
    for descriptors in ((number, client), (upstream, number)):
        with pytest.raises(OSError, match="Bad file descriptor"):
            pump.hand_over(*descriptors, True, 7, Phase.DATA, 1)
    rig.hand_over()  # nothing of it was handed over


@pumps
def test_integers_that_are_too_large_for_their_type_are_refused(rig: Rig) -> None:
    with pytest.raises(ValueError, match="begin is 4, at most 3"):
        follow(Phase.DATA, 9, b"abc", 4)
    assert follow(Phase.DATA, 9, b"abc", 3) == (Phase.DATA, 9)
    assert follow(Phase.DATA, 2**64 - 1, b"abc", 0) == (Phase.DATA, 2**64 - 4)
    assert follow(Phase.SIZE, 2**64 - 1, b"a", 0) is None  # one digit more is not a valid size
    with pytest.raises(ValueError, match="phase is 8, at most 7"):
        follow(8, 0, b"abc", 0)
    with pytest.raises(ValueError, match="phase is 8, at most 7"):
        rig.pump.hand_over(rig.upstream.fileno(), rig.client.fileno(), True, 7, 8, 0)
    for room, batch, hold_ns in ((2**49, 1, 0), (1, 2**49, 0), (1, 1, 10**15)):
        with pytest.raises(ValueError, match=r"at most \d+ is possible"):
            pump_handle.Pump(room, batch, hold_ns, rig.seen)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="room is"):
        rig.pump.collect(2**49, True)
    for made in (
        lambda: rig.pump.hand_over("7", 1, True, 7, 7, 0),  # type: ignore[arg-type]
        lambda: rig.pump.recall(None),  # type: ignore[arg-type]
        lambda: rig.pump.moved(1.5),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            made()


@pumps
def test_a_pump_must_be_started(rig: Rig) -> None:
    with pytest.raises(TypeError):
        pump_handle.Pump.__new__(pump_handle.Pump)  # type: ignore[attr-defined, call-arg]
    token = rig.hand_over()
    rig.pump.close()
    rig.pump.close()
    with pytest.raises(OSError, match="closed"):
        rig.hand_over()
    rig.pump.recall(token)
    rig.collect()
    assert [one[0] for one in rig.back] == [token]


@pumps
def test_during_bulk_transfers_responses_are_recalled_and_handed_over_without_a_byte_lost(tmp_path: Path) -> None:
    """While the thread moves as much as it can, the relay's calls come at any moment."""
    rig, each, flows = Rig(tmp_path, room=1 << 28, batch=1 << 14, hold_s=0.001), 1 << 21, 6
    sent = [random.Random(number).randbytes(each) for number in range(flows)]
    pairs = [(*socket.socketpair(), *socket.socketpair()) for _ in range(flows)]
    received = [bytearray() for _ in range(flows)]

    def write(number: int) -> None:
        pairs[number][0].sendall(sent[number])

    def read(number: int) -> None:
        while len(received[number]) < each:
            received[number] += pairs[number][3].recv(1 << 16)

    def hand_over(number: int) -> None:
        upstream, client = pairs[number][1:3]
        tokens[rig.pump.hand_over(upstream.fileno(), client.fileno(), True, number, Phase.UNTIL_EOF, 0)] = number

    def take_back() -> None:
        rig.collect(1 << 28, due=len(rig.back) % 2 == 0)
        for token, _, _, _, data, done, reset, dropped in rig.back:
            number = tokens.pop(token)
            assert (reset, dropped) == (False, 0)
            if data is not None:  # the relay passes it on and reports it
                pairs[number][2].sendall(data[done:])
                rig.reported.append(ResponseRead(number, 0, data))
            hand_over(number)
        rig.back.clear()

    tokens: dict[int, int] = {}
    threads = [threading.Thread(target=job, args=[number]) for job in (write, read) for number in range(flows)]
    for number in range(flows):
        hand_over(number)
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for token in list(tokens):
            rig.pump.moved(token)
        rig.pump.recall(next(iter(tokens)))
        take_back()
    for token in list(tokens):
        rig.pump.recall(token)
    rig.collect()
    assert [bytes(one) for one in received] == sent
    messages_of: dict[int, list[Message]] = {number: [] for number in range(flows)}
    for message in rig.messages:
        messages_of[message.stream].append(message)
    assert [arrived(messages_of[number]) for number in range(flows)] == sent
    assert rig.lost == 0
    for pair in pairs:
        for end in pair:
            end.close()
    rig.close()


# --- in a relay -----------------------------------------------------------------------------------------------------


def framed(kind: str, pieces: list[bytes]) -> list[bytes]:
    if kind == "chunked":
        return [CHUNKED, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n"]
    if kind == "length":
        return [HEAD + b"Content-Length: %d\r\n\r\n" % sum(map(len, pieces)), *pieces]
    return [HEAD + b"Connection: close\r\n\r\n", *pieces]


@pytest.mark.parametrize("pump", [pytest.param(True, marks=pumps), False])
@pytest.mark.parametrize("kind", ["chunked", "length", "eof"])
def test_with_and_without_it_the_client_gets_and_the_tap_reports_the_same(
    tmp_path: Path, kind: str, pump: bool
) -> None:
    events = framed(kind, [b"data: %d\n\n" % number for number in range(20)])

    def handler(one: socket.socket) -> None:
        receive_head(one)
        receive(one, 2)
        for event in events:
            one.sendall(event)
            assert arrived_whole.acquire(timeout=60)
        if kind == "eof":
            one.close()

    whole, arrived_whole = b"".join(events), threading.Semaphore(0)
    with exchange_rig(tmp_path, handler, pump=pump) as (relay, _, recorder), relay.connect() as client:
        client.sendall(ASKED)
        for number, event in enumerate(events):
            assert receive(client, len(event)) == event
            if number == len(events) // 2:
                handle = relay.relay.pump
                assert (handle is not None and len(handle.pumped) == 1) == pump
            arrived_whole.release()
        messages = recorder.ended()
    assert arrived(messages) == whole
    stamps = [message.at_ns for message in messages if isinstance(message, ResponseRead)]
    assert stamps == sorted(stamps, key=lambda stamp: stamp or 0) and len(stamps) > 15
    assert isinstance(messages[-1], ExchangeEnding)
    balance = read_balance(tmp_path / "counters")
    assert (balance.seen, sum(balance.dropped.values())) == (len(stamps), 0)


def one_event_at_a_time(one: socket.socket) -> None:
    receive_head(one)
    receive(one, 2)
    for event in framed("chunked", [b"data: %d\n\n" % number for number in range(10)]):
        one.sendall(event)
        time.sleep(0.01)


WHOLE = b"".join(framed("chunked", [b"data: %d\n\n" % number for number in range(10)]))


@pumps
@pytest.mark.parametrize("at", ["put", "put and decoded", "put and counters"])
def test_a_response_ends_whatever_fails_in_the_capture(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Any:
        raise MemoryError

    def put(self: LoopClient, message: Message | Encoded, size: int) -> None:
        if isinstance(message, Encoded):
            raise MemoryError
        real(self, message, size)

    real = LoopClient.put
    monkeypatch.setattr(LoopClient, "put", put)
    if at == "put and decoded":
        monkeypatch.setattr(Encoded, "decoded", fails)
    if at == "put and counters":
        monkeypatch.setattr(Counters, "happened", fails)
    with exchange_rig(tmp_path, one_event_at_a_time) as (relay, _, recorder), relay.connect() as client:
        client.sendall(ASKED)
        assert receive(client, len(WHOLE)) == WHOLE
        messages = recorder.ended()
        relay.faults.clear()
    balance = read_balance(tmp_path / "counters")
    reads = sum(isinstance(one, ResponseRead) for one in messages)
    if at == "put and counters":
        assert balance.seen > reads
        return
    assert balance.dropped["capture_fault"] == balance.seen - reads > 0
    assert sum(one.reads for one in messages if isinstance(one, ReadsDropped)) > 0, (
        "the record says that reads are missing"
    )


@pumps
def test_a_flush_without_memory_is_tried_again(tmp_path: Path) -> None:
    class Short:
        """The relay's pump, whose first collection has no memory for its list."""

        def __init__(self, pump: Any) -> None:
            self.pump, self.refused = pump, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.pump, name)

        def collect(self, room: int, due: bool, most: int, share: int) -> Any:
            if due and not self.refused:
                self.refused += 1
                raise MemoryError
            return self.pump.collect(room, due, most, share)

    def handler(one: socket.socket) -> None:
        receive_head(one)
        receive(one, 2)
        one.sendall(CHUNKED)
        for number in range(4):
            time.sleep(0.01)
            one.sendall(b"1\r\n%d\r\n" % number)
        ended.wait(60)

    ended = threading.Event()
    with exchange_rig(tmp_path, handler) as (relay, _, recorder), relay.connect() as client:
        handle = relay.relay.pump
        assert handle is not None
        short = relay.call(lambda: Short(handle.pump))
        handle.pump = short  # type: ignore[assignment]
        client.sendall(ASKED)
        assert receive(client, len(CHUNKED) + 4 * 6) == CHUNKED + b"".join(b"1\r\n%d\r\n" % n for n in range(4))
        try:
            recorder.wait(lambda messages: arrived(messages).endswith(b"1\r\n3\r\n"))
        finally:
            ended.set()
        assert short.refused == 1
        relay.faults.clear()


@pumps
def test_a_killed_relay_leaves_no_read_uncounted(tmp_path: Path) -> None:
    """The thread counts in the shared file itself: what it saw is counted there before it is collected."""
    rig = Rig(tmp_path)
    rig.hand_over()
    rig.server.sendall(b"abc")
    assert receive(rig.browser, 3) == b"abc"
    assert wait_for(lambda: read_balance(rig.path).seen == 1, "it was seen")
    with Counters(rig.path, "relay-0") as again:
        again.drop_unsent_reads()
    balance = read_balance(rig.path)
    assert (balance.seen, balance.waiting, balance.dropped["crash"]) == (1, 0, 1)
    rig.close()
