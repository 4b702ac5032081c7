"""Whole streams that simulated taps send, cut into segments by the real recorder, and what each must come to.

The truth about a stream is its vector's (written from the provider's documents) or its maker's, not the assembler's.
"""

from dataclasses import dataclass
from functools import cache
from uuid import UUID

import msgspec
from bench.wires import wire as wire_of

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import Bundle, Segment
from streamgauge.core.record import Record, encode_record
from tests.vectors.drive import Live, in_pieces, messages, segments_of, wire
from tests.vectors.load import TARGETS, Vector, vectors

# Between two reads of a stream (ns).
_PACE_NS = 40_000_000
_NAMES = {"happy", "tools", "truncated", "error-mid-stream", "reset", "usage-missing"}
_DIALECTS = {"openai-chat", "anthropic-messages", "openai-responses", "gemini", "cohere-v2"}
# The longest vector that is taken (bytes): what a schedule may cost.
_MAX_BODY = 2_500
# Streams with this many deltas: a short one, and one with more segments than the assembler lets wait.
_DELTAS = (12, 150)

# What stands in a template for the ids that differ from stream to stream.
_STREAM, _INSTANCE = UUID(int=(1 << 128) - 1), UUID(int=(1 << 128) - 2)


@dataclass(frozen=True, eq=False)
class Script:
    """One whole stream. `outcome`: how it ends, by its own document."""

    name: str
    outcome: str
    segments: tuple[Segment, ...]

    def segment(self, stream: bytes, number: int) -> Segment:
        return msgspec.structs.replace(self.segments[number], stream=stream)

    def record(self, stream: bytes, instance: bytes, sent: int) -> bytes:
        """The record of a stream of which the first `sent` segments came, each once and in order, and no more ever."""
        made = _template(self, sent)
        for placeholder, value in ((_STREAM, stream), (_INSTANCE, instance)):
            made = made.replace(str(placeholder).encode(), str(UUID(bytes=value)).encode())
        return made


def assembled(script: Script, sent: int) -> Record:
    """What becomes of the first segments of a script, one a bundle, and then of its tap's death."""
    assembler = Assembler()
    bundles = [
        Bundle(_INSTANCE.bytes, 0, number, number, [script.segment(_STREAM.bytes, number)]) for number in range(sent)
    ]
    bundles.append(Bundle(bytes(15) + b"\x01", 0, 0, 0, dead=[_INSTANCE.bytes]))
    (record,) = [one for at, bundle in enumerate(bundles) for one in assembler.apply(at, at, bundle)]
    return record


@cache
def _template(script: Script, sent: int) -> bytes:
    return encode_record(assembled(script, sent))


@cache
def scripts() -> tuple[Script, ...]:
    """Streams of several dialects, short and long, whole and broken."""
    chosen = [vector for vector in vectors() if vector.dialect in _DIALECTS and vector.name in _NAMES]
    found = [_of_vector(one) for one in chosen if len(one.body) < _MAX_BODY]
    return (*found, *(_of_wire(dialect, deltas) for dialect in sorted(_DIALECTS) for deltas in _DELTAS))


def _of_vector(vector: Vector) -> Script:
    pieces = in_pieces(wire(vector, Live()), vector.name)
    joined = [b"".join(pieces[at : at + 12]) for at in range(0, len(pieces), 12)]
    return Script(f"{vector.dialect}/{vector.name}", vector.record["outcome"], _segments(vector, joined))


def _of_wire(dialect: str, deltas: int) -> Script:
    made = wire_of(dialect, deltas)
    target = TARGETS[dialect]
    vector = Vector("", {}, [], dialect=dialect, name="made", body=b"".join(made.events), method="POST", target=target)
    head, _, body = wire(vector, Live()).partition(b"\r\n\r\n")
    assert body == vector.body
    return Script(f"{dialect}/{deltas}", "completed", _segments(vector, [head + b"\r\n\r\n", *made.events]))


def _segments(vector: Vector, pieces: list[bytes]) -> tuple[Segment, ...]:
    reads = [(_PACE_NS * place, piece) for place, piece in enumerate(pieces)]
    return tuple(segments_of("masked", messages(vector, reads, _PACE_NS * len(pieces))))
