"""A span reaches the receiver, or is lost for a reason that is counted. A slow receiver delays nothing else."""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.record import encode_record
from streamgauge.spans import sender as module
from streamgauge.spans.sender import BUSY, NO_SPAN, QUEUE_FULL, REFUSED, SENT, STOPPED, UNREACHABLE, SpanSender
from streamgauge.spans.span import span_of
from tests.http_serving import serving
from tests.metrics.records import make_record
from tests.ports import free_port
from tests.running import wait_for
from tests.spans.receiver import Answer, Receiver

# What a sender may take to end after a request was answered (seconds).
PATIENCE_S = 60.0


def record(number: int = 1, **changes: Any) -> bytes:
    return encode_record(make_record(stream_id=f"0190b4a0-0000-7000-8000-{number:012d}", **changes))


class Counted(Counter[str]):
    """The results so far."""

    def add(self, result: str, number: int) -> None:
        self[result] += number

    def wait(self, **wanted: int) -> None:
        wait_for(lambda: self.total() >= sum(wanted.values()), f"{wanted}, not {dict(self)}")
        assert {name: number for name, number in self.items() if number} == wanted


@contextlib.contextmanager
def sending(
    url: str, headers: Mapping[str, str] | None = None, *, finish_s: float = PATIENCE_S, **more: Any
) -> Iterator[tuple[SpanSender, Counted]]:
    counted = Counted()
    times = {"request_s": 20.0, "gather_s": 0.05, "pause_s": 0.05, **more}
    sender = SpanSender(url, headers or {}, counted.add, **times)
    try:
        yield sender, counted
    finally:
        sender.close(finish_s)


def test_records_become_spans_of_one_request() -> None:
    with (
        serving(Receiver()) as receiver,
        sending(receiver.url, {"x-key": "k", "Authorization": "Bearer a"}) as (sender, to),
    ):
        sender.put(record(number) for number in range(1, 6))
        to.wait(sent=5)
        assert len({span.span_id for span in receiver.spans}) == 5
        [headers] = receiver.headers
        assert (headers["x-key"], headers["authorization"], headers["content-encoding"]) == ("k", "Bearer a", "gzip")
        [resource] = receiver.resources
        assert {one.key: one.value.string_value for one in resource.attributes}["service.name"] == "streamgauge"


def test_a_url_may_name_the_path() -> None:
    with serving(Receiver()) as receiver, sending(f"{receiver.url}/v1/traces") as (sender, to):
        sender.put([record()])
        to.wait(sent=1)


def test_a_netrc_file_does_not_replace_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serving(Receiver()) as receiver, sending(receiver.url, {"authorization": "Bearer a"}) as (sender, to):
        sender.put([record()])
        to.wait(sent=1)
        assert receiver.headers[0]["authorization"] == "Bearer a"


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_receiver_gets_the_same_spans_again(status: int) -> None:
    """After the time that it names."""
    with serving(Receiver(Answer(status, {"retry-after": "1"}))) as receiver, sending(receiver.url) as (sender, to):
        begun = time.monotonic()
        sender.put([record()])
        to.wait(sent=1)
        assert time.monotonic() - begun >= 1
        assert (len(receiver.headers), len(receiver.spans)) == (2, 1)


@pytest.mark.parametrize("status", [429, 503])
def test_a_receiver_that_stays_busy(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """It asks for a longer wait than a span has: no second request before the pause."""
    answers = [Answer(status, {"retry-after": "3600"})]
    with serving(Receiver(*answers)) as receiver, sending(receiver.url) as (sender, to):
        sender.put([record(1), record(2)])
        to.wait(busy=2)
        assert len(receiver.headers) == 1
        sender.put([record(3)])
        to.wait(busy=2, sent=1)
    assert said(caplog) == [
        f"spans cannot be sent to {receiver.url}/v1/traces (it answers {status}): the receiver is overloaded, or limits its "
        "clients. Lost spans are counted in streamgauge_spans_total, by reason",
        "spans can be sent again; 2 were lost meanwhile",
    ]


# A redirect is not followed: the headers are for the receiver alone.
@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 413, 500])
def test_a_receiver_that_refuses(status: int, caplog: pytest.LogCaptureFixture) -> None:
    with serving(Receiver()) as other:
        answer = Answer(status, {"location": f"{other.url}/v1/traces"})
        with serving(Receiver(answer)) as receiver, sending(receiver.url, {"x-key": "CANARY"}) as (sender, to):
            sender.put([record()])
            to.wait(refused=1)
            assert len(receiver.headers) == 1
        assert other.headers == []
    [sentence] = said(caplog)
    assert f"(it answers {status}): check the path of --otlp, and the headers that the receiver asks for" in sentence
    assert "CANARY" not in caplog.text


def test_a_wrong_path_is_refused() -> None:
    with serving(Receiver()) as receiver, sending(f"{receiver.url}/otlp") as (sender, to):
        sender.put([record()])
        to.wait(refused=1)


def test_spans_that_a_receiver_rejects_are_lost() -> None:
    with serving(Receiver(Answer(rejected=2))) as receiver, sending(receiver.url) as (sender, to):
        sender.put(record(number) for number in range(1, 6))
        to.wait(sent=3, refused=2)


def test_a_receiver_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with sending(url, request_s=0.5) as (sender, to):
        sender.put([record()])
        to.wait(unreachable=1)
        sender.put([record(2)])
        to.wait(unreachable=2)
    [sentence] = said(caplog)
    assert sentence.startswith(
        f"spans cannot be sent to {url}/v1/traces (ConnectionError): check that the receiver runs"
    )


def test_nobody_waits_for_a_slow_receiver(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The queue is bounded, and the end comes in its time."""
    monkeypatch.setattr(module, "MAX_WAITING", 20)
    answers = threading.Event()
    with serving(Receiver(Answer(wait=answers))) as receiver:
        try:
            with sending(receiver.url, finish_s=0.5, request_s=60.0) as (sender, to):
                sender.put([record()])
                wait_for(lambda: receiver.headers, "the first request")
                begun = time.monotonic()
                for number in range(2, 102):
                    sender.put([record(number)])
                assert time.monotonic() - begun < PATIENCE_S / 4
                to.wait(queue_full=80)
                closing = time.monotonic()
            assert time.monotonic() - closing < PATIENCE_S / 2
            assert dict(to) == {QUEUE_FULL: 80, STOPPED: 21}
        finally:
            answers.set()
    assert said(caplog)[-1] == "21 spans were not sent before the end: their records are in the ledger"


def test_an_answer_that_never_comes_is_a_loss() -> None:
    answers = threading.Event()
    with serving(Receiver(Answer(wait=answers), Answer(wait=answers))) as receiver:
        try:
            with sending(receiver.url, request_s=0.5) as (sender, to):
                sender.put([record()])
                to.wait(unreachable=1)
        finally:
            answers.set()


def test_the_queue_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(record())
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 10 * size + 1)
    with serving(Receiver()) as receiver, sending(receiver.url, gather_s=2.0) as (sender, to):
        sender.put(record(number) for number in range(1, 13))
        assert to[QUEUE_FULL] == 2
        to.wait(queue_full=2, sent=10)
        sender.put([record(20)])
        to.wait(queue_full=2, sent=11)


def test_what_waits_is_sent_at_the_end() -> None:
    with serving(Receiver()) as receiver:
        with sending(receiver.url, gather_s=60.0) as (sender, to):
            sender.put(record(number) for number in range(1, 1_001))
        assert dict(to) == {SENT: 1_000}
        assert len(receiver.spans) == 1_000


def test_the_end_does_not_wait_for_retries() -> None:
    with serving(Receiver(*[Answer(503)] * 9)) as receiver:
        with sending(receiver.url, finish_s=0.5, request_s=60.0) as (sender, to):
            sender.put([record()])
            wait_for(lambda: receiver.headers, "a request")
        assert to.total() == 1
        assert to[STOPPED] + to[UNREACHABLE] + to[BUSY] == 1


def test_a_record_that_is_no_span_is_counted_and_the_others_are_sent() -> None:
    with serving(Receiver()) as receiver, sending(receiver.url) as (sender, to):
        sender.put([b"{}", record(1), record(2, started_at=None)])
        to.wait(sent=1, no_span=2)
        sender.put([b"{}"])
        to.wait(sent=1, no_span=3)


def test_a_fault_of_ours_ends_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def broken(*arguments: object) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("CANARY")
        return span_of(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "span_of", broken)
    with serving(Receiver()) as receiver, sending(receiver.url) as (sender, to):
        sender.put([record()])
        to.wait(no_span=1)
        sender.put([record()])
        to.wait(no_span=1, sent=1)
    assert "CANARY" not in caplog.text


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.getMessage() for one in caplog.records if one.name == "streamgauge.spans" and one.levelno >= logging.INFO
    ]


def test_all_results_are_counted_by_one_of_these() -> None:
    assert {SENT, QUEUE_FULL, NO_SPAN, UNREACHABLE, BUSY, REFUSED, STOPPED} == set(module.RESULTS)
