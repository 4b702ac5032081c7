"""Which streams are in doubt after a tap is killed, and what is known about them."""

import asyncio
import time
from typing import Any

import pytest

from tests.chaos.load import LOSS_WINDOW_S, ClientStream, Killed, Truth, ask_on

KILLED = Killed("tap-0", 100.0, 101.0)
BEGAN = KILLED.since - 60


@pytest.mark.parametrize(
    ("began", "ended", "over", "doubt"),
    [
        (BEGAN, BEGAN + 20, BEGAN + 20, None),  # everything was stored
        (BEGAN, KILLED.since - 1, KILLED.since - 1, "open"),  # its end may be in flight
        (BEGAN, KILLED.since - LOSS_WINDOW_S - 1, KILLED.until, "open"),  # it stalled, and the kill ended it
        (KILLED.since - 1, KILLED.since, KILLED.until, "new"),
        (KILLED.until + 1, KILLED.until + 3, KILLED.until + 3, None),  # of the next run
    ],
)
def test_a_stream_is_in_doubt_if_the_tap_was_killed_before_all_of_it_was_stored(
    began: float, ended: float, over: float, doubt: str | None
) -> None:
    client_stream = ClientStream("t-1", "tap-0", began, {}, ended, over)
    assert client_stream.line([KILLED], [("kills", 0.0)])["doubt"] == doubt
    assert client_stream.line([KILLED._replace(source="tap-1")], [("kills", 0.0)])["doubt"] is None


def test_a_stream_begins_no_later_than_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tap that is killed accepts connections until then; a busy client notices only afterwards."""
    over, truth, had = asyncio.Event(), Truth([("kills", 0.0)]), []
    connect = asyncio.open_connection

    async def connect_and_wait(*where: Any) -> Any:
        connected = await connect(*where)
        had.append(time.time())
        await asyncio.sleep(0.01)
        over.set()
        return connected

    async def serve() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setattr(asyncio, "open_connection", connect_and_wait)
        async with server:
            await ask_on("tap-0", lambda: f"http://127.0.0.1:{port}", truth, 1, over)

    asyncio.run(serve())
    assert [one.began_at <= at for one, at in zip(truth.streams, had, strict=True)] == [True]


def test_no_stream_begins_while_the_tap_has_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may listen at the last address of a tap that has ended."""
    over, truth = asyncio.Event(), Truth([("kills", 0.0)])

    async def end(_: float) -> None:
        over.set()

    monkeypatch.setattr(asyncio, "sleep", end)
    asyncio.run(ask_on("tap-0", lambda: "", truth, 1, over))
    assert truth.streams == []


def test_facts_of_a_stream_include_the_kills_of_its_tap() -> None:
    truth = Truth(
        [("kills", 0.0)],
        [ClientStream("t-1", "tap-0", BEGAN, {}, BEGAN + 1), ClientStream("t-2", "tap-1", BEGAN, {})],
        [KILLED],
    )
    (known,) = truth.about(["t-1"])
    assert (known["trace_id"], known["source"], known["doubt"]) == ("t-1", "tap-0", None)
    assert known["kills"] == [[60.0, 61.0]]
    assert [one["kills"] for one in truth.about(["t-2", "t-3"])] == [[]]
