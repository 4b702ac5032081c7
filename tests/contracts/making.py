"""Writes what this version writes, as fixtures that every later version must read: `scripts/make_contract_fixtures.py`.

formats.json          the versions of the formats, and of the program
bundles.jsonl         messages of the segments topic, in the order of their offsets (the values in base64)
records.jsonl         the records that these bundles make
state.jsonl           the entries of a worker's state after half of the bundles
data/                 the data directory of `up` after half of the bundles, with the other half in its spool
ledger.sqlite, .jsonl a ledger with costs and a kept audit; its records, as `ledger query` prints them
audits.json           the kept audits of that ledger
deadletters.jsonl     messages of the dead letter topic
settings.toml, .json  a settings file with every key; the values that it means
metrics.txt, .json    a page of metrics; every metric that a page may have, with its type and labels
"""

import base64
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

import streamgauge
from streamgauge.audit.runs import Runs
from streamgauge.core import record
from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.assembly.state_codec import STATE_VERSION
from streamgauge.core.capture.bundles import decode_bundle, encode_bundle
from streamgauge.core.capture.segments import FORMAT_VERSION, Bundle
from streamgauge.core.record import encode_record
from streamgauge.kafka.dead_letters import Stage, dead_letter_of, truncated
from streamgauge.kafka.topics import Topics
from streamgauge.ledger import SqliteLedger, row_of
from streamgauge.ledger.schema import SCHEMA_VERSION
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.prices.price_file import PriceFile
from streamgauge.prices.pricing import Prices
from streamgauge.settings.declarations import SETTINGS
from streamgauge.settings.sources import load
from streamgauge.spool.read_counters import Counters
from tests.cli.test_ledger_watch import an_audit
from tests.settings.test_declarations import TABLE, toml_of
from tests.vectors.drive import Live, in_pieces, messages, segments_of, wire
from tests.vectors.load import Vector, vectors
from tests.worker.local_life import Life, put

FOLDER = Path(__file__).parent
# The kinds of vectors that are taken of each dialect: every ending, and the parts of output.
KINDS = ("happy", "tools", "reasoning", "choices", "error-mid-stream", "truncated", "http-error-json")
INSTANCE = UUID("0190aaaa-0000-7000-8000-000000000001").bytes
STARTED_NS = 1_790_000_000_000_000_000
MS = 1_000_000
# Records whose metrics are on the page: the names of series matter, and not their number.
PAGED = 8
# Segments of one bundle: streams share bundles, and bundles cut streams.
A_BUNDLE = 12


class Source(NamedTuple):
    """Where a message was that became a dead letter."""

    topic: str
    partition: int
    offset: int
    key: bytes | None


def formats() -> dict[str, Any]:
    """The versions of the formats that this version writes."""
    return {
        "streamgauge": streamgauge.__version__,
        "record": record.SCHEMA_VERSION,
        "bundle": FORMAT_VERSION,
        "state": STATE_VERSION,
        "ledger": SCHEMA_VERSION,
    }


def chosen() -> list[Vector]:
    """The streams: of each dialect one of each kind."""
    return [vector for vector in vectors() if vector.name.rpartition("/")[2] in KINDS and not vector.replay_only]


def bundles() -> list[bytes]:
    """The streams, masked, interleaved, in bundles."""
    reported = []
    for number, vector in enumerate(chosen(), 1):
        pieces = in_pieces(wire(vector, Live("masked", "chunked")), vector.name)
        reads = [(10 * MS * (place + 1), piece) for place, piece in enumerate(pieces)]
        begun, *others = messages(vector, reads, 10 * MS * (len(reads) + 2), stream=number)
        assert hasattr(begun, "stream_id")
        identity = {"stream_id": UUID(int=INSTANCE[0] << 120 | 7 << 76 | 2 << 62 | number).bytes, "wall_ns": STARTED_NS}
        attributes = [("agent", f"agent-{number % 3}")]
        reported.append([msgspec.structs.replace(begun, **identity, attributes=attributes, upstream="sim"), *others])
    turns = itertools.chain.from_iterable(itertools.zip_longest(*reported))
    segments = list(segments_of("masked", (message for message in turns if message is not None)))
    runs = [segments[at : at + A_BUNDLE] for at in range(0, len(segments), A_BUNDLE)]
    return [encode_bundle(Bundle(INSTANCE, 0, number, number * 100 * MS, run)) for number, run in enumerate(runs)]


def make(folder: Path) -> None:
    """Write all fixtures into a new folder. Raises FileExistsError if it exists: what a version wrote does not change."""
    folder.mkdir()
    log = bundles()
    half = len(log) // 2
    assembler, records = Assembler(), list[record.Record]()
    for offset, message in enumerate(log):
        if offset == half:
            _lines(
                folder / "state.jsonl",
                ({"key": key, "value": _text(assembler.dump(key))} for key in assembler.changed()),
            )
        records += assembler.apply(offset, offset * 100, decode_bundle(message))
    _lines(folder / "bundles.jsonl", ({"value": _text(message)} for message in log))
    (folder / "records.jsonl").write_bytes(b"".join(encode_record(one) + b"\n" for one in records))
    _write(folder / "formats.json", formats())
    _data(folder / "data", log[:half], log[half:])
    _ledger(folder, records)
    _dead_letters(folder, log[0])
    _settings(folder)
    _metrics(folder, records)


def _data(folder: Path, before: list[bytes], after: list[bytes]) -> None:
    folder.mkdir()
    (folder / "key").write_bytes(bytes(range(32)))
    put(folder, *map(decode_bundle, before))
    life = Life(folder)
    life.work(2)
    life.end()
    put(folder, *map(decode_bundle, after))
    Counters(folder / "counters", "delivery").close()


def _ledger(folder: Path, records: list[record.Record]) -> None:
    with SqliteLedger(folder / "ledger.sqlite", prices=Prices(PriceFile({"sim": "openai"}))) as ledger:
        ledger.insert([row_of(one) for one in records])
        Runs(ledger).add(an_audit("2026-10-02T00:00:00Z", agrees=True))
        Runs(ledger).add(an_audit("2026-11-02T00:00:00Z", agrees=False))
        (folder / "ledger.jsonl").write_bytes(b"".join(line + b"\n" for line in ledger.query()))
        _write(folder / "audits.json", msgspec.json.decode(msgspec.json.encode(Runs(ledger).all())))


def _dead_letters(folder: Path, bundle: bytes) -> None:
    names, source = Topics("streamgauge"), Source("streamgauge.segments", 3, 41, None)
    made = [
        dead_letter_of(names, source, bundle, Stage.DECODE, "frame"),
        dead_letter_of(
            names, source._replace(topic="streamgauge.records", key=b"id"), b"{}", Stage.LEDGER, "unreadable"
        ),
        truncated(dead_letter_of(names, source, b"half a message", Stage.ASSEMBLE, "ValueError")),
    ]
    _lines(
        folder / "deadletters.jsonl",
        (
            {
                "key": None if one.key is None else _text(one.key),
                "value": None if one.value is None else _text(one.value),
                "headers": {name: value.decode() for name, value in one.headers},
            }
            for one in made
        ),
    )


def _settings(folder: Path) -> None:
    # A file of a secret stands for the setting that it contains, which is given already.
    names = [name for name, setting in SETTINGS.items() if not setting.content_of]
    lines = [f"{name} = {toml_of(TABLE[name][1][0])}\n" for name in names]
    (folder / "settings.toml").write_text("".join(lines))
    _write(folder / "settings.json", meant(folder / "settings.toml"))


def _metrics(folder: Path, records: list[record.Record]) -> None:
    metrics = Metrics()
    for one in records[:PAGED]:
        metrics.observe(one)
    (folder / "metrics.txt").write_bytes(metrics.render())
    _write(folder / "metrics.json", declared_metrics())


def declared_metrics() -> dict[str, Any]:
    """Each metric that a page may have: its type and its labels."""
    return {one.name: {"type": one.kind, "labels": list(one.labels)} for one in table.TABLE}


def meant(file: Path) -> dict[str, Any]:
    """The value of each setting of a file, as JSON has it."""
    settings = load({}, file)
    found: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode({name: getattr(settings, name) for name in sorted(settings.given)}, enc_hook=str)
    )
    return found


def _lines(file: Path, rows: Iterator[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _write(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n")


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
