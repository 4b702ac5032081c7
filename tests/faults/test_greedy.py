"""One client or upstream uses as much as it can: the records of other streams, and their times, stay the same."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from streamgauge_demo.provider import Exchange, Provider, head
from tests.client import request, talk
from tests.faults.scripted import CHAT, MIB, connect
from tests.running import Running, start_up, wait_for

# The shortest event with data, and the same in many forms; 100,000 and more in a response of a MB.
TINY = (b"data:x\n\n", b":\n\n", b"data: {}\n\n", b'data: "\\ud800"\n\n')
# A record within this time (seconds) came before the floods', which take a minute. Alone it takes one second.
IN_TIME_S = 20.0
INCIDENT = 'streamgauge_tap_incidents_total{kind="body_capped"}'


ORDINARY = (
    b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"},'
    b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)

# Half of what the relay holds for a recorder that is behind (bytes).
_STEP_BYTES = 8 * MIB


class Upstream(Provider):
    """Answers `/N/v1/chat/completions` with flood number N, any other path with an ordinary response."""

    def __init__(self, floods: Sequence[bytes] = ()) -> None:
        super().__init__(self._play)
        self._floods = floods

    async def _play(self, exchange: Exchange) -> None:
        await exchange.read_body(keep=False)
        first = exchange.request.path.split("/")[1]
        body = self._floods[int(first)] if first.isdigit() else ORDINARY
        await exchange.send(head(framing=len(body), headers={"connection": "close"}) + body)
        await exchange.end("close")

    def has_received(self, size: int) -> bool:
        return self.received >= size

    @property
    def received(self) -> int:
        """The bytes of all requests' bodies so far."""
        return sum(exchange.received for exchange in self.exchanges)


def ask(up: Running, path: str = "", body: bytes = b'{"model":"m-1","n":1}') -> int:
    """A chat through the tap, to its end; gives the bytes of the response."""
    asked = request(f"{path}{CHAT}", body, headers="Connection: close\r\n")
    return asyncio.run(talk(up.url, [asked], to_close=True)).size


@contextlib.contextmanager
def stalled_uploads(up: Running, upstream: Upstream, count: int) -> Iterator[int]:
    """Requests of which 16 MiB have been sent, and more are announced. The relay has read all of these bytes, and its
    recorder reads them before those of a later request. Yields how many ordinary requests were made.
    """
    opening = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: {2 * _STEP_BYTES + 1_000_000}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for step in range(2 * count):
            if step:
                # The record of a later request shows that the recorder has read the step before: little waits for it.
                ask(up)
                up.wait_for_records(step)
            if step % 2 == 0:
                client = stack.enter_context(connect(up))
                client.sendall(opening)
            expected = upstream.received + _STEP_BYTES
            client.sendall(b"a" * _STEP_BYTES)
            wait_for(partial(upstream.has_received, expected), f"{expected} bytes at the upstream")
        yield step


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture
def up(upstream: Upstream, data_dir: Path) -> Iterator[Running]:
    with start_up(upstream.url, data_dir) as running:
        yield running
        assert running.stop() == 0, running.log


def test_uploads_that_stall_do_not_take_the_request_facts_of_others(up: Running, upstream: Upstream) -> None:
    """Sixteen of 16 MiB use the whole memory of a recorder."""
    with stalled_uploads(up, upstream, 16) as ordinary:
        body = b'{"model":"m-1","n":1,"stream":true,"pad":"%s"}' % (b"p" * 200_000)
        for _ in range(3):
            assert ask(up, body=body) > len(ORDINARY)
        honest = up.wait_for_records(ordinary + 3)[ordinary:]
    for record in honest:
        assert record["request_model"] == "m-1"
        assert record["request"]["n"] == 1
        assert record["request"]["stream"] is True
        assert record["request_digest"]
        assert record["integrity"] == {**record["integrity"], "complete": True, "reasons": []}
    stalled = [record for record in up.wait_for_records(ordinary + 19) if record["outcome"] == "client_abort"]
    assert len(stalled) == 16
    capped = [record for record in stalled if record["integrity"]["reasons"]]
    assert 1 <= len(capped) <= 4
    assert {tuple(record["integrity"]["reasons"]) for record in capped} == {("request_capped",)}
    assert wait_for(lambda: up.metrics().get(INCIDENT) == len(capped), "the incidents")


@pytest.mark.parametrize(("count", "size"), [(4, 4 * MIB), (40, MIB // 2)])
def test_p5_floods_of_tiny_events_do_not_delay_the_records_of_others(data_dir: Path, count: int, size: int) -> None:
    floods = [event * (size // len(event)) for event in TINY]
    with Upstream(floods) as upstream, start_up(upstream.url, data_dir) as up:
        asking = [threading.Thread(target=ask, args=(up, f"/{number % len(floods)}")) for number in range(count)]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
        began = time.monotonic()
        assert ask(up) > len(ORDINARY)

        def ordinary() -> list[dict[str, object]]:
            return [
                record for record in up.records() if record["request_model"] == "m-1" and record["counts"]["text_chars"]
            ]

        (record,) = wait_for(ordinary, "record")
        assert time.monotonic() - began < IN_TIME_S
        assert record["integrity"] == {**record["integrity"], "complete": True, "reasons": []}
        assert up.metrics()["streamgauge_tap_reads_waiting"] > 0, "the flood had already ended"
        assert up.stop() == 0, up.log
        found = up.records()
    assert len(found) == count + 1
    for flood in found:
        lost = flood["integrity"]["dropped_reads"]
        assert flood["integrity"]["reasons"] == (["dropped_reads"] if lost else [])
