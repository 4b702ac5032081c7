"""The scenarios' expectations, compared with the real recorder and assembler: read off a socket, recorded, assembled."""

import time
from collections.abc import Iterator
from typing import Literal

import msgspec
import pytest

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle, Ending, TransportFault
from streamgauge.core.record import encode_record
from streamgauge.recorder.protocol import ExchangeEnding, RequestBody, RequestSent, RequestStarted, ResponseRead
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings
from streamgauge_demo.scenario import Scenario
from streamgauge_demo.scenarios import BY_MODEL, SCENARIOS
from streamgauge_demo.simulator import Simulator
from streamgauge_demo.verdict import Json, member, record_differences
from tests.demo.raw import Raw, exchange
from tests.demo.running import simulator
from tests.each import each

INSTANCE = bytes(range(16))

ENDINGS = {"complete": Ending.COMPLETE, "early_eof": Ending.RESET, "reset": Ending.RESET, "left": Ending.CLIENT}
FAULTS = {"early_eof": TransportFault.CLOSED, "reset": TransportFault.RESET}

# How far a first token's time may be off on a machine with other load (seconds); usually less than a millisecond.
SLACK_S = 2.0


@pytest.fixture(scope="module")
def running() -> Iterator[Simulator]:
    with simulator() as started:
        yield started


def record(scenario: Scenario, raw: Raw, capture: Literal["masked", "full"]) -> Json:
    recorder, assembler = Recorder(CaptureSettings(capture, "test", bytes(32))), Assembler()
    headers = [(name.lower(), str(value)) for name, value in _extra(scenario).items()]
    target = f"{scenario.endpoint}"
    recorder.handle(RequestStarted(1, raw.asked_ns, time.time_ns(), scenario.upstream, "POST", target, headers))
    recorder.handle(RequestBody(1, raw.request))
    recorder.handle(RequestSent(1, raw.sent_ns, None, len(raw.request), True))
    for stamp, data in raw.reads:
        recorder.handle(ResponseRead(1, stamp, data))
    ending, fault = ENDINGS[raw.end], FAULTS.get(raw.end)
    if scenario.expected.outcome == "timeout":
        ending, fault = Ending.TIMEOUT, TransportFault.IDLE_TIMEOUT
    gone = raw.ended_ns if ending is Ending.CLIENT else None
    recorder.handle(ExchangeEnding(1, raw.ended_ns, ending, gone, fault=fault))
    (made,) = assembler.apply(0, 0, Bundle(INSTANCE, 0, 0, 1, recorder.segments()))
    decoded = msgspec.json.decode(encode_record(made))
    assert isinstance(decoded, dict)
    return decoded


def _extra(scenario: Scenario) -> dict[str, object]:
    headers = scenario.asks.get("extra_headers", {})
    assert isinstance(headers, dict)
    return headers


@pytest.mark.slow
@each(SCENARIOS, lambda scenario: scenario.model)
def test_the_record_is_what_the_scenario_defines(scenario: Scenario, running: Simulator) -> None:
    raw = exchange(scenario, running.url)
    for capture in ("masked", "full"):
        made = record(scenario, raw, "full" if capture == "full" else "masked")
        assert record_differences(scenario, made) == []
        assert made["provider_request_id"] == raw.request_id


def test_the_record_has_the_first_token_when_it_came(running: Simulator) -> None:
    scenario = BY_MODEL["nanogpt/chat-reasoning"]
    raw = exchange(scenario, running.url)
    recorded_s = member(record(scenario, raw, "masked"), "timing.first_token_s")
    true = running.told[str(raw.request_id)].first_token_s()
    assert isinstance(recorded_s, float)
    assert true is not None
    assert 0 <= recorded_s - true < SLACK_S


def test_a_difference_is_reported() -> None:
    """The comparison itself: a record of another scenario is not accepted for this one."""
    with simulator(0) as alone:
        raw = exchange(BY_MODEL["nanogpt/chat-truncated"], alone.url)
    differences = record_differences(
        BY_MODEL["nanogpt/chat-stop"], record(BY_MODEL["nanogpt/chat-truncated"], raw, "masked")
    )
    assert "outcome: 'truncated' instead of 'completed'" in differences
    assert "finish_reason: None instead of 'stop'" in differences
