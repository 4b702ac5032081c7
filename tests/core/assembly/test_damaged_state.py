"""Damaged state raises one error, whatever is damaged: also invalid text and deep nesting."""

import msgspec
import pytest

from streamgauge.core.assembly.assembler import PRODUCERS, Assembler, bucket_of
from tests.streams import bundles_of, chat_segments, stream_id


def entry() -> tuple[int, bytes]:
    """A bucket with an open stream."""
    assembler = Assembler()
    assembler.apply(0, 0, bundles_of(chat_segments(1), per_bundle=1)[0])
    key = bucket_of(stream_id(1))
    return key, assembler.dump(key)


def test_each_damaged_byte_raises_that_error_or_gives_another_state() -> None:
    key, value = entry()
    refused = 0
    for place in range(len(value)):
        for other in (0xFF, 0xC1, value[place] ^ 0x80):
            try:
                Assembler().load(key, value[:place] + bytes([other]) + value[place + 1 :])
            except msgspec.DecodeError:
                refused += 1
    assert b"/chat/completions" in value  # text, each byte of which was damaged
    assert refused > len(value) // 2


@pytest.mark.parametrize("key", [0, PRODUCERS])
def test_deep_nesting_raises_that_error(key: int) -> None:
    with pytest.raises(msgspec.DecodeError):
        Assembler().load(key, b"\x93\x01" + b"\x91" * 100_000)
