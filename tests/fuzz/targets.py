"""The fuzz targets: functions of bytes that assert what must hold, and their seeds. For atheris, and for tests."""

import random
from collections.abc import Callable

import msgspec

from tests.fuzz import envoy, hostile, invoices, logs, meanings, parsers, recorded
from tests.fuzz.drawn import Drawn
from tests.fuzz.mutations import KINDS, Step, mutated
from tests.fuzz.streams import CODINGS, DIALECTS, ENDINGS, FRAMINGS, STATUSES, Sent, check_stream, stream
from tests.vectors.drive import Live, encoded, wire
from tests.vectors.load import Vector, blocks, vectors

# A seed longer than this only slows a fuzzer down (bytes): most vectors are shorter.
MAX_SEED = 1_000
# Steps that one mutation of a stream makes.
MAX_STEPS = 4
# The bytes before the body in an input of the stream target.
HEADER_BYTES = 5


class Target(msgspec.Struct, frozen=True):
    """`check` raises for bytes that break a property. `seeds` are the first inputs. `mutate`: a structured mutation."""

    check: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, int], bytes] | None = None


# --- streams -------------------------------------------------------------------------------------------------------


def check_stream_bytes(data: bytes) -> None:
    """A stream of any dialect: see `streams.check_stream`."""
    drawn = Drawn(data)
    dialect, framing, coding = drawn.one_of(DIALECTS), drawn.one_of(FRAMINGS), drawn.one_of(CODINGS)
    ending, status = drawn.one_of(ENDINGS), drawn.one_of(STATUSES)
    vector = stream(dialect, drawn.rest(), ending=ending, status=status)
    check_stream(Sent(vector, framing, coding, seed=len(data)))


def header_of(vector: Vector) -> bytes:
    """How the vector itself is sent, as the first bytes of an input."""
    status = STATUSES.index(vector.status) if vector.status in STATUSES else 0
    return bytes((DIALECTS.index(vector.dialect), 0, 0, ENDINGS.index(vector.ending), status))


def short_vectors() -> list[Vector]:
    """Vectors that are short enough for seeds, of known dialects."""
    return [vector for vector in vectors() if len(vector.body) <= MAX_SEED and vector.dialect in DIALECTS]


def stream_seeds() -> list[bytes]:
    return [header_of(vector) + vector.body for vector in short_vectors()]


def mutate_stream(data: bytes, seed: int) -> bytes:
    """A stream after a few steps: events removed, duplicated, exchanged, hostile values inserted."""
    header, body = data[:HEADER_BYTES], data[HEADER_BYTES:]
    chosen = random.Random(seed)
    steps = [
        Step(chosen.choice(KINDS), chosen.getrandbits(16), chosen.getrandbits(16), chosen.getrandbits(16))
        for _ in range(chosen.randint(1, MAX_STEPS))
    ]
    return header + mutated(body, steps, hostile.SMALL)


# --- what else is read ---------------------------------------------------------------------------------------------


def _event_seeds() -> list[bytes]:
    """A choice, then a stream: for targets that read one byte first."""
    return [bytes((place % 8,)) + vector.body for place, vector in enumerate(short_vectors())]


def _body_seeds() -> list[bytes]:
    out = []
    for place, vector in enumerate(short_vectors()[::8]):
        coding = place % len(parsers.CODINGS)
        name = parsers.CODINGS[coding]
        codable = name if name in ("gzip", "deflate", "br", "zstd", "gzip-members") else None
        out.append(bytes((0, coding, 0, 0)) + encoded(vector.body, codable))
        out.append(bytes((0, coding, 1, 1, 0, place)) + vector.body)
    return out


def _wires() -> list[bytes]:
    return [wire(vector, Live(framing="chunked")) for vector in short_vectors()[::6]]


def _chunk_seeds() -> list[bytes]:
    return [raw.partition(b"\r\n\r\n")[2] for raw in _wires()]


def _head_seeds() -> list[bytes]:
    return [b"\0" + raw[:600] for raw in _wires()] + [
        b"\0HTTP/1.1 100 Continue\r\n\r\n" + raw[:300] for raw in _wires()[:3]
    ]


def _json_seeds() -> list[bytes]:
    cut = [block.partition(b"data: ")[2].strip() for vector in short_vectors()[::4] for block in blocks(vector.body)]
    return list(dict.fromkeys(one for one in cut if one))


def _log_seeds() -> list[bytes]:
    return [bytes((seed, *range(seed, seed + 200))) for seed in range(0, 50, 5)]


TARGETS: dict[str, Target] = {
    "sse": Target(parsers.check_sse, _event_seeds),
    "reader": Target(parsers.check_reader, parsers.reader_seeds),
    "aws_messages": Target(parsers.check_aws_messages, parsers.aws_seeds),
    "framing": Target(parsers.check_framing, _chunk_seeds),
    "body": Target(parsers.check_body, _body_seeds),
    "response": Target(parsers.check_response, _head_seeds),
    "json_check": Target(parsers.check_json_check, _json_seeds),
    "json_text": Target(parsers.check_json_text, _json_seeds),
    "masker": Target(meanings.check_masker, _event_seeds),
    "rate_limit": Target(parsers.check_rate_limit, parsers.rate_limit_seeds),
    "usage": Target(meanings.check_usage, meanings.usage_seeds),
    "stream": Target(check_stream_bytes, stream_seeds, mutate_stream),
    "log": Target(logs.check_log, _log_seeds),
    "bundle": Target(logs.check_bundle, logs.bundle_seeds),
    "recording": Target(recorded.check_recording, recorded.recording_seeds),
    "invoice": Target(invoices.check_invoice, invoices.invoice_seeds),
    "envoy": Target(envoy.check_envoy, envoy.envoy_seeds),
    "gateway_log": Target(invoices.check_gateway_log, invoices.gateway_log_seeds),
}
