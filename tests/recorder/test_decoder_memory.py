"""The memory limit of all streams' decoders: which decoders get memory, which are evicted, and a recorder within it."""

import re
from pathlib import Path

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.capture.segments import Bundle, Ending
from streamgauge.core.http1.body import BodyDecoder, DecodeFault
from streamgauge.recorder.decoder_memory import MAX_DECODER_BYTES, SMALL_DECODER_BYTES, DecoderMemory
from streamgauge.recorder.protocol import Message, ReadsDropped
from streamgauge.recorder.recorder import Recorder
from streamgauge.spool.read_counters import Incident, read_incidents
from tests.core.http1.hostile_codings import window_filled
from tests.recorder.test_process import Recording, records, start, started
from tests.running import wait_for
from tests.taps import talk
from tests.taps.talk import BODY, EVENTS, SSE, arrivals, ended, gzip_flushed, head, opened, sent

pytestmark = pytest.mark.slow

__all__ = ["started"]  # a fixture

KIB, MIB = 1024, 1024 * 1024


def decoders(count: int) -> list[BodyDecoder]:
    return [BodyDecoder(coding="gzip") for _ in range(count)]


def test_memory_is_reserved_once_and_returned() -> None:
    memory, (one, other) = DecoderMemory(10 * MIB), decoders(2)
    assert memory.reserve(one, 1 * MIB)
    assert memory.reserve(one, 2 * MIB)
    assert memory.reserve(other, 1 * MIB)
    assert memory.left == 7 * MIB
    assert memory.reserve(one, 100)
    assert memory.reserve(other, 0)
    assert memory.left == 10 * MIB - 100
    assert memory.reserve(one, 0)
    assert memory.left == 10 * MIB


def test_large_decoders_share_a_quarter() -> None:
    memory, (one, other, small) = DecoderMemory(40 * MIB), decoders(3)
    assert memory.reserve(one, 6 * MIB)
    assert not memory.reserve(other, 5 * MIB)
    assert memory.reserve(other, 4 * MIB)
    assert not memory.reserve(one, 6 * MIB + 1)
    assert memory.reserve(small, SMALL_DECODER_BYTES)
    assert not memory.reserve(small, SMALL_DECODER_BYTES + 1)
    assert memory.reserve(one, 1 * MIB)
    assert memory.reserve(small, SMALL_DECODER_BYTES + 1)


def test_the_largest_is_evicted_for_a_smaller_one() -> None:
    memory, several = DecoderMemory(6 * MIB), decoders(8)
    for decoder in several[:4]:
        assert memory.reserve(decoder, 1 * MIB)
    assert memory.reserve(several[4], 2 * MIB)
    assert memory.left == 0
    assert memory.reserve(several[5], 100 * KIB)
    assert [decoder.fault for decoder in several] == [None] * 4 + [DecodeFault.TOO_LARGE] + [None] * 3
    assert memory.left == 2 * MIB - 100 * KIB
    assert not memory.reserve(several[6], 2 * MIB), "no decoder holds more than it needs"
    assert [decoder.fault for decoder in several[5:]] == [None] * 3


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4 * MIB)), max_size=60))
def test_the_limit_holds_and_all_memory_is_free_afterwards(steps: list[tuple[int, int]]) -> None:
    memory, several, held = DecoderMemory(12 * MIB), decoders(10), [0] * 10
    for which, size in steps:
        if memory.reserve(several[which], size):
            held[which] = size
        held = [0 if decoder.fault else size for decoder, size in zip(several, held, strict=True)]
        assert memory.left == 12 * MIB - sum(held) >= 0
        assert sum(size for size in held if size > SMALL_DECODER_BYTES) <= 3 * MIB
        several = [decoder if decoder.fault is None else BodyDecoder(coding="gzip") for decoder in several]
    for decoder in several:
        assert memory.reserve(decoder, 0)
    assert memory.left == 12 * MIB


# --- streams ---------------------------------------------------------------------------------------------------------


def begun(coding: str, *reads: bytes, stream: int) -> list[Message]:
    answered = head(SSE, ("content-encoding", coding))
    return [opened(stream=stream), sent(stream=stream), *arrivals(answered, *reads, stream=stream)]


def pieces(wire: bytes, size: int = 16 * KIB) -> list[bytes]:
    return [wire[at : at + size] for at in range(0, len(wire), size)]


def test_only_the_stream_without_room_is_incomplete() -> None:
    recorder = Recorder(talk.settings(), max_decoder_bytes=16 * MIB)
    for stream in range(6):
        for message in begun("br", *pieces(window_filled("br")), stream=stream):
            recorder.handle(message)
    segments = list(recorder.segments())
    for message in [*begun("gzip", gzip_flushed(*EVENTS), stream=9), ended(stream=9)]:
        recorder.handle(message)
    for stream in range(6):
        recorder.handle(ended(Ending.RESET, stream=stream))
    segments += recorder.segments()
    errors = [segment.loss.decode_error for segment in segments if segment.loss]
    assert errors == ["too_large"] * 6
    assert recorder.incidents[Incident.DECODE_FAULT] == 6
    honest = [segment for segment in segments if segment.stream == segments[-1].stream or segment.loss is None]
    assert BODY.replace(b": keep-alive\n", b":\n") in [
        b"".join(read.content for read in segment.reads) for segment in honest
    ]


def test_an_evicted_stream_is_incomplete_even_without_further_reads() -> None:
    recorder = Recorder(talk.settings(), max_decoder_bytes=512 * KIB)
    small = brotli.Compressor(quality=4)
    event = EVENTS[1]
    for stream in (1, 2):
        for message in begun("gzip", gzip_flushed(*EVENTS)[:-8], stream=stream):
            recorder.handle(message)
    wire = small.process(event * 2000) + small.flush()
    for message in begun("br", *pieces(wire, 1000), stream=3):
        recorder.handle(message)
    recorder.segments()
    for stream in range(4, 12):
        for message in begun("gzip", gzip_flushed(*EVENTS)[:-8], stream=stream):
            recorder.handle(message)
    recorder.segments()
    recorder.handle(ended(Ending.RESET, stream=3))
    (last,) = recorder.segments()
    assert last.loss is not None
    assert last.loss.decode_error == "too_large"
    assert recorder.incidents[Incident.DECODE_FAULT] == 1


ZSTD = zstandard.ZstdCompressor().compress(BODY)


@pytest.mark.parametrize(
    "last",
    [
        [ended(Ending.COMPLETE)],
        [ended(Ending.RESET)],
        [ended(Ending.CLIENT)],
        [ReadsDropped(1, 3), ended(Ending.CUT)],
        [*arrivals(b"damage" * 5), ended(Ending.COMPLETE)],
        [*arrivals(ZSTD[-20:]), ended(Ending.COMPLETE)],
        [opened(), ended(Ending.COMPLETE)],
    ],
    ids=["complete", "reset", "client", "dropped", "damaged", "whole", "opened again"],
)
def test_the_memory_of_a_stream_is_free_after_any_end(last: list[Message]) -> None:
    """There is room for one stream at a time."""
    recorder = Recorder(talk.settings(), max_decoder_bytes=150 * KIB)
    for _ in range(5):
        for message in [*begun("zstd", ZSTD[:-20], stream=1), *last]:
            recorder.handle(message)
        segments = list(recorder.segments())
        assert [segment.loss.decode_error for segment in segments if segment.loss and segment.loss.decode_error] in (
            [],
            ["incomplete"],
            ["corrupt"],
        )
    assert recorder.open_streams == 0


# --- a recorder ------------------------------------------------------------------------------------------------------

# Beyond the decoders' memory: the recorder itself, buffered events, and what allocators keep (bytes).
ELSE_BYTES = 160 * MIB
# CPU time of the recorder until a normal stream that came after the hostile ones is stored (s): half a minute without
# turns, 7 s when a turn decoded a whole read.
HONEST_CPU_S = 3.0
CODINGS = ("br", "zstd", "zstd, br")
STREAMS = 40


def status(recording: Recording, field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{recording.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * KIB


def cpu_seconds(recording: Recording) -> float:
    fields = Path(f"/proc/{recording.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_p5_open_streams_with_the_largest_windows_stay_within_their_memory(
    started: list[Recording], tmp_path: Path
) -> None:
    """Forty responses of 200 KB that decode to 40 MiB each, and do not end."""
    recording = start(started, tmp_path)
    before, begun_at = status(recording, "VmRSS"), cpu_seconds(recording)
    wires = [pieces(window_filled(coding), 64 * KIB) for coding in CODINGS]
    with recording.relay() as relay:
        for stream in range(STREAMS):
            which = stream % len(CODINGS)
            recording.tell(relay, *begun(CODINGS[which], *wires[which], stream=stream))
        recording.tell(relay, *begun("gzip", gzip_flushed(*EVENTS), stream=STREAMS), ended(stream=STREAMS))
        segments = recording.until(has_ended)
        assert cpu_seconds(recording) - begun_at < HONEST_CPU_S
        assert status(recording, "VmHWM") - before < MAX_DECODER_BYTES + ELSE_BYTES
        (honest,) = records(segments)
        assert (honest.outcome, honest.integrity.complete) == ("completed", True)
    # The relay has ended: the streams end once the waiting reads have been processed, and then their fault is counted.
    # The others lost their waiting reads, which are bounded too.
    wait_for(lambda: read_incidents(recording.data / "counters")["decode_fault"] > STREAMS // 4, "the bound", 120)
    assert recording.stop() == 0


def has_ended(bundles: list[Bundle]) -> bool:
    return any(segment.end for bundle in bundles for segment in bundle.segments)
