"""Batches with header names that are not UTF-8 are read like all others."""

import struct

import pytest
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBase, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from streamgauge.kafka.shims.header_names import TolerantRecords, tolerate_header_names

GZIP = DefaultRecordBase.CODEC_GZIP
Story = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def batch(names: list[bytes], codec: int = 0) -> bytes:
    """One record for each name, which its only header has."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=99_999,
    )
    for offset, name in enumerate(names):
        made = builder.append(offset, 0, b"key", b"value", [("~" * len(name), b"text")])
        assert made is not None
    content = bytearray(builder.build())
    if not codec:
        for name in names:
            place = content.find(b"~" * len(name), content.find(b"value"))
            content[place : place + len(name)] = name
        crc = calc_crc32c(bytes(content[DefaultRecordBase.ATTRIBUTES_OFFSET :]))
        struct.pack_into(">I", content, DefaultRecordBase.CRC_OFFSET, crc)
    return bytes(content)


def read(answer: bytes) -> Story:
    records, found = TolerantRecords(answer), Story()
    assert records.size_in_bytes() == len(answer)
    while records.has_next():
        one = records.next_batch()
        assert one.validate_crc()
        assert not one.is_control_batch
        found += [(record.offset, record.key, record.value, list(record.headers)) for record in one]
    assert records.next_batch() is None
    return found


def expected(*names: str) -> Story:
    return [(offset, b"key", b"value", [(name, b"text")]) for offset, name in enumerate(names)]


def test_invalid_utf8_is_replaced_and_nothing_is_skipped() -> None:
    found = read(batch([b"one", b"\xff\xfe", b"three"]))
    assert found == expected("one", "\N{REPLACEMENT CHARACTER}" * 2, "three")


def test_batches_before_and_after_it_are_read() -> None:
    good = batch([b"one", b"two"])
    assert read(good + batch([b"\x80"]) + good) == [
        *expected("one", "two"),
        *expected("\N{REPLACEMENT CHARACTER}"),
        *expected("one", "two"),
    ]
    assert read(good + batch([b"abc"], GZIP)) == [*expected("one", "two"), *expected("~~~")]


def test_other_damage_stays_damage() -> None:
    content = bytearray(batch([b"one"]))
    content[DefaultRecordBase.HEADER_STRUCT.size] ^= 2  # the first record's length
    records = TolerantRecords(bytes(content))
    with pytest.raises(CorruptRecordException):
        list(records.next_batch())


def test_consumers_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "MemoryRecords", fetcher.MemoryRecords)
    tolerate_header_names()
    tolerate_header_names()
    assert fetcher.MemoryRecords is TolerantRecords
