"""What an open stream holds is bounded, for any input: each way to make it grow is continued until it must have stopped."""

import json
from collections.abc import Callable

import pytest

from streamgauge.core.assembly.assembler import Assembler, bucket_of
from streamgauge.core.capture.segments import Bundle, Ending, Head, Opening, Read, Segment, StreamEnding
from tests.vectors.drive import INSTANCE

STREAM = bytes(range(16))
# The design's limit for an open stream (bytes): a usual stream must not reach it, however long it is.
USUAL_BYTES = 4 * 1024
# Choices and tool calls are distinguished up to 128 and 64: each has a name, and the position of its arguments' check,
# of at most 256 characters each. This is the most that a stream with all of them can hold (bytes).
CHOICES_BYTES = 128 * 64
TOOLS_BYTES = 64 * (256 + 256 + 64)
# Usage is kept in the provider's form, and so are a few hundred parts of it (bytes).
USAGE_BYTES = 64 * 1024
# What waits for a missing segment: 16 segments of about a bundle (bytes).
WAITING_BYTES = 17 * 64 * 1024

# More events than any limit on distinguished items.
EVENTS = range(600)
# Elements of a list, or members of an object, in each event.
ELEMENTS = 600

Event = Callable[[int], object]


def chat(delta: dict[str, object], **choice: object) -> dict[str, object]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, **choice}]}


def call(number: int, **function: object) -> dict[str, object]:
    return chat({"tool_calls": [{"index": number, "id": f"call_{number}", "function": function}]})


def block(number: int, **content: object) -> dict[str, object]:
    return {"type": "content_block_start", "index": number, "content_block": content}


LONG = "n" * 256
# A way to grow: the content of the n-th event, and the limit of the state at the end (bytes).
WAYS: dict[str, tuple[Event, int]] = {
    "text": (lambda n: chat({"content": "word " * 10}), USUAL_BYTES),
    "choices": (lambda n: {"object": "chat.completion.chunk", "choices": [{"index": n, "delta": {}}]}, CHOICES_BYTES),
    "finish reasons": (lambda n: chat({}, finish_reason=f"{n:0128}"), USUAL_BYTES),
    "models and ids": (
        lambda n: {**chat({}), "id": f"{n:0256}", "model": f"{n:0256}", "service_tier": "t"},
        USUAL_BYTES,
    ),
    "tool calls": (lambda n: call(n, name=LONG, arguments="["), USUAL_BYTES + TOOLS_BYTES),
    "deep tool arguments": (lambda n: call(n % 64, name=LONG, arguments="[" * 300), USUAL_BYTES + TOOLS_BYTES),
    "tool blocks": (lambda n: block(n, type="tool_use", name=LONG, input={}), USUAL_BYTES + TOOLS_BYTES),
    "errors": (lambda n: {"error": {"type": f"{n:0128}", "code": f"{n:0128}", "request_id": f"{n:0256}"}}, USUAL_BYTES),
    "sequence numbers": (lambda n: {"type": "response.created", "sequence_number": 2**52 + n}, USUAL_BYTES),
    "items of an answer": (
        lambda n: {"type": "response.output_text.delta", "output_index": 2**52 + n, "delta": "x"},
        USUAL_BYTES,
    ),
    "items that closing events bring": (
        lambda n: {
            "type": "response.output_item.done",
            "output_index": 2**52 + n,
            "item": {"type": "message", "content": [{"text": "x", "refusal": "x"}]},
        },
        USUAL_BYTES,
    ),
    "usage": (lambda n: {**chat({}), "usage": {"prompt_tokens": n, f"unknown_{n}": n, "cost": 0.1}}, USUAL_BYTES),
    "usage parts": (
        lambda n: {
            "type": "message_delta",
            "usage": {"iterations": [{"type": "c" * 128, "model": LONG, "input_tokens": n}] * ELEMENTS},
        },
        USUAL_BYTES + USAGE_BYTES,
    ),
    "members of usage parts": (
        lambda n: {"type": "message_delta", "usage": {"iterations": [{f"k{one}": n for one in range(500)}] * 40}},
        USUAL_BYTES + USAGE_BYTES,
    ),
    "details of Gemini's usage": (
        lambda n: {
            "candidates": [],
            "usageMetadata": {"promptTokensDetails": [{"modality": "TEXT", "tokenCount": n}] * 9_000},
        },
        USUAL_BYTES + USAGE_BYTES,
    ),
    "Gemini's calls": (
        lambda n: {"candidates": [{"content": {"parts": [{"functionCall": {"name": LONG, "args": {}}}] * 9}}]},
        USUAL_BYTES + TOOLS_BYTES,
    ),
    "tool calls of all choices": (
        lambda n: {
            "object": "chat.completion.chunk",
            "choices": [
                {
                    "index": n % 128,
                    "delta": {"tool_calls": [{"index": one, "function": {"name": LONG}} for one in range(64)]},
                }
            ],
        },
        CHOICES_BYTES + 4 * TOOLS_BYTES,
    ),
}
# Given in one event, and too expensive to be sent again and again.
ONCE = ("usage parts", "members of usage parts", "details of Gemini's usage")


def state_bytes(segments: list[Segment]) -> int:
    """The largest state of an open stream, as it is persisted."""
    assembler, most = Assembler(), 0
    for number, segment in enumerate(segments):
        assembler.apply(number, number, Bundle(INSTANCE, 0, number, number, [segment]))
        most = max(most, len(assembler.dump(bucket_of(STREAM))))
    return most


def opened(content: bytes, number: int = 0) -> Segment:
    opening = Opening("proxy", "1", "full", path="/chat/completions") if number == 0 else None
    return Segment(STREAM, number, opening, None, Head(200, 1, event_stream=True), [Read(number, 1, 1, content)])


def written(event: Event, numbers: range) -> bytes:
    return b"".join(b"data: " + json.dumps(event(number)).encode() + b"\n\n" for number in numbers)


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_stops_growing(way: str) -> None:
    event, most = WAYS[way]
    size = state_bytes([opened(written(event, EVENTS[:1] if way in ONCE else EVENTS))])
    assert size <= most, f"{size} bytes"


@pytest.mark.parametrize(
    "content",
    [b": ping\n\n", b"id: 9\n\n", b"error: {}\n\n", b"event: x\n\n", b"data: 1\n\n", b"data: [DONE]\n\n", b"{}\n\n"],
)
def test_events_without_output_cost_nothing(content: bytes) -> None:
    assert state_bytes([opened(content * 600, number) for number in range(4)]) <= USUAL_BYTES


def test_one_token_a_read_costs_no_more_than_the_stored_gaps() -> None:
    word = written(WAYS["text"][0], range(1))
    reads = [Read(number * 12_345_678_901, 1, 1, word) for number in range(2_000)]
    assert state_bytes([Segment(STREAM, 0, None, None, None, reads)]) <= USUAL_BYTES


def test_what_waits_for_a_missing_segment_is_bounded() -> None:
    """As many segments as may wait, each with a whole bundle of events."""
    content = written(WAYS["text"][0], range(400))
    ahead = [opened(content, number) for number in range(2, 40)]
    assert state_bytes([opened(b""), *ahead]) <= WAITING_BYTES


def test_waiting_bodies_are_bounded() -> None:
    """The end of a stream has the whole body of a response that is not an event stream: the state must not keep it while
    it waits.
    """
    end = StreamEnding(Ending.COMPLETE, body=b'{"a":"' + b"x" * (4 * 1024 * 1024) + b'"}')
    last = Segment(STREAM, 2, end=end)
    assert state_bytes([opened(b""), last]) <= WAITING_BYTES
