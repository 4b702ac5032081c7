"""Clients that send requests continuously, through taps that may be killed, and write the truth file.

The truth comes from the requests and from what was read: a scenario defines what its provider sends, and a stream counts
only once its response has ended. Nothing here is taken from Streamgauge's output.
"""

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from streamgauge_demo.scenario import Scenario
from tests.chaos.upstream import SCENARIOS
from tests.demo.raw import request_bytes

# What a kill of a whole tap may lose is in flight for one to two seconds (docs/reliability.md); on a busy machine it
# may take longer until it is stored (seconds).
LOSS_WINDOW_S = 5.0
# The delay before a tap that is unreachable is tried again (seconds).
_RETRY_S = 0.2
# A stream that takes longer than this hangs (seconds): the longest here takes half a minute.
_PATIENCE_S = 180.0
_READ_BYTES = 65_536


@dataclass
class ClientStream:
    """One stream, as its client saw it. Times are Unix seconds; `truth`: its expected record.

    `ended_at`: its last byte. `over_at`: its connection's end, if it has one, which is much later for a stream that
    stalls.
    """

    trace_id: str
    source: str
    began_at: float
    truth: dict[str, Any]
    ended_at: float | None = None
    over_at: float | None = None

    def line(self, killed: Sequence["Killed"], phases: Sequence[tuple[str, float]]) -> dict[str, Any]:
        """Its line of the truth file. `phases`: name and beginning; a stream belongs to the one in which it ended."""
        ended = self.ended_at or self.began_at
        phase = next(name for name, at in reversed(phases) if at <= ended)
        times = {"phase": phase, "began_at": self.began_at, "ended_at": self.ended_at}
        return {"trace_id": self.trace_id, **self.truth, **times, "doubt": self._doubt(killed, self.over_at or ended)}

    def _doubt(self, killed: Sequence["Killed"], over: float) -> str | None:
        under = [
            kill
            for kill in killed
            if kill.source == self.source and self.began_at <= kill.until and kill.since <= over + LOSS_WINDOW_S
        ]
        if not under:
            return None
        return "new" if under[0].since < self.began_at + LOSS_WINDOW_S else "open"


class Killed(NamedTuple):
    """A tap that was killed: all of its processes ended between the two times (Unix seconds)."""

    source: str
    since: float
    until: float


@dataclass
class Truth:
    """All streams, and the kills of taps."""

    phases: list[tuple[str, float]] = field(default_factory=list)
    streams: list[ClientStream] = field(default_factory=list)
    killed: list[Killed] = field(default_factory=list)

    def enter(self, phase: str) -> None:
        """Streams that end from now on belong to this phase. Called before the first stream."""
        self.phases.append((phase, time.time()))

    def begin(self, source: str, truth: dict[str, Any], began_at: float | None = None) -> ClientStream:
        """A stream that begins now, or began at `began_at` (Unix seconds)."""
        client_stream = ClientStream(uuid.uuid4().hex, source, time.time() if began_at is None else began_at, truth)
        self.streams.append(client_stream)
        return client_stream

    def about(self, trace_ids: Iterable[str]) -> list[dict[str, Any]]:
        """All that is known about streams: `kills` are those of its tap, in seconds from the stream's beginning."""
        wanted = set(trace_ids)
        return [
            stream.line(self.killed, self.phases)
            | {"source": stream.source, "over_at": stream.over_at}
            | {
                "kills": [
                    [round(at - stream.began_at, 3) for at in (kill.since, kill.until)]
                    for kill in self.killed
                    if kill.source == stream.source
                ]
            }
            for stream in self.streams
            if stream.trace_id in wanted
        ]

    def write(self, path: Path) -> None:
        """The truth file, one line a stream."""
        path.write_text("".join(json.dumps(stream.line(self.killed, self.phases)) + "\n" for stream in self.streams))


def truth_of(scenario: Scenario) -> dict[str, Any]:
    """The expected record of a scenario."""
    expected, usage = scenario.expected, scenario.expected.usage
    return {
        "outcome": expected.outcome,
        "finish_reason": expected.finish,
        "token_events": expected.content.token_events,
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "total_tokens": usage.total,
        "usage_source": usage.source,
    }


async def ask_on(source: str, url: Callable[[], str], truth: Truth, seed: int, over: asyncio.Event) -> None:
    """One stream after another through the tap `source` at `url()` (waits while that is ""), until the load ends."""
    chance = random.Random(seed)
    while not over.is_set():
        scenario = chance.choice(SCENARIOS)
        address = urlsplit(url())
        if not address.hostname:
            await asyncio.sleep(_RETRY_S)
            continue
        # The kernel may accept a connection for a tap that ends at that moment: the stream began before, whenever it is
        # noticed here.
        began_at = time.time()
        try:
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
        except OSError:  # the tap is unreachable: no stream began
            await asyncio.sleep(_RETRY_S)
            continue
        client_stream = truth.begin(source, truth_of(scenario), began_at)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await _ask(reader, writer, scenario, client_stream)
        finally:
            writer.close()


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, scenario: Scenario, client_stream: ClientStream
) -> None:
    head, body = request_bytes(scenario, f"/{scenario.upstream}")
    trace = f"\r\ntraceparent: 00-{client_stream.trace_id}-{client_stream.trace_id[:16]}-01\r\n\r\n"
    writer.write(head.removesuffix(b"\r\n\r\n") + trace.encode() + body)
    leaves_after = _events(b"".join(piece.data for piece in scenario.answer.pieces)) if scenario.leave_after else None
    received = b""
    try:
        while data := await reader.read(_READ_BYTES):
            client_stream.ended_at = time.time()
            received += data
            if leaves_after is not None and _events(received) >= leaves_after:
                break
    except ConnectionError:  # planned, or because the tap was killed: the time decides which
        pass
    client_stream.over_at = time.time()
    client_stream.ended_at = client_stream.ended_at or client_stream.over_at


def _events(data: bytes) -> int:
    """The approximate number of events that have arrived: exact when all have."""
    return data.count(b"\n\n")
