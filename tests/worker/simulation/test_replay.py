"""A partition's log gives the same records byte for byte: read from its start, or from any checkpoint with its state."""

import random
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.assembly.assembler import PRODUCERS, Assembler
from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.capture.segments import Bundle
from streamgauge.core.limits import Limits
from streamgauge.core.record import encode_record
from tests.worker.simulation.faults import Faults
from tests.worker.simulation.schedule import SETTINGS, Schedule
from tests.worker.simulation.taps import Network

LIMITS = Limits(abandon_after=SETTINGS.abandon_after)
_FAULTS = Faults(
    Network(doubled=0.3, reordered=0.3, lost=0.05, late=0.1, again_late=0.3), poison=2, outages=1, tap_deaths=2, kills=2
)
_LOGS = 40

Log = list[tuple[int, int, Bundle]]
Record = tuple[int, bytes]


@cache
def log_of(seed: int) -> Log:
    """What lay in a partition at the end of a schedule: offset, log time, bundle."""
    schedule = Schedule(seed, _FAULTS)
    schedule.run()
    log = []
    for entry in schedule.history[0]:
        try:
            log.append((entry.offset, entry.at_ms, decode_bundle(entry.value)))
        except UnreadableBundle:
            continue
    return log


def applied(assembler: Assembler, log: Log) -> list[Record]:
    """Each record, and the message that finished its stream."""
    return [(at, encode_record(record)) for at, ms, bundle in log for record in assembler.apply(at, ms, bundle)]


def dumped(assembler: Assembler) -> dict[int, bytes]:
    return {key: assembler.dump(key) for key in range(PRODUCERS + 1)}


def restarted(entries: dict[int, bytes]) -> Assembler:
    assembler = Assembler(LIMITS)
    for key, value in entries.items():
        assembler.load(key, value)
    return assembler


@settings(deadline=None, max_examples=60)
@given(st.integers(0, _LOGS - 1), st.integers(0, 10_000), st.integers(0, 30))
def test_replay_from_any_checkpoint_gives_the_same_records(seed: int, at: int, back: int) -> None:
    """All of the state is durable; reading goes on where it speaks to, or some messages earlier."""
    log = log_of(seed)
    cut = at % (len(log) + 1)
    whole, first = Assembler(LIMITS), Assembler(LIMITS)
    expected = applied(whole, log)
    before = applied(first, log[:cut])
    second = restarted(dumped(first))
    after = applied(second, log[max(0, cut - back) :])
    assert before + after == expected
    assert dumped(second) == dumped(whole)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, _LOGS - 1), st.integers(0, 10_000), st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_replay_from_an_interrupted_checkpoint_gives_the_same_records(
    seed: int, at: int, before: int, chance: random.Random
) -> None:
    """A checkpoint was whole, and of the next one only some buckets: what a crash between any two sends leaves."""
    log = log_of(seed)
    early, late = sorted((at % (len(log) + 1), before % (len(log) + 1)))
    expected = applied(Assembler(LIMITS), log)
    first = Assembler(LIMITS)
    made = applied(first, log[:early])
    durable = dumped(first)
    made += applied(first, log[early:late])
    newer = dumped(first)
    durable |= {key: newer[key] for key in range(PRODUCERS) if chance.random() < 0.5}
    again = applied(restarted(durable), log[early:])
    assert set(again) <= set(expected), "another record than the first time"
    assert {*made, *again} == set(expected)


def test_the_logs_are_not_trivial() -> None:
    logs = [log_of(seed) for seed in range(_LOGS)]
    assert sum(map(len, logs)) > 20 * _LOGS
    assert sum(len(applied(Assembler(LIMITS), log)) for log in logs) > 8 * _LOGS
