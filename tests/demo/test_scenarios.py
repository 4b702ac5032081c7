"""The table of scenarios: complete, consistent, and each format as its documentation has it."""

import json
from collections import defaultdict

from streamgauge_demo.providers import gateway, local, nanogpt, nimbus, sansa
from streamgauge_demo.scenario import EVENT_STREAM, Endpoint, Scenario
from streamgauge_demo.scenarios import BY_MODEL, SCENARIOS, UPSTREAMS
from tests.each import each


def body(model: str) -> bytes:
    return b"".join(piece.data for piece in BY_MODEL[model].answer.pieces)


def payloads(model: str) -> list[dict[str, object]]:
    """The JSON of each event of a stream with LF line ends and single data lines."""
    lines = [line for line in body(model).decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line[6:]) for line in lines if line != "data: [DONE]"]


def test_every_model_is_there_once_and_names_its_upstream() -> None:
    assert len(BY_MODEL) == len(SCENARIOS)
    assert UPSTREAMS == ("nanogpt", "nimbus", "sansa", "gateway", "local")
    for table in (nanogpt, nimbus, sansa, gateway, local):
        assert {scenario.upstream for scenario in table.SCENARIOS} == {table.__name__.rpartition(".")[2]}


def test_each_provider_format_has_a_good_and_a_bad_ending() -> None:
    outcomes: dict[tuple[str, Endpoint], set[bool]] = defaultdict(set)
    for scenario in SCENARIOS:
        outcomes[scenario.upstream, scenario.endpoint].add(scenario.expected.outcome == "completed")
    assert set(outcomes) == {
        ("nanogpt", Endpoint.CHAT),
        ("nanogpt", Endpoint.MESSAGES),
        ("nanogpt", Endpoint.RESPONSES),
        ("nimbus", Endpoint.CHAT),
        ("nimbus", Endpoint.MESSAGES),
        ("sansa", Endpoint.CHAT),
        ("gateway", Endpoint.CHAT),
        ("local", Endpoint.CHAT),
        ("local", Endpoint.COMPLETIONS),
    }
    assert all(kinds == {True, False} for kinds in outcomes.values())


def test_every_outcome_that_a_tap_can_see_is_played() -> None:
    seen = {scenario.expected.outcome for scenario in SCENARIOS}
    kinds = {"completed", "http_error", "stream_error", "truncated", "upstream_reset", "client_abort", "timeout"}
    assert seen == kinds


@each(SCENARIOS, lambda scenario: scenario.model)
def test_events_are_whole_unless_the_stream_breaks(scenario: Scenario) -> None:
    if scenario.answer.content_type != EVENT_STREAM or scenario.expected.outcome not in ("completed", "stream_error"):
        return
    end = b"\r\n\r\n" if scenario.model == "nanogpt/chat-crlf" else b"\n\n"
    assert b"".join(piece.data for piece in scenario.answer.pieces).endswith(end)


def test_nanogpt_names_events_on_messages_only() -> None:
    assert b"event: message_stop\ndata: " in body("nanogpt/messages-stop")
    assert b"event:" not in body("nanogpt/responses-stop")
    assert body("nanogpt/responses-stop").endswith(b"data: [DONE]\n\n")


def test_nanogpt_numbers_the_events_of_a_response() -> None:
    numbers = [payload["sequence_number"] for payload in payloads("nanogpt/responses-stop")]
    assert numbers == list(range(len(numbers)))


def test_nanogpt_sends_crlf_and_json_on_two_lines() -> None:
    sent = body("nanogpt/chat-crlf")
    assert sent.count(b"\n") == sent.count(b"\r\n")
    assert b',\r\ndata: "choices"' in sent


def test_nimbus_numbers_messages_and_continues_after_the_requested_position() -> None:
    ids = [int(line[4:]) for line in body("nimbus/messages-stop").split(b"\n") if line.startswith(b"id: ")]
    assert ids == list(range(1, len(ids) + 1))
    assert body("nimbus/messages-resumed").startswith(b"id: %d\n" % (nimbus.RESUMED_AFTER + 1))
    assert body("nimbus/messages-stop").endswith(body("nimbus/messages-resumed"))


def test_nimbus_ends_a_failing_stream_with_its_error_event() -> None:
    for model in ("nimbus/chat-error", "nimbus/messages-error"):
        last = body(model).rstrip(b"\n").split(b"\n\n")[-1]
        assert b'event: error\ndata: {"type":"error","error":{"type":"upstream_error"' in last


def test_sansa_routes_on_the_first_chunk_only() -> None:
    first, *others = payloads("sansa/auto-stop")
    assert first["sansa"] == {"routed": True, "routed_model": sansa.MODEL, "routing_latency_ms": 287}
    assert not any("sansa" in chunk for chunk in others)


def test_sansa_sends_done_after_its_error() -> None:
    sent = body("sansa/error-mid-stream")
    assert sent.endswith(b'"choices":[{"finish_reason":"error"}]}\n\ndata: [DONE]\n\n')


def test_the_gateway_names_its_model_on_the_first_chunk_only() -> None:
    first, *others = payloads("gateway/length")
    assert first["model"] == gateway.MODEL
    assert not any("model" in chunk for chunk in others)


def test_the_local_server_sends_errors_without_an_error_member() -> None:
    assert body("local/chat-error").endswith(
        b'event: error\ndata: {"message": "context overflow", "type": "server_error"}\n\n'
    )


def test_the_local_server_ends_text_with_done_only() -> None:
    assert b"finish_reason" not in body("local/text-stop")
    assert body("local/text-stop").endswith(b"data: [DONE]\n\n")
