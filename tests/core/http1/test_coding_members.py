"""coding_members.py: the memory that a member estimates, against the growth of its process, and the memory that members
share.
"""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import brotli
import pytest
import zstandard

from streamgauge.core.http1.coding_members import MEMBERS
from tests.core.footprint import CASES
from tests.core.http1.hostile_codings import EMPTY_FRAME, brotli_tables, dense, window_filled

KIB, MIB = 1024, 1024 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_decoder_uses_no_more_memory_than_it_estimates(case: str) -> None:
    """Resident memory of a process that decodes the same body many times; a tenth is allowed for the allocators."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.core.footprint", case], capture_output=True, text=True, check=True, timeout=120
    )
    grown, held = map(int, ran.stdout.split())
    assert grown < 1.1 * held
    assert held < 4 * grown


@pytest.mark.parametrize("bits", [10, 14, 16, 17, 18, 22, 24])
def test_brotlis_window_is_read_from_the_first_byte(bits: int) -> None:
    member = MEMBERS["br"](None)
    wire = brotli.compress(dense(20 * MIB), quality=5, lgwin=bits)
    assert sum(map(len, member.decode(wire))) == 20 * MIB
    tables = 2_800 * KIB
    assert 2**bits <= member.held + 16 <= 2**bits + tables + 32 * KIB


@pytest.mark.parametrize("bits", [10, 17, 20, 23])
def test_zstds_window_is_read_from_the_frames_header(bits: int) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=bits, write_content_size=False)
    coder = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    wire = coder.compress(dense(20 * MIB)) + coder.flush()
    for piece in (1, 100, len(wire)):
        member = MEMBERS["zstd"](None)
        given = sum(len(out) for at in range(0, len(wire), piece) for out in member.decode(wire[at : at + piece]))
        assert given == 20 * MIB
        assert 2**bits <= member.held <= 2**bits + 400 * KIB


def test_a_window_counts_as_far_as_output_has_filled_it() -> None:
    for coding, compress in (
        ("br", lambda data: brotli.compress(data, lgwin=24)),
        ("zstd", zstandard.ZstdCompressor(22).compress),
    ):
        member = MEMBERS[coding](None)
        assert sum(map(len, member.decode(compress(dense(40_000))))) == 36_864
        assert member.held < 600 * KIB


def test_the_tables_of_a_brotli_header_count() -> None:
    member = MEMBERS["br"](None)
    assert member.held < 20 * KIB
    assert list(member.decode(brotli_tables())) == []
    assert 800 * KIB < member.held < 1_000 * KIB


def test_a_body_with_a_flush_after_each_event_has_small_tables() -> None:
    coder, member = brotli.Compressor(), MEMBERS["br"](None)
    for number in range(2_000):
        event = b'data: {"choices":[{"delta":{"content":"token %d"}}]}\n\n' % number
        assert b"".join(member.decode(coder.process(event) + coder.flush())) == event
    assert member.held < 128 * KIB + 16 * KIB + 120 * KIB


def test_a_frame_uses_the_context_of_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch)
    member = MEMBERS["zstd"](None)
    assert sum(map(len, member.decode(window_filled("zstd")))) > 30 * MIB
    large = member.held
    frame = MEMBERS["zstd"](member)
    assert list(frame.decode(EMPTY_FRAME + b"more")) == []
    assert (frame.ended, frame.unused) == (True, b"more")
    assert frame.held == large, "the context keeps its buffers"
    assert made() == 1


def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many zstd contexts were created."""
    contexts: list[zstandard.ZstdDecompressor] = []
    make = zstandard.ZstdDecompressor

    def counting(**options: Any) -> zstandard.ZstdDecompressor:
        contexts.append(make(**options))
        return contexts[-1]

    monkeypatch.setattr(zstandard, "ZstdDecompressor", counting)
    return lambda: len(contexts)
