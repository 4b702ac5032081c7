"""Which exchange an entry of the access log belongs to."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.taps.envoy import joining
from streamgauge.taps.envoy.exchange import EnvoyExchange, Reporting, Unknown
from streamgauge.taps.envoy.joining import WAIT_NS, Joining
from streamgauge.taps.envoy.messages import LogEntry, processing_of
from tests.recorder.fake_client import FakeClient
from tests.taps.envoy.schema import body, headers, processing

FIRST, SECOND = 1_000_000_000, 1_000_001_000


class Rig:
    """A join, and the ends that it reported: for each exchange the entry's details, or why there is none."""

    def __init__(self) -> None:
        self.ended: dict[EnvoyExchange, str | Unknown | None] = {}
        self.joining = Joining(self._ended)

    def _ended(self, exchange: EnvoyExchange, unknown: Unknown | None) -> None:
        assert exchange not in self.ended
        self.ended[exchange] = exchange.entry.details if exchange.entry else unknown

    def begin(self, request_id: str = "id", started_ns: int | None = FIRST, now_ns: int = 0) -> EnvoyExchange:
        exchange = EnvoyExchange(Reporting(FakeClient()))
        fields = [(":method", "POST"), (":path", "/v1/messages")]
        fields += [("x-request-id", request_id)] if request_id else []
        seconds, micros = divmod(started_ns or 0, 10**9)
        at = {} if started_ns is None else {"request.time": f"1970-01-01T00:00:{seconds:02}.{micros // 1000:06}+00:00"}
        message = processing_of(processing(request_headers=headers(*fields), attributes=at))
        assert message is not None
        exchange.receive(now_ns, now_ns, message)
        assert exchange.started_ns == started_ns
        self.joining.begin(exchange, now_ns)
        return exchange

    def end(self, exchange: EnvoyExchange, now_ns: int = 0) -> None:
        for data in (
            processing(response_headers=headers((":status", "200"))),
            processing(response_body=body(b"", ends=True)),
        ):
            message = processing_of(data)
            assert message is not None
            exchange.receive(now_ns, now_ns, message)
        self.joining.update(exchange, now_ns)


def entry(name: str, request_id: str = "id", started_ns: int = FIRST) -> LogEntry:
    return LogEntry(request_id, started_ns, 1, 2, 3, frozenset(), name, "")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_an_entry_before_or_after_the_end_of_the_report(rig: Rig) -> None:
    before, after = rig.begin("a"), rig.begin("b")
    assert rig.joining.log(entry("of a", "a"), 0)
    assert rig.ended == {}
    rig.end(before)
    rig.end(after)
    assert rig.joining.log(entry("of b", "b"), 0)
    assert rig.ended == {before: "of a", after: "of b"}
    assert rig.joining.open == 0


def test_an_entry_before_the_requests_head(rig: Rig) -> None:
    assert not rig.joining.log(entry("early"), 0)
    exchange = rig.begin()
    rig.end(exchange)
    assert rig.ended == {exchange: "early"}


def test_early_entries_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "MAX_EARLY", 2)
    for number in range(3):
        rig.joining.log(entry(str(number), str(number)), 0)
    exchanges = [rig.begin(str(number)) for number in range(3)]
    for exchange in exchanges:
        rig.end(exchange)
    assert rig.ended == dict(zip(exchanges[1:], ("1", "2"), strict=True))


def test_one_id_with_two_starts(rig: Rig) -> None:
    first, second = rig.begin(started_ns=FIRST), rig.begin(started_ns=SECOND)
    rig.end(first)
    rig.end(second)
    rig.joining.log(entry("second", started_ns=SECOND), 0)
    rig.joining.log(entry("first", started_ns=FIRST), 0)
    assert rig.ended == {first: "first", second: "second"}


def test_an_entry_of_another_start_does_not_belong_to_it(rig: Rig) -> None:
    exchange = rig.begin(started_ns=FIRST)
    rig.end(exchange)
    assert not rig.joining.log(entry("other", started_ns=SECOND), 0)
    assert rig.ended == {}


def test_without_a_start_the_id_decides_if_one_has_it(rig: Rig) -> None:
    one = rig.begin("a", None)
    rig.end(one)
    rig.joining.log(entry("of a", "a"), 0)
    assert rig.ended == {one: "of a"}


def test_without_a_start_an_early_entry_may_be_an_earlier_requests(rig: Rig) -> None:
    rig.joining.log(entry("earlier"), 0)
    one = rig.begin(started_ns=None)
    rig.end(one)
    assert rig.ended == {}


def test_an_id_that_two_exchanges_have_decides_nothing(rig: Rig) -> None:
    """Nor for the one that is left: its entry may be the other's."""
    first, second = rig.begin(started_ns=None), rig.begin(started_ns=None)
    rig.end(first)
    rig.joining.log(entry("of one of them"), 0)
    assert rig.ended == {first: Unknown.AMBIGUOUS}
    rig.joining.log(entry("of the other"), 0)
    rig.end(second)
    assert rig.ended == {first: Unknown.AMBIGUOUS, second: Unknown.AMBIGUOUS}


def test_two_entries_for_one_exchange_decide_nothing(rig: Rig) -> None:
    exchange = rig.begin()
    rig.joining.log(entry("one"), 0)
    rig.joining.log(entry("other"), 0)
    rig.end(exchange)
    assert rig.ended == {exchange: Unknown.AMBIGUOUS}


def test_without_an_id_nothing_is_waited_for(rig: Rig) -> None:
    exchange = rig.begin("")
    assert rig.joining.log(entry("any", ""), 0)
    rig.end(exchange)
    assert rig.ended == {exchange: Unknown.NO_ID}


def test_an_entry_that_does_not_come_is_waited_for_no_longer_than_said(rig: Rig) -> None:
    exchange, later = rig.begin("a"), rig.begin("b")
    rig.end(exchange, 5)
    rig.end(later, 6)
    rig.joining.tick(WAIT_NS + 4)
    assert rig.ended == {}
    rig.joining.tick(WAIT_NS + 5)
    assert rig.ended == {exchange: Unknown.MISSING}
    assert not rig.joining.log(entry("late", "a"), WAIT_NS + 5)


def test_a_report_without_an_end_is_waited_for_no_longer_than_said(rig: Rig) -> None:
    exchange = rig.begin()
    rig.joining.log(entry("of it"), 7)
    rig.joining.tick(WAIT_NS + 7)
    assert rig.ended == {exchange: "of it"}


def test_at_a_stop_all_end(rig: Rig) -> None:
    exchange, with_entry = rig.begin("a"), rig.begin("b")
    rig.joining.log(entry("of b", "b"), 0)
    rig.joining.cut()
    assert rig.ended == {exchange: Unknown.STOPPED, with_entry: "of b"}
    rig.joining.update(exchange, 0)
    assert rig.joining.open == 0


STEPS = st.tuples(
    st.sampled_from(("begin", "end", "log", "tick")), st.integers(0, 2), st.sampled_from((FIRST, SECOND, None))
)


@given(st.lists(STEPS, max_size=30))
def test_any_order_ends_each_exchange_once_and_keeps_nothing(steps: list[tuple[str, int, int | None]]) -> None:
    """An entry is never given to two exchanges, and never to one of another id or start."""
    rig, begun, now_ns = Rig(), list[EnvoyExchange](), 0
    for number, (step, which, start) in enumerate(steps):
        now_ns += 1
        match step:
            case "begin":
                begun.append(rig.begin(str(which), start, now_ns))
            case "end" if begun:
                rig.end(begun[which % len(begun)], now_ns)
            case "log":
                rig.joining.log(entry(f"{which} {start or FIRST} {number}", str(which), start or FIRST), now_ns)
            case "tick":
                now_ns += WAIT_NS // 3
                rig.joining.tick(now_ns)
    rig.joining.cut()
    assert rig.ended.keys() == set(begun)
    assert max(Counter(details for details in rig.ended.values() if isinstance(details, str)).values(), default=0) <= 1
    for exchange, details in rig.ended.items():
        if isinstance(details, str):
            request_id, started, _ = details.split()
            assert exchange.request_id == request_id
            assert exchange.started_ns in (None, int(started))
    assert rig.joining.__dict__["_by_key"] == {}
    assert not rig.joining.__dict__["_late_ns"]
