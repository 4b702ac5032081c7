"""The provider simulator: plays scenarios, byte for byte and with their timing.

The `model` of a request selects the scenario, on any path that ends in the scenario's endpoint. So the unmodified official
clients can use it, directly or through a tap. `GET /truth` returns what it did, as a JSON list of `truth.Told`; `GET
/scenarios` returns what it can play.
"""

import argparse
import asyncio
import contextlib
import importlib
import itertools
import json
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping

import msgspec
import uvloop

from streamgauge_demo.provider import Exchange, Provider, whole
from streamgauge_demo.scenario import Answer, Endpoint, Finale, Framing, Scenario
from streamgauge_demo.scenarios import BY_MODEL
from streamgauge_demo.truth import Ended, Told, Wrote
from streamgauge_demo.wire import Write, comment, plan

# Limit of remembered exchanges: more than a demo makes, about 5 KiB each.
MAX_TOLD = 2_000

# A response that is silent, or has comments alone, is ended after this time (seconds), if the other side does not leave
# before.
SILENCE_S = 120.0

_UNKNOWN_MODEL = (
    b'{"error":{"message":"No such model on this path.","type":"not_found_error","code":"model_not_found"}}'
)


class Simulator(Provider):
    """The provider of scenarios. `time_scale` multiplies every delay: 1 is realistic, tests use a fraction."""

    def __init__(self, scenarios: Mapping[str, Scenario] = BY_MODEL, *, time_scale: float = 1.0) -> None:
        super().__init__(self._answer, keeps=False)
        self._scenarios = scenarios
        self._time_scale = time_scale
        self._numbers = itertools.count(1)
        self.told: OrderedDict[str, Told] = OrderedDict()

    async def _answer(self, exchange: Exchange) -> None:
        request = exchange.request
        model = _model(await exchange.read_body())
        scenario = self._scenarios.get(model)
        if request.method == "GET" and request.path == "/truth":
            await whole(msgspec.json.encode(list(self.told.values())))(exchange)
        elif request.method == "GET" and request.path == "/scenarios":
            await whole(msgspec.json.encode(sorted(self._scenarios)))(exchange)
        elif scenario is None or request.method != "POST" or not request.path.endswith(scenario.endpoint):
            await whole(_UNKNOWN_MODEL, 404)(exchange)
        else:
            await self._play(scenario, exchange)

    async def _play(self, scenario: Scenario, exchange: Exchange) -> None:
        truth = self._begin(scenario, exchange)
        ids = {"x-request-id": truth.request_id}
        if scenario.endpoint is Endpoint.MESSAGES:
            ids["request-id"] = truth.request_id  # the header that this format's client reads
        last = exchange.request.headers.get("connection", "").lower() == "close"
        if last:
            ids["connection"] = "close"
        gzip = scenario.answer.gzip and "gzip" in exchange.request.headers.get("accept-encoding", "")
        try:
            left = await self._write_all(plan(scenario.answer, ids, gzip=gzip), exchange, truth)
            truth.ended = Ended.CLIENT_LEFT if left else await self._end(scenario.answer, exchange, truth)
        except ConnectionError:
            truth.ended = Ended.CLIENT_LEFT
        truth.ended_ns = time.monotonic_ns()
        if truth.ended is not Ended.WHOLE or scenario.answer.framing is Framing.CLOSE or last:
            await exchange.end("close")

    def _begin(self, scenario: Scenario, exchange: Exchange) -> Told:
        asked_ns = round(exchange.request.at * 1e9)
        truth = Told(f"req_{next(self._numbers):06d}", scenario.model, exchange.request.path, asked_ns)
        self.told[truth.request_id] = truth
        if len(self.told) > MAX_TOLD:
            self.told.popitem(last=False)
        return truth

    async def _write_all(
        self, writes: Iterable[Write], exchange: Exchange, truth: Told, scale: float | None = None
    ) -> bool:
        """Sends the writes. Returns whether the other side left before the end."""
        scale = self._time_scale if scale is None else scale
        for write in writes:
            if await exchange.left_within(write.delay_s * scale):
                return True
            truth.wrote.append(Wrote(time.monotonic_ns(), len(write.data), write.tokens))
            await exchange.send(write.data)
        return False

    async def _end(self, answer: Answer, exchange: Exchange, truth: Told) -> Ended:
        if answer.finale is Finale.SILENT and await exchange.left_within(SILENCE_S):
            return Ended.CLIENT_LEFT
        if answer.finale is Finale.COMMENTS:
            # Their delay is not scaled: it is compared with a tap's timeout.
            write = comment(answer)
            comments = itertools.repeat(write, int(SILENCE_S / write.delay_s))
            if await self._write_all(comments, exchange, truth, scale=1.0):
                return Ended.CLIENT_LEFT
        if answer.finale is Finale.RESET or not answer.ends:
            await exchange.end("reset")
            return Ended.RESET
        if answer.finale is Finale.EARLY_FIN:
            return Ended.EARLY_FIN
        return Ended.WHOLE


def _model(body: bytes) -> str:
    """The model that a request's JSON asks for; empty if it has none."""
    try:
        request = json.loads(body)
    except ValueError:
        return ""
    return str(request.get("model")) if isinstance(request, dict) else ""


async def serve(
    scenarios: Mapping[str, Scenario], host: str, port: int, time_scale: float, *, until_stdin_ends: bool
) -> None:
    """Runs a simulator alone until SIGTERM, SIGINT or, if asked for, the end of stdin; prints its URL on stdout."""
    simulator = Simulator(scenarios, time_scale=time_scale)
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked_to_stop.set)
    if until_stdin_ends:
        asyncio.get_running_loop().add_reader(sys.stdin, asked_to_stop.set)
    await simulator.start(host, port)
    sys.stdout.write(f"{simulator.url}\n")  # last: a reader of this line may send a signal
    sys.stdout.flush()
    await asked_to_stop.wait()
    await simulator.stop()


def main() -> None:
    """Serve until Ctrl-C, or until stdin ends; the command line of the simulator."""
    parser = argparse.ArgumentParser(description="Simulates LLM providers, with correct and broken streams.")
    parser.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="address; port 0 takes any free one"
    )
    parser.add_argument("--time-scale", type=float, default=1.0, help="factor for all delays")
    parser.add_argument(
        "--scenarios",
        default="streamgauge_demo.scenarios",
        metavar="MODULE",
        help="module whose SCENARIOS are played",
    )
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="stop when stdin is closed, for a parent process"
    )
    arguments = parser.parse_args()
    host, _, port = arguments.listen.rpartition(":")
    scenarios = {scenario.model: scenario for scenario in importlib.import_module(arguments.scenarios).SCENARIOS}
    with contextlib.suppress(KeyboardInterrupt):
        # uvloop: it must be fast, since a tap's stamps are compared with its stamps
        uvloop.run(serve(scenarios, host, int(port), arguments.time_scale, until_stdin_ends=arguments.until_stdin_ends))


if __name__ == "__main__":
    main()
