"""A bucket's state fits a message even with forged streams: the largest streams are closed, and a replay closes the
same.
"""

import random
from unittest.mock import patch

import msgspec
import pytest

from streamgauge.core.assembly import assembler as assembling
from streamgauge.core.assembly import state_size
from streamgauge.core.assembly.assembler import PRODUCERS, Assembler, Bucket, bucket_of
from streamgauge.core.assembly.state_codec import decode_entry
from streamgauge.core.assembly.state_size import FEW_STREAMS, MAX_BUCKET_BYTES
from streamgauge.core.capture.segments import Bundle, Head, Opening, RateLimit, Read, RequestFacts, Segment
from streamgauge.core.record import Record, encode_record
from streamgauge.kafka.topics import MAX_STATE_BYTES
from tests.streams import INSTANCE, bundles_of, chat_segments, opening, stream_id

WORD = "😀" * 4096
FAT = Segment(
    b"",
    0,
    Opening(
        WORD, WORD, "full", WORD, WORD, 1, WORD, WORD, WORD, 1, WORD, 1, WORD, WORD, ((WORD[:32], WORD[:256]),) * 8
    ),
    RequestFacts(model=WORD, service_tier=WORD, digest=WORD),
    Head(200, 0, True, WORD, None, WORD, WORD, WORD, RateLimit(*[2**53] * 6)),
)
# Choices and tools with names of the largest kept length.
CALL = b'{"index":0,"id":"call","function":{"name":"%s","arguments":"%s"}}' % (b"n" * 256, b"[" * 256)
CALLS = b"".join(b'data: {"choices":[{"index":%d,"delta":{"tool_calls":[%s]}}]}\n\n' % (at, CALL) for at in range(128))
TALKING = Segment(b"", 0, opening(), head=Head(200, 0, True), reads=[Read(1, 1, 1, CALLS)])


def fat(number: int, like: Segment) -> Segment:
    """One of many streams that are all in bucket 0."""
    return msgspec.structs.replace(like, stream=bytes(12) + number.to_bytes(3, "big") + b"\0")


def test_the_uncounted_content_of_a_stream_is_bounded_as_documented() -> None:
    assembler = Assembler()
    assembler.apply(0, 0, Bundle(INSTANCE, 0, 0, 0, [fat(1, TALKING)]))
    assert 60_000 < len(assembler.dump(0)) < 100_000
    assembler.apply(1, 1, Bundle(INSTANCE, 0, 1, 0, [fat(2, FAT)]))
    assert FEW_STREAMS * 100_000 + 400_000 < MAX_STATE_BYTES - MAX_BUCKET_BYTES
    assert 280_000 < len(assembler.dump(0)) - 60_000 < 400_000 - 60_000


@pytest.mark.slow
@pytest.mark.parametrize("like", [FAT, TALKING], ids=["words", "calls"])
def test_a_forged_bundle_does_not_fill_a_bucket(like: Segment) -> None:
    assembler = Assembler()
    honest = msgspec.structs.replace(chat_segments(1)[0], stream=bytes(15) + b"\x40")
    assert assembler.apply(0, 0, Bundle(INSTANCE, 0, 0, 0, [honest])) == []
    records: list[Record] = []
    largest = 0
    for at in range(1, 11):
        first = [fat(20 * at + number, msgspec.structs.replace(like, reads=[])) for number in range(20)]
        then = [msgspec.structs.replace(one, number=1, reads=like.reads, opening=None, request=None) for one in first]
        records += assembler.apply(at, at, Bundle(b"f" * 16, 0, at, 0, [*first, *then]))
        largest = max(largest, len(assembler.dump(0)))
    assert 2**20 < largest < MAX_STATE_BYTES
    assert len(records) + assembler.open_streams == 201
    assert {tuple(record.integrity.reasons) for record in records} == {("no_end", "state_limit")}
    assert honest.stream.hex() not in {record.stream_id.replace("-", "") for record in records}, "small streams stay"


def test_a_replay_closes_the_same_streams() -> None:
    """Small bounds, ordinary and large streams mixed; state is saved from time to time, and the log is read again from
    there.
    """
    chance = random.Random(7)
    queues = [chat_segments(64 * number, tokens=30) for number in range(40)]
    mixed: list[Segment] = []
    while queues := [queue for queue in queues if queue]:
        mixed.append(chance.choice(queues[:12]).pop(0))
    log = bundles_of(mixed, per_bundle=4)
    key = bucket_of(stream_id(64))
    with patch.object(assembling, "MAX_BUCKET_BYTES", 20_000), patch.object(state_size, "KEPT_BUCKET_BYTES", 2_000):
        once = Assembler()
        wanted = [[encode_record(one) for one in once.apply(at, at, bundle)] for at, bundle in enumerate(log)]
        assert b"state_limit" in b"".join(map(b"".join, wanted))
        assert b'"complete":true' in b"".join(map(b"".join, wanted))
        for every in (1, 3, 7):
            assembler, saved, at = Assembler(), dict[int, bytes](), 0
            records: list[list[bytes]] = [[] for _ in log]
            crashes = set(range(0, len(log), 11))
            while at < len(log):
                found = [encode_record(one) for one in assembler.apply(at, at, log[at])]
                records[at] = found or records[at]
                at += 1
                if at % every == 0:
                    saved = {one: assembler.dump(one) for one in (key, PRODUCERS)}
                if at in crashes and saved:
                    crashes.discard(at)
                    assembler = Assembler()
                    for one, value in saved.items():
                        assembler.load(one, value)
                    at = assembler.applied_offset(PRODUCERS) + 1
            assert records == wanted
            assert assembler.dump(key) == once.dump(key)


def test_a_state_without_a_size_gets_its_encoded_size() -> None:
    """The state of a program that did not count: its size is the number of its bytes."""
    assembler = Assembler()
    assembler.apply(0, 0, Bundle(INSTANCE, 0, 0, 0, [fat(1, FAT)]))
    bucket = bucket_in(assembler.dump(0))
    older = msgspec.msgpack.encode([bucket.applied_offset, bucket.streams, bucket.closed])
    again = Assembler()
    again.load(0, older)
    assert bucket_in(again.dump(0)).size == len(older) > 200_000


def bucket_in(dumped: bytes) -> Bucket:
    return msgspec.msgpack.decode(decode_entry(dumped), type=Bucket)
