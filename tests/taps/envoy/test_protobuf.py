"""The reader of protocol buffers: against Google's own library, and with hostile bytes."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from streamgauge.taps.envoy.protobuf import ProtobufFault, fields, signed
from tests.taps.envoy.schema import MESSAGES

ANY = st.one_of(
    st.binary(max_size=60),
    # Bytes that often are messages: tags of small fields, lengths, and what follows.
    st.lists(
        st.one_of(
            st.builds(lambda number, kind: bytes([number << 3 | kind]), st.integers(0, 15), st.integers(0, 7)),
            st.binary(max_size=4),
            st.builds(lambda data: bytes([len(data)]) + data, st.binary(max_size=9)),
        ),
        max_size=12,
    ).map(b"".join),
)


@given(ANY)
@example(b"\x0b\x0c")  # a group
@example(b"\x0b\x13\x14\x0c")
@example(b"\x0b\x14")  # ends another
@example(b"\x0c")
@example(b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x00")
@example(b"\xfa\xff\xff\xff\x0f\x00")  # the largest number of a field
@example(b"\xfa\xff\xff\xff\x1f\x00")  # a larger one
def test_it_reads_what_the_reference_reads(data: bytes) -> None:
    """HttpTrailers has one field, whose content is a message of its own; Time has only numbers: others are unknown."""
    try:
        MESSAGES["Time"].FromString(data)
        is_message = True
    except DecodeError:
        is_message = False
    try:
        read = list(fields(data))
        assert is_message, read
    except ProtobufFault:
        assert not is_message


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_numbers_are_those_that_were_written(seconds: int, nanos: int) -> None:
    written = MESSAGES["Time"](seconds=seconds, nanos=nanos).SerializeToString()
    read = {number: signed(value) for number, value in fields(written) if isinstance(value, int)}
    assert (read.get(1, 0), read.get(2, 0)) == (seconds, nanos)


@given(st.binary(max_size=300), st.booleans())
def test_bytes_are_those_that_were_written(data: bytes, ends: bool) -> None:
    written = MESSAGES["HttpBody"](body=data, end_of_stream=ends).SerializeToString()
    read = dict(fields(written))
    assert (read.get(1, b""), bool(read.get(2, 0))) == (data, ends)


def test_fixed_numbers_are_little_endian() -> None:
    assert list(fields(b"\x09\x01\x02\0\0\0\0\0\0\x15\x03\0\0\0")) == [(1, 0x201), (2, 3)]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # 2**63 - 1 bytes
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # 2**64 - 1
        b"\x0a\x02x",
        b"\x09\0\0\0\0\0\0\0",
        b"\x0d\0\0\0",
        b"\x08",
        b"\x08\x80",
        b"\x08" + b"\xff" * 10,
        b"\x0f",
        b"\x0e\x00",
        b"\x00\x00",
        b"\x0b" * 200,
    ],
)
def test_hostile_lengths_are_a_fault(data: bytes) -> None:
    with pytest.raises(ProtobufFault):
        list(fields(data))
