"""AWS's binary event stream against botocore's reader, in any pieces, damaged and hostile."""

import json
import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.formats.aws_event_stream import (
    MAX_PAYLOAD_BYTES,
    AwsEventReader,
    MessageDecoder,
    is_prelude,
)
from streamgauge.core.formats.sse import CUT_HEAD, CUT_TAIL, Event
from tests.core.cuts import at, places
from tests.core.formats.aws_messages import HOSTILE, alike, botocores, chunk, event, exception, header, message, prelude
from tests.core.formats.framed import read, splits_change_nothing

NAMES = st.text(min_size=1, max_size=8)
HEADERS = st.dictionaries(NAMES, st.text(max_size=20), max_size=4)
PAYLOADS = st.binary(max_size=60)
MESSAGES = st.lists(st.tuples(PAYLOADS, HEADERS), max_size=5)

# Values of headers of the other types, as bytes: true, false, byte, short, integer, long, bytes, timestamp, UUID.
OTHER_TYPES = [
    b"\0", b"\1", b"\2\xff", b"\3\0\1", b"\4\0\0\0\1", b"\5" + bytes(8), b"\6\0\2ab", b"\x08" + bytes(8), b"\x09" + bytes(16)
]  # fmt: skip


def ours(data: bytes) -> tuple[list[tuple[dict[str, str], bytes]], bool]:
    decoder = MessageDecoder()
    messages = decoder.feed(data)
    return [(dict(one.headers), one.content.data or b"") for one in messages], decoder.fault


def texts(headers: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in headers.items() if isinstance(value, str)}


@given(MESSAGES, places())
def test_messages_are_those_of_botocore(messages: list[tuple[bytes, dict[str, str]]], cut: list[int]) -> None:
    data = b"".join(message(payload, headers) for payload, headers in messages)
    theirs, fault = botocores(data)
    decoder = MessageDecoder()
    found = [one for piece in at(data, cut) for one in decoder.feed(piece)]
    assert [(one.headers, one.content.data) for one in found] == [
        (headers, alike(payload)) for headers, payload in theirs
    ]
    assert not fault
    assert not decoder.fault
    assert len(found) == len(messages)


@given(MESSAGES, st.integers(0, 10_000), st.integers(1, 255))
def test_a_flipped_byte_is_a_fault_where_botocore_raises(
    messages: list[tuple[bytes, dict[str, str]]], place: int, flip: int
) -> None:
    data = bytearray(b"".join(message(payload, headers) for payload, headers in messages))
    if not data:
        return
    data[place % len(data)] ^= flip
    (found, fault), (theirs, raised) = ours(bytes(data)), botocores(bytes(data))
    assert [payload for _, payload in found] == [alike(payload) for _, payload in theirs]
    assert fault == raised


@given(st.binary(max_size=200), st.sampled_from((1, 20, 1_000)))
def test_splits_change_nothing_and_nothing_raises(data: bytes, cap: int) -> None:
    splits_change_nothing(lambda: AwsEventReader(cap), event("messageStart", b'{"role":"a"}') + data)
    splits_change_nothing(lambda: AwsEventReader(cap), message(data, {":message-type": "event"}) + chunk(data)[:-1])


@given(st.binary(max_size=40))
def test_headers_that_botocore_refuses_are_a_fault(raw: bytes) -> None:
    theirs, raised = botocores(message(b"{}", raw))
    found, fault = ours(message(b"{}", raw))
    assert fault or not raised
    assert fault or found == [(texts(headers), payload) for headers, payload in theirs]


@pytest.mark.parametrize("value", OTHER_TYPES)
def test_headers_of_other_types_are_passed_over(value: bytes) -> None:
    raw = b"\1x" + value + header("a", "b")
    assert ours(message(b"{}", raw)) == ([({"a": "b"}, b"{}")], False)
    assert texts(botocores(message(b"{}", raw))[0][0][0]) == {"a": "b"}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_damaged_message_is_a_fault_and_nothing_after_it_is_read(data: bytes) -> None:
    good = event("messageStart", b'{"role":"assistant"}')
    events, last, fault = read(AwsEventReader(), [good + data + good, good])
    assert (len(events), last, fault) == (1, None, True)
    splits_change_nothing(AwsEventReader, good + data + good)


def test_a_message_that_has_not_ended_is_pending() -> None:
    whole = event("messageStart", b'{"role":"assistant"}')
    for end in range(1, len(whole)):
        assert read(AwsEventReader(), [whole[:end]]) == ([], Event(data=b""), False)
    assert read(AwsEventReader(), [whole])[1] is None


def test_events_have_the_name_of_their_type() -> None:
    assert read(AwsEventReader(), [event("messageStop", b'{"stopReason":\n"end_turn"}\n')])[0] == [
        Event("messageStop", b'{"stopReason": "end_turn"}')
    ]
    assert read(AwsEventReader(), [event("two\nlines", b"{}")])[0] == [Event("", b"{}")]
    assert read(AwsEventReader(), [message(b"{}")])[0] == [Event("", b"{}")]


def test_an_exception_is_an_error_with_its_type() -> None:
    sent = exception(
        "modelStreamErrorException", {"message": "secret", "originalStatusCode": 429, "originalMessage": "x"}
    )
    failed = message(b"", {":message-type": "error", ":error-code": "InternalError", ":error-message": "secret"})
    unnamed = message(b"[", {":message-type": "exception"})
    found = read(AwsEventReader(), [sent + failed + unnamed])[0]
    assert [event.name for event in found] == ["error"] * 3
    assert [json.loads(event.data or b"")["error"] for event in found] == [
        {"type": "modelStreamErrorException", "status_code": 429},
        {"type": "InternalError", "status_code": None},
        {"type": None, "status_code": None},
    ]


def test_a_models_own_event_comes_out_of_its_base64() -> None:
    own = b'{"type":"message_stop",\n"a":"\xc3\xa9"}'
    assert read(AwsEventReader(), [chunk(own)])[0] == [Event("", own.replace(b"\n", b" "))]


@pytest.mark.parametrize("payload", [b'{"bytes":"%%%"}', b'{"bytes":7}', b"{}", b"[]", b"x", b'{"bytes":"a"}'])
def test_a_chunk_without_an_event_stays_as_it_is(payload: bytes) -> None:
    assert read(AwsEventReader(), [event("chunk", payload)])[0] == [Event("chunk", payload)]


def test_a_payload_over_the_cap_keeps_its_ends_and_its_checksum_is_read() -> None:
    long = b'{"a":"' + b"x" * (2 * CUT_TAIL) + b'"}'
    first, second = read(AwsEventReader(CUT_TAIL), [event("metadata", long) + event("messageStart", b"{}")])[0]
    assert first == Event("metadata", oversized=True, cut=(long[:CUT_HEAD], long[-CUT_TAIL:]))
    assert second == Event("messageStart", b"{}")
    assert read(AwsEventReader(CUT_TAIL), [event("metadata", long)[:-1] + b"\0"])[2]


def test_a_discarded_message_is_oversized() -> None:
    reader, whole = AwsEventReader(), event("metadata", b'{"a":"' + b"x" * 100 + b'"}')
    reader.feed(whole[:-20])
    reader.discard()
    assert reader.feed(whole[-20:] + whole) == [Event("metadata", oversized=True), Event("metadata", whole[-112:-4])]


def test_a_message_of_the_largest_size_takes_bounded_memory() -> None:
    reader, cap = AwsEventReader(64 * 1024), 64 * 1024
    reader.feed(prelude(16 + MAX_PAYLOAD_BYTES, 0))
    tracemalloc.start()
    try:
        for _ in range(600):
            reader.feed(b"x" * 10_000)
        assert tracemalloc.get_traced_memory()[1] < 4 * cap
    finally:
        tracemalloc.stop()


def test_a_prelude_is_known_by_its_checksum() -> None:
    whole = message(b"{}")
    assert is_prelude(whole[:12])
    assert not is_prelude(whole[:11])
    assert not is_prelude(whole[:8] + struct.pack("!I", zlib.crc32(whole[:8]) ^ 1))
