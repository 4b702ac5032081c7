"""Entries of the state across versions: older ones are read, newer formats are refused, and damage is an error."""

import msgspec
import pytest

from streamgauge.core.assembly.assembler import BUCKETS, PRODUCERS, Assembler, bucket_of
from streamgauge.core.assembly.state_codec import (
    STATE_VERSION,
    NewerStateError,
    decode_entry,
    encode_entry,
    offset_of,
)
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.record import encode_record
from tests.streams import bundles_of, interleaved

LOG = bundles_of(interleaved(6))


def half_read() -> Assembler:
    assembler = Assembler()
    for offset, bundle in enumerate(LOG[: len(LOG) // 2]):
        assembler.apply(offset, offset, bundle)
    return assembler


def records(assembler: Assembler, log: list[Bundle], first: int = 0) -> list[bytes]:
    found = [one for at, bundle in enumerate(log, first) for one in assembler.apply(at, at, bundle)]
    return [encode_record(one) for one in found]


def shorter(entry: bytes) -> bytes:
    """The entry as a program wrote it that had no version and lacked the last fields: every stream without its loss."""
    fields = msgspec.msgpack.decode(decode_entry(entry))
    if isinstance(fields[1], dict):
        fields[1] = {name: value[:-2] if len(value) > 10 else value for name, value in fields[1].items()}
    return msgspec.msgpack.encode(fields[:2])


def longer(entry: bytes) -> bytes:
    """The entry as a newer program writes it, with additional fields at the end of each struct."""
    fields = msgspec.msgpack.decode(decode_entry(entry))
    fields[1] = {name: [*value, "added", {"later": 1}] for name, value in fields[1].items()}
    return encode_entry(msgspec.msgpack.encode([*fields, "added"]))


def test_an_entry_has_its_version() -> None:
    entry = half_read().dump(PRODUCERS)
    assert entry[:4] == b"SGS" + bytes((STATE_VERSION,))
    assert offset_of(entry) == len(LOG) // 2 - 1


@pytest.mark.parametrize("change", [bytes, shorter, longer])
def test_state_of_older_and_newer_programs_is_continued(change: "type[bytes]") -> None:
    half = len(LOG) // 2
    expected = records(half_read(), LOG[half:], half)
    before, after = half_read(), Assembler()
    for key in (*range(BUCKETS), PRODUCERS):
        after.load(key, change(before.dump(key)))
    assert after.open_streams == before.open_streams > 0
    assert records(after, LOG[half:], half) == expected


def test_state_of_a_later_format_is_refused_with_its_version() -> None:
    assembler = half_read()
    key = bucket_of(LOG[0].segments[0].stream)
    entry = assembler.dump(key)
    later = b"SGS" + bytes((STATE_VERSION + 1,)) + b"\xc1 another layout"
    for refuse in (lambda: assembler.load(key, later), lambda: offset_of(later)):
        with pytest.raises(NewerStateError, match=rf"a later version wrote the state in format {STATE_VERSION + 1}"):
            refuse()
    assert assembler.dump(key) == entry


@pytest.mark.parametrize("damage", [b"", b"junk", b"SGS", b"SG\x01", b"\x93", b"SGS\x01\xc1"])
def test_bytes_that_are_no_state_are_damage_and_not_a_version(damage: bytes) -> None:
    for refuse in (lambda: Assembler().load(0, damage), lambda: offset_of(damage)):
        with pytest.raises(msgspec.DecodeError) as found:
            refuse()
        assert not isinstance(found.value, NewerStateError)


@pytest.mark.parametrize("none", [b"\x90", b"SGS\x01\x90", b"SGS\x01\x91\xa1\xff", b"SGS\x01" + b"\x91" * 100_000])
def test_an_entry_without_its_offset_is_damage(none: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        offset_of(none)
