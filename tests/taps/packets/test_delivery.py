"""On the way to the recorder: what finds no room is left out, told, and counted, so that the balance holds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Ending
from streamgauge.recorder.protocol import (
    ExchangeEnded,
    Message,
    ReadsDropped,
    RequestBody,
    RequestSent,
    RequestStarted,
    ResponseRead,
)
from streamgauge.spool.read_counters import Counters, read_balance
from streamgauge.taps.packets.delivery import Delivery


class Way:
    """A way out that has room or has not, and keeps what it takes."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.full = self.overfull = False
        self.taken: list[Message] = []

    def put(self, message: Message, size: int) -> None:
        self.taken.append(message)
        self.counters.handed(isinstance(message, ResponseRead))


@pytest.fixture
def counters(tmp_path: Path) -> Iterator[Counters]:
    with Counters(tmp_path / "counters", "relay-0") as one:
        yield one


def opened(stream: int) -> RequestStarted:
    return RequestStarted(stream, 1, 2, None, "POST", "/v1/messages")


def test_with_room_all_goes_on_as_it_is(counters: Counters) -> None:
    way = Way(counters)
    messages: list[Message] = [
        opened(1),
        RequestBody(1, b"a"),
        RequestSent(1, 2, None, 1, True),
        ResponseRead(1, 3, b"b"),
        ReadsDropped(1, 1),
        ResponseRead(1, 4, b"c"),
        ExchangeEnded(1, 5, Ending.COMPLETE),
    ]
    delivery = Delivery(way)
    for message in messages:
        delivery.put(message)
    assert way.taken == messages


def test_what_finds_no_room_is_told_when_there_is_room_again(counters: Counters, tmp_path: Path) -> None:
    way = Way(counters)
    delivery = Delivery(way)
    delivery.put(opened(1))
    way.full = True
    for message in (RequestBody(1, b"a"), ResponseRead(1, 3, b"b"), ResponseRead(1, 3, b"c")):
        delivery.put(message)
    way.full = False
    for message in (  # type: ignore[assignment]
        RequestBody(1, b"a"),
        RequestSent(1, 2, None, 2, True),
        ResponseRead(1, 4, b"d"),
        ExchangeEnded(1, 5, Ending.COMPLETE),
    ):
        delivery.put(message)
    assert way.taken == [
        opened(1),
        ReadsDropped(1, 2),
        RequestSent(1, 2, None, 2, False),
        ResponseRead(1, 4, b"d"),
        ExchangeEnded(1, 5, Ending.COMPLETE),
    ]
    balance = read_balance(tmp_path / "counters")
    assert (balance.seen, balance.dropped["recorder_behind"], balance.waiting) == (3, 2, 1)


def test_a_stream_whose_beginning_finds_no_room_is_not_told(counters: Counters, tmp_path: Path) -> None:
    way = Way(counters)
    delivery = Delivery(way)
    way.full = way.overfull = True
    delivery.put(opened(1))
    way.full = way.overfull = False
    for message in (
        RequestBody(1, b"a"),
        ResponseRead(1, 3, b"b"),
        ReadsDropped(1, 1),
        ExchangeEnded(1, 5, Ending.COMPLETE),
        opened(1),
    ):
        delivery.put(message)
    assert way.taken == [opened(1)]
    balance = read_balance(tmp_path / "counters")
    assert (balance.dropped["recorder_behind"], balance.dropped["packets_lost"], balance.waiting) == (1, 1, 0)


STEPS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from("asdn"), st.integers(0, 2)), max_size=40)


@given(steps=STEPS)
def test_the_balance_holds_and_each_stream_is_told_in_order(
    steps: list[tuple[int, str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("delivery") / "counters"
    with Counters(path, "relay-0") as one:
        way = Way(one)
        delivery = Delivery(way)
        for stream in (1, 2, 3):
            delivery.put(opened(stream))
        for stream, kind, room in steps:
            way.full, way.overfull = room > 0, room > 1
            delivery.put({"a": ResponseRead(stream, 1, b"x"), "s": RequestBody(stream, b"y"), "d": ReadsDropped(stream, 2),  # type: ignore[arg-type]
                          "n": RequestSent(stream, 1, None, 9, True)}[kind])  # fmt: skip
        way.full = False
        for stream in (1, 2, 3):
            delivery.put(ExchangeEnded(stream, 9, Ending.COMPLETE))
    balance = read_balance(path)
    handed = sum(isinstance(message, ResponseRead) for message in way.taken)
    told = sum(message.reads for message in way.taken if isinstance(message, ReadsDropped))
    assert balance.seen == handed + sum(balance.dropped.values())
    assert told == sum(balance.dropped.values())
    for stream in (1, 2, 3):
        seen = [message for message in way.taken if message.stream == stream]
        assert isinstance(seen[0], RequestStarted)
        assert isinstance(seen[-1], ExchangeEnded)
        asked = [room > 0 for number, kind, room in steps if number == stream and kind == "s"]
        left_out = True in asked
        assert sum(isinstance(message, RequestBody) for message in seen) == (
            asked.index(True) if left_out else len(asked)
        )
        kinds = [(kind, room > 0) for number, kind, room in steps if number == stream]
        whole = [("s", True) not in kinds[:place] for place, (kind, _) in enumerate(kinds) if kind == "n"]
        assert [message.whole for message in seen if isinstance(message, RequestSent)] == whole
