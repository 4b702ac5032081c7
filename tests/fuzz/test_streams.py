"""Streams that are damaged in every known way: nothing raises, and no way of sending gives another result."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz import hostile
from tests.fuzz.drawing import PLACES, fuzzed, steps
from tests.fuzz.mutations import DONORS, Step, mutated
from tests.fuzz.streams import CODINGS, CONTENT_TYPES, DIALECTS, ENDINGS, FRAMINGS, STATUSES, Sent, check_stream, stream
from tests.fuzz.targets import short_vectors

VECTORS = st.sampled_from(short_vectors())
SENT = st.builds(Sent, VECTORS, st.sampled_from(FRAMINGS), st.sampled_from(CODINGS), st.integers(0, 1000))
OUTSIDES = st.fixed_dictionaries(
    {
        "ending": st.sampled_from(ENDINGS),
        "status": st.sampled_from(STATUSES),
        "content_type": st.sampled_from(CONTENT_TYPES),
    }
)


def again(sent: Sent, body: bytes, **facts: object) -> Sent:
    """The same with another body, as a stream of its dialect without expectations."""
    vector = stream(sent.vector.dialect, body, **{"ending": sent.vector.ending, **facts})
    return msgspec.structs.replace(sent, vector=vector)


@fuzzed(250)
@given(SENT, steps())
def test_small_hostile_values(sent: Sent, how: list[Step]) -> None:
    check_stream(again(sent, mutated(sent.vector.body, how, hostile.SMALL)))


@fuzzed(40)
@given(SENT, steps(2))
def test_deep_values(sent: Sent, how: list[Step]) -> None:
    check_stream(again(sent, mutated(sent.vector.body, how, hostile.DEEP)))


@fuzzed(25)
@given(SENT, steps(2))
def test_long_values(sent: Sent, how: list[Step]) -> None:
    check_stream(again(sent, mutated(sent.vector.body, how, hostile.LONG)))


def test_an_error_alone_on_a_path_of_several_dialects() -> None:
    body = b'data: {"generation":7}\n\nevent: error\ndata: {"error":{"type":"modelTimeoutException","status_code":null}}\n\n'
    path = next(vector for vector in short_vectors() if vector.dialect == "bedrock-text")
    record = check_stream(again(Sent(path, "length", None, 0), body, target=path.target))
    assert record is not None
    assert (record["dialect"], record["outcome"]) == ("other", "stream_error")


@fuzzed(120)
@given(SENT, steps(2), st.builds(Step, st.just("repeat"), PLACES, PLACES, PLACES), steps(1))
def test_repeated_deltas(sent: Sent, before: list[Step], often: Step, behind: list[Step]) -> None:
    check_stream(again(sent, mutated(sent.vector.body, [*before, often, *behind], hostile.SMALL)))


@fuzzed(100)
@given(SENT, steps(), OUTSIDES)
def test_responses_that_are_not_streams_or_end_badly(sent: Sent, how: list[Step], outside: dict[str, object]) -> None:
    check_stream(again(sent, mutated(sent.vector.body, how, hostile.SMALL), **outside))


@fuzzed(100)
@given(st.lists(st.sampled_from(DONORS), max_size=12), st.sampled_from(DIALECTS), st.integers(0, 1000))
def test_events_of_all_dialects_in_one_stream(blocks: list[bytes], dialect: str, seed: int) -> None:
    check_stream(Sent(stream(dialect, b"".join(blocks)), seed=seed))


# Findings that are not vectors, since no provider reaches their size or place. Each with what it broke.
# Deep enough that the parsed value could not be written again a few frames further up (levels).
NEARLY_TOO_DEEP = range(770, 980, 30)
FOUND: dict[str, tuple[str, bytes]] = {
    "a type that is a list": ("openai-chat", b'{"type":[]}'),
    "a block's type": ("anthropic-messages", b'{"type":"content_block_start","content_block":{"type":{}}}'),
    "an item's type": ("openai-responses", b'{"type":"response.completed","response":{"output":[{"type":[]}]}}'),
    "an error that is a number": ("openai-chat", b'{"error":18446744073709551616}'),
    "a number instead of a tool's name": (
        "openai-chat",
        b'{"choices":[{"delta":{"tool_calls":[{"function":{"name":18446744073709551616}}]}}]}',
    ),
    "an error's request id that is a list": ("openai-chat", b'{"error":{"request_id":["",5]},"request_id":"r"}'),
    "arguments that are a number": (
        "openai-chat",
        b'{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":16}}]}}]}',
    ),
    "the first of two texts is no text": (
        "openai-chat",
        b'{"choices":[{"delta":{"reasoning_details":[{"text":5,"summary":"abc"}]}}]}',
    ),
    "an object whose name only begins right": ("openai-chat", b'{"object":"chat.completion \xc3\xa9"}'),
    "a type that only begins right": ("anthropic-messages", b'{"type":"response.\xc2\x9f"}'),
    "a sequence number elsewhere": ("openai-chat", b'{"object":"chat.completion.chunk","sequence_number":8}'),
    "another's object": ("anthropic-messages", b'{"object":"thread.run"}'),
    "more members than are kept": (
        "openai-chat",
        b"{" + b"".join(b'"k%d":0,' % number for number in range(600)) + b'"choices":[{"delta":{"content":"a"}}]}',
    ),
    "ids that no label shows": (
        "openai-chat",
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"\xc3\xa9","function":{"name":"f"}},'
        b'{"index":0,"id":"\xc3\xa8","function":{"name":"f"}}]}}]}',
    ),
    "a list of errors": ("openai-chat", b'{"error":[{"code":"c"},""]}'),
    "a list of lists as an error": ("anthropic-messages", b'{"type":3,"error":[[{"":""},[[]]],1]}'),
    "an event's id elsewhere": ("openai-chat", b'{"event_id":"4","choices":[]}'),
    "a step's type that only ends right": (
        "gemini-interactions",
        b'{"event_type":"step.start","step":{"type":"~_call"}}',
    ),
    "a fragment that is an object": (
        "anthropic-messages",
        b'{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":{"a":1}}}',
    ),
    "a finish reason that is a zero but no integer": (
        "openai-chat",
        b'{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":0.0}]}',
    ),
    "an error's code that is a zero but no integer": ("openai-chat", b'{"error":{"code":-0.0,"message":"m"}}'),
    **{
        f"arguments of {depth} levels": (
            "anthropic-messages",
            b'{"type":"content_block_start","content_block":{"type":"tool_use","name":"f","input":'
            + b"[" * depth
            + b"]" * depth
            + b"}}",
        )
        for depth in NEARLY_TOO_DEEP
    },
}


@pytest.mark.parametrize("name", FOUND)
def test_earlier_bugs_stay_fixed(name: str) -> None:
    dialect, data = FOUND[name]
    check_stream(Sent(stream(dialect, b"data: " + data + b"\n\n")))


def test_an_error_in_a_list_in_a_whole_answer() -> None:
    """The part kept of a response named an error object only, where a list of them is read as well."""
    body = b'{"object":"response","status":"failed","error":[{"code":"server_error"},[{}]]}'
    check_stream(Sent(stream("openai-responses", body)))


def native(index: int, text: str) -> bytes:
    return b'data: {"index":%d,"content":"%s","stop":false}\n\n' % (index, text.encode())


def output(text: str) -> bytes:
    return b"event: output\ndata: %s\n\n" % text.encode()


def told(usage: bytes, text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}],"usage":%s}\n\n' % (text.encode(), usage)


CHAT = b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"z"}}]}\n\n'
COUNTS = b'{"prompt_tokens":23,"completion_tokens":5}'
WORDS = ("a", "bc", "def", "g", "hi", "jkl")
# Repeated deltas, and among them events that change how the next ones must be read.
STEADY: dict[str, tuple[str, list[bytes]]] = {
    "another dialect between": (
        "llama-cpp-native",
        [*(native(0, word) for word in WORDS), CHAT, *(native(0, word) for word in WORDS)],
    ),
    "another dialect between plain texts": (
        "replicate",
        [*map(output, WORDS), CHAT, *map(output, WORDS), output('{"error":{"type":"e"}}')],
    ),
    "a choice by number": (
        "llama-cpp-native",
        [native(2**65 if place % 2 else 0, word) for place, word in enumerate(WORDS)] + [native(1, "n")] * 3,
    ),
    "a usage that is none": ("openai-chat", [told(b'"many"', word) for word in WORDS]),
    "a usage that changes where no text comes, and back": (
        "openai-chat",
        [told(COUNTS, word) for word in WORDS]
        + [told(b'{"prompt_tokens":6,"completion_tokens":5}', "")]
        + [told(COUNTS, word) for word in WORDS],
    ),
    "a usage in a list": ("openai-chat", [told(b'[{"prompt_tokens":1}]', word) for word in WORDS]),
    "a usage with a count that is none": (
        "openai-chat",
        [told(b'{"prompt_tokens":1,"completion_tokens":-1}', word) for word in WORDS],
    ),
}


@pytest.mark.parametrize("name", STEADY)
def test_earlier_findings_among_deltas(name: str) -> None:
    dialect, events = STEADY[name]
    check_stream(Sent(stream(dialect, b"".join(events))))


@fuzzed(100)
@given(st.binary(max_size=300), st.sampled_from(DIALECTS), st.sampled_from(CODINGS))
@example(b"", DIALECTS[0], None)
def test_any_bytes(body: bytes, dialect: str, coding: str | None) -> None:
    check_stream(Sent(stream(dialect, body), coding=coding))
