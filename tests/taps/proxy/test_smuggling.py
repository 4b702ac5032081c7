"""H1, H2, H3, S2: raw requests through a real relay, and what the upstream saw, byte for byte (raw_requests.py)."""

import socket
import threading
import time
from collections.abc import Iterator
from itertools import product

import h11
import pytest

from tests.each import each
from tests.taps.proxy.raw_requests import CASES, Case, Refused, forwarded, get
from tests.taps.proxy.rig import (
    PATIENCE_S,
    RawUpstream,
    RunningRelay,
    receive,
    receive_all,
    settings_for,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SENTINEL = get(b"/u0/sentinel")


class Recording:
    """An upstream that keeps every byte, and responds to each request that h11 finds complete in them."""

    def __init__(self) -> None:
        self.talks: list[bytes] = []  # what came on each connection, since `start_over`
        self.requests = 0
        self._open: set[int] = set()
        self._changed = threading.Condition()

    def start_over(self) -> None:
        with self._changed:
            self.talks = [b"" for _ in self.talks]
            self.requests = 0

    def settled(self) -> list[bytes]:
        """The bytes, once all connections but one have ended: that one waits for another request."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._open) <= 1, PATIENCE_S), self.talks
            return [talk for talk in self.talks if talk]

    def __call__(self, one: socket.socket) -> None:
        with self._changed:
            number = len(self.talks)
            self.talks.append(b"")
            self._open.add(number)
        try:
            self._talk(number, one)
        finally:
            one.close()
            with self._changed:
                self._open.discard(number)
                self._changed.notify_all()

    def _talk(self, number: int, one: socket.socket) -> None:
        parser = h11.Connection(h11.SERVER)
        while data := one.recv(65536):
            with self._changed:
                self.talks[number] += data
            parser.receive_data(data)
            while self._is_whole(parser):
                one.sendall(OK)
                parser.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                parser.send(h11.EndOfMessage())
                if parser.states[h11.CLIENT] is not h11.DONE:
                    return
                parser.start_next_cycle()

    def _is_whole(self, parser: h11.Connection) -> bool:
        """Whether a request is complete. Input that h11 refuses ends this thread, so there is no response and the test
        fails.
        """
        while (event := parser.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.EndOfMessage):
                self.requests += 1
                return True
        return False


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningRelay, Recording, bytes]]:
    recording = Recording()
    with RawUpstream(recording) as upstream:
        settings = settings_for(tmp_path_factory.mktemp("relay"), upstream.url + "/base", single=False)
        with RunningRelay(settings) as relay:
            yield relay, recording, b"127.0.0.1:%d" % upstream.port


@each(product(CASES, [1, 2]), lambda sent: f"{sent[0].name} in {sent[1]}")
def test_h1_raw_requests(sent: tuple[Case, int], place: tuple[RunningRelay, Recording, bytes]) -> None:
    """Each request whole, and cut in two."""
    case, pieces = sent
    relay, recording, authority = place
    recording.start_over()
    with relay.connect() as client:
        client.sendall(case.sent[: len(case.sent) // pieces])
        if pieces > 1:
            time.sleep(0.005)
            client.sendall(case.sent[len(case.sent) // pieces :])
        judge_answer(client, case)
    # The next client's own request follows, without a rest of this one.
    sentinel = forwarded(b"/base/sentinel").replace(b"HOST", authority)
    with relay.connect() as client:
        client.sendall(SENTINEL)
        assert receive(client, len(OK)) == OK
    talks = recording.settled()
    assert talks[-1].endswith(sentinel)
    talks[-1] = talks[-1].removesuffix(sentinel)
    judge_talks([talk for talk in talks if talk], case, authority)
    assert recording.requests == 1 + isinstance(case.expected, bytes)


def judge_answer(client: socket.socket, case: Case) -> None:
    if isinstance(case.expected, Refused):
        received = receive_all(client)
        assert received.startswith(b"HTTP/1.1 %d " % case.expected.status), received
        assert b'"code":"%b"' % case.expected.code in received
    else:
        assert receive(client, len(OK)) == OK


def judge_talks(talks: list[bytes], case: Case, authority: bytes) -> None:
    if isinstance(case.expected, bytes):
        assert talks == [case.expected.replace(b"HOST", authority)]
    elif talks:  # it began before it turned out to be malformed
        assert len(talks) == 1 and case.expected.begun.replace(b"HOST", authority).startswith(talks[0])


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 60 and len({case.name for case in CASES}) == len(CASES)


POST = b"POST /u0/v1 HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\nContent-Length: %b\r\n\r\n"


def test_h4_an_empty_length_is_refused_after_any_request(place: tuple[RunningRelay, Recording, bytes]) -> None:
    """A relay that compared heads without the digits of their length once sent the earlier length and no body."""
    relay, recording, authority = place
    recording.start_over()
    usual = POST % b"7" + b'{"a":1}'
    with relay.connect() as client:
        for _ in range(3):
            client.sendall(usual)
            assert receive(client, len(OK)) == OK
        client.sendall(POST % b"")
        assert receive_all(client).startswith(b"HTTP/1.1 400 ")
    with relay.connect() as client:
        client.sendall(POST % b"" + usual)
        assert receive_all(client).startswith(b"HTTP/1.1 400 ")
    with relay.connect() as client:
        client.sendall(SENTINEL)
        assert receive(client, len(OK)) == OK
    want = forwarded(b"/base/v1", b"X-Api-Key: k", b"Content-Length: 7").replace(b"GET", b"POST") + b'{"a":1}'
    assert b"".join(recording.settled()) == (want * 3 + forwarded(b"/base/sentinel")).replace(b"HOST", authority)
