"""What must hold for the assembler with any log: as much of the log's order, gaps and restarts as bytes can express.

The honest taps of `check_log` keep to the protocol (each segment in one bundle, numbers without gaps), and everything
between them and the assembler fails: bundles are duplicated, late, reordered or lost, time jumps, and the worker crashes
at any time. `check_bundle` takes any bundle that can be decoded.
"""

from collections.abc import Iterator, Sequence

import msgspec
import zstandard

from streamgauge.core.assembly.assembler import PRODUCERS, TICK_INSTANCE, Assembler
from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.capture.segments import Bundle, Segment
from streamgauge.core.limits import Limits
from streamgauge.core.record import Record
from streamgauge.records import Record as RecordRead
from tests.fuzz.drawn import Drawn
from tests.fuzz.properties import check
from tests.fuzz.streams import Sent, in_pieces, restarted, segments
from tests.vectors.drive import as_json
from tests.vectors.load import series, vectors

INSTANCES = tuple(bytes((number,)) * 16 for number in (1, 2, 3))
SLOTS = (0, 5)
# Log time between two messages (ms), and the tap's own clock (ns): up to beyond the assembler's time-outs.
LOG_STEPS_MS = (0, 1, 1_000, 60_000, 3_700_000)
TAP_STEPS_NS = (0, 1, 1_000_000_000, 31_000_000_000)
# One pause of the log counts for two minutes at most (`producers.MAX_PAUSE_MS`), enough here to abandon an instance.
LIMITS = Limits(abandon_after=100.0)
# After every deadline (ms).
THE_END_MS = 10**12
MAX_STREAMS = 8
MAX_STEPS = 120
# Records of one log that are checked in all their fields: it takes 2 ms each.
CHECKED = 3

Log = list[tuple[int, Bundle]]


def _scripts() -> list[list[Segment]]:
    """A few streams as segments: short and long, complete and cut, and streams that share learnt shapes."""
    names = {"happy", "tools", "truncated", "error-mid-stream", "reset"}
    taught = [vector for several in series() for vector in several.vectors]
    chosen = [vector for vector in vectors() if vector.name in names] + taught
    chosen = [vector for vector in chosen if len(vector.body) < 4_000]
    return [segments(Sent(vector), "full", in_pieces(Sent(vector).whole(), len(vector.name))) for vector in chosen]


SCRIPTS = _scripts()


class _Tap:
    """One tap instance: its streams, and bundles that are numbered in each slot."""

    def __init__(self, number: int) -> None:
        self.instance = INSTANCES[number]
        self.numbers = dict.fromkeys(SLOTS, 0)
        self.tap_ns = 0
        self.open: list[tuple[int, list[Segment]]] = []
        self.streams = 0

    def begin(self, drawn: Drawn) -> None:
        if self.streams == MAX_STREAMS:
            return
        self.streams += 1
        name = bytes((self.instance[0], self.streams)) + bytes(13) + bytes((drawn.byte(),))
        script = [msgspec.structs.replace(one, stream=name) for one in drawn.one_of(SCRIPTS)]
        self.open.append((drawn.one_of(SLOTS), script))

    def bundle(self, drawn: Drawn, *, farewell: bool = False, dead: Sequence[bytes] = ()) -> Bundle:
        slot = drawn.one_of(SLOTS)
        taken: list[Segment] = []
        for place, script in self.open:
            if place == slot:
                count = drawn.number(3)
                taken += script[:count]
                del script[:count]
        self.open = [one for one in self.open if one[1]]
        self.tap_ns += drawn.one_of(TAP_STEPS_NS)
        number = self.numbers[slot]
        self.numbers[slot] += 1
        return Bundle(self.instance, slot, number, self.tap_ns, taken, farewell, list(dead))


def drawn_log(drawn: Drawn) -> Log:
    """Messages of honest taps over a faulty network."""
    taps, held, log, now = [_Tap(0), _Tap(1)], list[Bundle](), Log(), 0
    while drawn.more and len(log) < MAX_STEPS:
        tap = drawn.one_of(taps)
        now += drawn.one_of(LOG_STEPS_MS) if drawn.number(3) == 0 else 1
        match drawn.number(9):
            case 0 | 1:
                tap.begin(drawn)
            case 2:
                held.append(tap.bundle(drawn))  # it is late or lost
            case 3 if held:
                log.append((now, held.pop(drawn.number(len(held) - 1))))
            case 4 if log:
                log.append((now, drawn.one_of(log)[1]))  # a resend
            case 5:
                log.append((now, Bundle(TICK_INSTANCE, 0, 0, 0)))
            case 6 if drawn.number(3) == 0:
                log.append((now, tap.bundle(drawn, farewell=True)))
            case 7 if drawn.number(3) == 0:
                log.append((now, Bundle(INSTANCES[2], drawn.one_of(SLOTS), len(log), now, dead=[tap.instance])))
            case _:
                log.append((now, tap.bundle(drawn)))
    return [*log, (now + THE_END_MS, Bundle(TICK_INSTANCE, 0, 0, 0))]


def check_log(data: bytes) -> None:
    """Asserts one record for each stream, and the same records with any restarts."""
    drawn = Drawn(data)
    seed = drawn.byte()
    log = drawn_log(drawn)
    assembler = Assembler(LIMITS)
    expected = [record for at, (now, bundle) in enumerate(log) for record in assembler.apply(at, now, bundle)]
    assert assembler.open_streams == 0
    by_id = {record.stream_id: msgspec.json.encode(record) for record in expected}
    assert len(by_id) == len(expected), "two records of one stream"
    for record in expected[:CHECKED]:
        check(as_json(record))
    assert dict(_with_crashes(log, Drawn(bytes((seed,)) + data[::-1]))) == by_id


def _with_crashes(log: Log, drawn: Drawn) -> Iterator[tuple[str, bytes]]:
    """The records of a worker that crashes occasionally, at any step of a checkpoint, and reads the log again from the
    last one.
    """
    kept: dict[int, bytes] = {}
    known: dict[str, bytes] = {}
    assembler, acknowledged, at = Assembler(LIMITS), 0, 0
    lives = drawn.number(6)
    while at < len(log):
        for record in assembler.apply(at, *log[at]):
            made = msgspec.json.encode(record)
            assert known.setdefault(record.stream_id, made) == made, "another record of the same stream"
            yield record.stream_id, made
        at += 1
        if drawn.number(3) == 0:
            changed = assembler.changed()
            dies = lives > 0 and drawn.number(1) == 0
            durable = changed[: drawn.number(len(changed))] if dies else changed
            kept |= {key: assembler.dump(key) for key in durable}
            acknowledged = at if PRODUCERS in durable and not dies else acknowledged
            if dies:
                lives, at, assembler = lives - 1, acknowledged, restarted(kept, LIMITS)


_BUNDLE = msgspec.msgpack.Encoder()


def check_bundle(data: bytes) -> None:
    """Any bundles that can be decoded: see `check_messages`."""
    check_messages([b"SG\x01" + zstandard.ZstdCompressor(level=1).compress(one) for one in data.split(SEPARATOR)])


def check_messages(messages: Sequence[bytes]) -> None:
    """Asserts for any message of a topic: it is not a bundle, or nothing raises, the state can be written, and every
    record is valid.
    """
    assembler, found = Assembler(LIMITS), list[Record]()
    for at, message in enumerate(messages):
        try:
            bundle = decode_bundle(message)
        except UnreadableBundle:
            continue
        found += assembler.apply(at, at, bundle)
        for key in assembler.changed():
            assembler.load(key, assembler.dump(key))
    found += assembler.apply(len(messages), THE_END_MS, Bundle(TICK_INSTANCE, 0, 0, 0))
    assert assembler.open_streams == 0
    for record in found:
        assert RecordRead.model_validate(as_json(record))


# Separator of the bundles of one input: bytes that no MessagePack of ours contains.
SEPARATOR = b"\xc1\xc1\xc1\xc1"


def bundle_seeds() -> list[bytes]:
    """The scripts as bundles: one segment a bundle."""
    return [
        SEPARATOR.join(
            _BUNDLE.encode(Bundle(INSTANCES[0], 0, number, number, [segment])) for number, segment in enumerate(script)
        )
        for script in SCRIPTS[:12]
    ]
