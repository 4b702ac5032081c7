"""While the recorder is behind, clients share its room: one client's flood costs no other client a record or its end."""

import contextlib
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending, Segment
from streamgauge.recorder.fair_shares import ALMOST_FULL, CROWDED, FEW, HARDLY_ANY, LITTLE, FairShares, Party
from streamgauge.recorder.protocol import ExchangeEnding, ReadsDropped, RequestSent, RequestStarted
from streamgauge.recorder.recorder import Recorder
from streamgauge.spool.read_counters import Incident, read_balance
from tests.running import wait_for
from tests.taps import talk
from tests.taps.proxy.rig import (
    PATIENCE_S,
    RawRecorder,
    RawUpstream,
    RunningRelay,
    arrived,
    chunked,
    only,
    receive,
    receive_request,
    settings_for,
)

ROOM = 1_000_000
ROOMY, CROWD, FULL = int(ROOM * CROWDED) - 1, int(ROOM * CROWDED), int(ROOM * ALMOST_FULL)
LOUD, QUIET = Party("a", "loud"), Party("a", "quiet")


def shares(**waiting: int) -> FairShares:
    """By "address_identity": how many streams wait."""
    made = FairShares(ROOM)
    for name, streams in waiting.items():
        for _ in range(streams):
            made.add(Party(*name.split("_")))
    return made


def test_with_room_everybody_is_admitted() -> None:
    assert shares(a_loud=9_000, a_quiet=1).admits(LOUD, ROOMY)


def test_above_half_an_identity_with_more_than_its_share_is_not_admitted() -> None:
    crowded = shares(a_loud=1_000, a_quiet=10)
    assert not crowded.admits(LOUD, CROWD)
    assert crowded.admits(QUIET, CROWD) and crowded.admits(Party("a", "new"), CROWD)


def test_an_identity_alone_has_the_room_up_to_the_part_that_is_kept_for_reads() -> None:
    alone = shares(a_loud=1_000)
    assert alone.admits(LOUD, FULL - 1)
    assert not alone.admits(LOUD, FULL)


def test_above_three_quarters_an_identity_with_little_is_admitted_and_invented_ones_are_not() -> None:
    crowded = shares(a_loud=1_000, a_quiet=50, a_other=200)
    assert crowded.admits(QUIET, FULL) and crowded.admits(Party("a", "new"), FULL)
    assert not crowded.admits(Party("a", "other"), FULL) and not crowded.admits(LOUD, FULL)
    for number in range(1_000):
        crowded.add(Party("a", str(number)))
    assert not crowded.admits(Party("a", "1000"), FULL)


def test_a_few_streams_are_admitted_although_the_reads_of_others_fill_the_room() -> None:
    few = shares(a_quiet=FEW - 20)
    assert not few.admits(QUIET, FULL), "a client alone: reads of its own fill the room"
    assert few.admits(LOUD, FULL) and few.admits(QUIET, FULL)
    assert not few.admits(QUIET, int(ROOM * HARDLY_ANY)), "its reads would be dropped"
    for _ in range(10):
        few.add(LOUD)
    assert few.admits(LOUD, FULL) and not few.admits(QUIET, FULL), "the one with more than its share"
    for _ in range(10):
        few.add(QUIET)
    assert not few.admits(QUIET, FULL)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=300))
def test_above_three_quarters_an_address_begins_a_seventh_more_at_most(asked: list[int]) -> None:
    """Whatever identities it uses."""
    made, streams = shares(a_0=200, a_1=100), 300
    for number in asked:
        if made.admits(Party("a", str(number)), FULL):
            made.add(Party("a", str(number)))
            streams += 1
    assert streams <= 300 / (1 - LITTLE)


def test_invented_identities_do_not_shut_out_another_address() -> None:
    forged = FairShares(ROOM)
    for number in range(1_000):
        forged.add(Party("a", str(number)))
    forged.add(Party("b"))
    assert not forged.admits(Party("a", "1000"), FULL)
    assert forged.admits(Party("b"), FULL)


def test_an_address_with_many_clients_is_judged_by_identity() -> None:
    """A load balancer: its address has more than its share, but a quiet client of it has not."""
    balanced = shares(a_loud=1_000, a_quiet=10, b_x=1)
    assert balanced.admits(QUIET, CROWD) and not balanced.admits(LOUD, CROWD)


def test_streams_that_wait_no_longer_do_not_count() -> None:
    made = shares(a_loud=100, a_quiet=10)
    made.remove(Counter({LOUD: 95}))
    assert made.admits(LOUD, CROWD) and not made.admits(QUIET, CROWD)
    made.remove(Counter({LOUD: 5, QUIET: 10}))
    assert made.admits(LOUD, FULL)


def test_the_time_of_a_decision_does_not_grow_with_the_number_of_invented_identities() -> None:
    made = FairShares(ROOM)
    for number in range(100_000):
        made.add(Party("a", str(number)))
    made.add(Party("b"))
    began = time.process_time()
    assert [made.admits(Party("a", "new"), FULL) for _ in range(1_000)] == [False] * 1_000
    assert time.process_time() - began < 1.0  # a look at each identity would take 1,000 times 10 ms


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=60),
    st.integers(0, FULL - 1),
)
def test_one_party_at_least_is_admitted_before_the_rest_is_kept(waiting: list[tuple[str, str]], held: int) -> None:
    made = FairShares(ROOM)
    for party in waiting:
        made.add(Party(*party))
    assert any(made.admits(Party(*party), held) for party in waiting)


EVENTS = chunked(*[b"data: %d\n\n" % number for number in range(40)])
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + EVENTS


def post(tenant: bytes) -> bytes:
    return b"POST /v1/messages HTTP/1.1\r\nHost: c\r\nX-Tenant: %b\r\nContent-Length: 2\r\n\r\n{}" % tenant


def test_a_flood_of_one_tenant_costs_the_streams_of_another_nothing(tmp_path: Path) -> None:
    """The recorder starts after the flood. Of the other tenant's streams one began before the flood, and one during it."""
    go = threading.Event()

    def handler(one: socket.socket) -> None:
        while request := receive_request(one):
            honest = b"honest" in request
            one.sendall(ANSWER[:-100] if honest else ANSWER)
            if honest:
                assert go.wait(PATIENCE_S)
                one.sendall(ANSWER[-100:])

    with RawUpstream(handler) as upstream:
        settings = settings_for(tmp_path, upstream.url, tenant_header="X-Tenant", capture_buffer_bytes=1_500_000)
        with RunningRelay(settings) as relay, contextlib.ExitStack() as stack:

            def begin_honest() -> socket.socket:
                one = stack.enter_context(relay.connect())
                one.sendall(post(b"honest"))
                assert receive(one, len(ANSWER) - 100) == ANSWER[:-100]
                return one

            def flood(times: int) -> None:
                with relay.connect() as one:
                    for _ in range(times):
                        one.sendall(post(b"loud"))
                        assert receive(one, len(ANSWER)) == ANSWER

            before = begin_honest()
            flood(1_500)
            during = begin_honest()
            flood(300)
            refused = relay.incidents(Incident.STREAM_OVER_SHARE)
            assert refused > 500
            go.set()
            for one in (before, during):
                assert receive(one, 100) == ANSWER[-100:]
            with RawRecorder(tmp_path / "recorder.sock") as recorder:
                messages = recorder.ended(1_802 - refused)
    honest = {
        one.stream for one in messages if isinstance(one, RequestStarted) and ("x-tenant", "honest") in one.headers
    }
    assert len(honest) == 2
    for stream in honest:
        of_stream = [one for one in messages if one.stream == stream]
        assert arrived(of_stream) == ANSWER
        assert only(of_stream, ExchangeEnding).ending is Ending.COMPLETE
    assert not any(isinstance(one, ReadsDropped) for one in messages)
    balance = read_balance(tmp_path / "counters")
    assert balance.dropped["recorder_behind"] >= refused  # the reads of refused streams are counted


LARGE = 16_000_000  # less than MAX_REQUEST_BODY
_PIECE = b"data: " + b"x" * 8_000 + b"\n\n"


def large_response(one: socket.socket) -> None:
    one.sendall(ANSWER[: -len(EVENTS)])
    for _ in range(2 * LARGE // len(_PIECE)):
        one.sendall(b"%x\r\n%b\r\n" % (len(_PIECE), _PIECE))
    one.sendall(b"0\r\n\r\n")


@pytest.mark.parametrize("began", [1, 0], ids=["one_before", "none_before"])
@pytest.mark.parametrize("large", ["response", "response without the pump", "request"])
def test_much_data_of_one_client_costs_the_streams_of_another_nothing(tmp_path: Path, large: str, began: int) -> None:
    """The recorder starts at the end. Of the other client's streams `began` began before the data, and one after it."""
    go = threading.Event()

    def handler(one: socket.socket) -> None:
        while request := receive_request(one):
            if b"loud" in request[:200]:
                one.sendall(ANSWER) if large == "request" else large_response(one)
                continue
            one.sendall(ANSWER[:-100])
            assert go.wait(PATIENCE_S)
            for byte in range(100):  # many reads, which the pump moves if it is in use
                one.sendall(ANSWER[byte - 100 : byte - 99] if byte < 99 else ANSWER[-1:])
                time.sleep(0.002)

    with RawUpstream(handler) as upstream:
        settings = settings_for(
            tmp_path,
            upstream.url,
            tenant_header="X-Tenant",
            capture_buffer_bytes=16_000_000,
            pump=large != "response without the pump",
        )
        with RunningRelay(settings) as relay, contextlib.ExitStack() as stack:

            def begin_honest() -> socket.socket:
                one = stack.enter_context(relay.connect())
                one.sendall(post(b"honest"))
                assert receive(one, len(ANSWER) - 100) == ANSWER[:-100]
                return one

            before = [begin_honest() for _ in range(began)]
            loud = stack.enter_context(relay.connect())
            if large == "request":
                head = b"POST /v1/messages HTTP/1.1\r\nHost: c\r\nX-Tenant: loud\r\nContent-Length: %d\r\n\r\n" % LARGE
                loud.sendall(head + b"x" * LARGE)
                assert receive(loud, len(ANSWER)) == ANSWER
            else:
                loud.sendall(post(b"loud"))
                received = b""
                while not received.endswith(b"\n\n\r\n0\r\n\r\n"):
                    received = received[-20:] + loud.recv(1 << 20)
            after = begin_honest()
            go.set()
            for one in (*before, after):
                assert receive(one, 100) == ANSWER[-100:]
            assert relay.incidents(Incident.STREAM_OVER_SHARE) == 0
            with RawRecorder(tmp_path / "recorder.sock") as recorder:
                wait_for(
                    lambda: sum(isinstance(one, ExchangeEnding) for one in recorder.messages) == began + 2, "all ends"
                )
                messages = list(recorder.messages)
    honest = {
        one.stream for one in messages if isinstance(one, RequestStarted) and ("x-tenant", "honest") in one.headers
    }
    assert len(honest) == began + 1
    for stream in honest:
        of_stream = [one for one in messages if one.stream == stream]
        assert not any(isinstance(one, ReadsDropped) for one in of_stream)
        assert arrived(of_stream) == ANSWER
    of_loud = [one for one in messages if one.stream not in honest]
    if large == "request":
        assert not only(of_loud, RequestSent).whole
    else:
        reported = sum(one.reads for one in of_loud if isinstance(one, ReadsDropped))
        assert reported == read_balance(tmp_path / "counters").dropped["recorder_behind"] > 0
        assert sum(isinstance(one, ReadsDropped) for one in of_loud) < 20, (
            "one message for reads that follow each other"
        )


@pytest.mark.slow
def test_waiting_reads_of_the_party_with_the_most_are_dropped_and_of_its_newest_streams_first() -> None:
    """An old, long stream of another party keeps its end, although it has more than each stream of the flood."""
    recorder = Recorder(talk.settings("masked"), stream_bytes=4_096, max_behind_bytes=2_000_000)
    tiny = b"data:x\n\n" * 60_000  # 480,000 bytes

    def begin(stream: int, party: Party, content: bytes) -> None:
        recorder.handle(msgspec.structs.replace(talk.opened(stream=stream), party=party))
        recorder.handle(talk.sent(stream=stream))
        reads = [content[at : at + 65_536] for at in range(0, len(content), 65_536)]
        for one in talk.arrivals(talk.head(talk.SSE), *reads, stream=stream):
            recorder.handle(one)
        recorder.handle(talk.ended(stream=stream))

    begin(1, QUIET, tiny + tiny[: len(tiny) // 2])
    segments: list[Segment] = []
    for stream in range(2, 12):
        begin(stream, LOUD, tiny)
        segments += recorder.each_segment()
        assert 1_000_000 < recorder.behind_bytes <= 2_000_000
    found: dict[bytes, list[Segment]] = {}
    for segment in [*segments, *recorder.segments()]:
        found.setdefault(segment.stream, []).append(segment)
    lost = [sum(one.loss.dropped_reads for one in segments if one.loss) for segments in found.values()]
    assert len(lost) == 11
    assert lost[0] == 0, "the other party"
    assert lost[1] == 0, "the oldest stream of the flood"
    assert sum(map(bool, lost[2:])) >= 6, "the newer ones"
