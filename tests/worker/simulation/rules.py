"""Each rule of the worker, the code that implements it, and how to switch it off: then the simulation must fail.

This shows that each rule is needed, and that the simulation checks it.

| rule | where it is switched off |
|---|---|
| 1 apply, 2 checkpoint, 3 zombies, 4 endings, 6 loss, 7 metrics | RULES, below |
| 5 the ledger keeps the first record | `test_rules.py`: `ledger.sqlite.SqliteLedger._insert_new` |
| 8 static members, a short session | `test_members.py`: `slots.Slot`, `WorkerSettings.session_timeout_s` |
| 9 the shipper keeps order, and drops in the open | integration/test_shipper.py, spool/test_spool.py, spool/test_model.py |
| 10 without a broker: record, state, the spool's rows | `test_rules.py`: `LocalLoop.checkpoint` |
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from streamgauge.core.assembly import assembler
from streamgauge.core.assembly.assembler import BUCKETS, Assembler
from streamgauge.core.assembly.state import StreamState
from streamgauge.core.assembly.tap_instances import TapInstances
from streamgauge.kafka import topic_settings
from streamgauge.worker.assignment import Assignment
from streamgauge.worker.confirmed_sender import ConfirmedSender
from streamgauge.worker.faust.store import NewestStore
from streamgauge.worker.partition import Partition
from streamgauge.worker.partition_offsets import OffsetTracker
from tests.worker.simulation.faults import Faults
from tests.worker.simulation.taps import Network


@dataclass(frozen=True)
class Replaced:
    """A part of the worker, as an attribute of a class or module, and what replaces it to switch a rule off."""

    owner: Any
    attribute: str
    by: object

    def __str__(self) -> str:
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.attribute}"


@dataclass(frozen=True)
class Rule:
    """One rule. `code`: the code that implements it; `seeds`: schedules that fail if it is switched off.

    `faults`: the faults of these schedules; None: those that the seed draws.
    """

    name: str
    code: tuple[Replaced, ...]
    seeds: tuple[int, ...] = ()
    faults: Faults | None = None

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Switches the rule off within the context."""
        with contextlib.ExitStack() as stack:
            for part in self.code:
                stack.enter_context(patch.object(part.owner, part.attribute, part.by))
            yield


async def _await_nothing(*_: object, **__: object) -> None:
    return None


def _keep_the_last_entry(self: NewestStore, partition: int, key: bytes, value: bytes) -> None:
    self.data[key] = value
    self._key_partition[key] = partition


_record_bundle = TapInstances.record_bundle


def _record_all_as_new(self: TapInstances, instance: bytes, slot: int, number: int, log_ms: int) -> bool:
    _record_bundle(self, instance, slot, number, log_ms)
    return True


_close = Assembler._close


def _close_and_forget(self: Assembler, key: int, state: StreamState, *, remember: bool) -> None:
    _close(self, key, state, remember=False)


def _return_none(*_: object) -> None:
    return None


_process_message = Partition._process_message


async def _process_and_observe_at_once(self: Partition, message: Any) -> None:
    known = len(self._records)
    await _process_message(self, message)
    for record in self._records[known:]:
        self._context.metrics.observe(record)


_recover = Assignment._recover


def _recover_from_any_log(self: Assignment, number: int, committed: int, begins: int, ends: int) -> Partition:
    return _recover(self, number, committed, begins, 1 << 60)


# Crashes between any two sends, with missing bundles, so that a late segment may open a stream.
_CRASHES = Faults(Network(reordered=0.4, lost=0.1), workers=2, kills=6, trouble=0.05, checkpoint_s=0.6)
# The only fault is a log whose beginning expires.
_CUT = Faults(cut=True, checkpoint_s=0.6)
# Workers are suspended, continue with old entries, and are followed by workers that crash. In the second one suspensions are
# long, compaction is quick, and streams send little for a long time.
_ZOMBIES = Faults(workers=2, freezes=2, kills=3, compactions=3, checkpoint_s=0.6)
_SLOW = Faults(workers=2, freezes=2, kills=3, compactions=6, checkpoint_s=0.6, slow=True)


RULES = (
    Rule(
        "1: a bucket skips what lies at or below its offset",
        (Replaced(Assembler, "_buckets_to_apply", lambda self, offset: frozenset(range(BUCKETS))),),
        (24, 26, 32, 62),
        faults=_CRASHES,
    ),
    Rule(
        "1: a known bundle is a resend, and skipped",
        (Replaced(TapInstances, "record_bundle", _record_all_as_new),),
        (3, 4, 8),
    ),
    Rule("1: a segment after a missing one waits", (Replaced(assembler, "WAIT_SEGMENTS", 0),), (9, 10, 16)),
    Rule(
        "2: no step of a checkpoint before the one before it is confirmed",
        (Replaced(ConfirmedSender, "confirmed", _await_nothing),),
        (2, 3, 5),
    ),
    Rule(
        "3: of each key the entry with the highest applied offset counts, not the last",
        (Replaced(NewestStore, "apply_entry", _keep_the_last_entry),),
        (2, 3, 19),
        faults=_ZOMBIES,
    ),
    Rule(
        "3: every entry is written again before compaction may remove it",
        (Replaced(Partition, "_stale", lambda self: set()),),
        (122, 186),
        faults=_SLOW,
    ),
    Rule(
        "3: compaction leaves new entries",
        (Replaced(topic_settings, "STATE_MIN_COMPACTION_LAG_MS", 0),),
        (52, 74, 135),
        faults=_ZOMBIES,
    ),
    Rule(
        "3: a log that ends below what is applied was recreated",
        (
            Replaced(Assignment, "_recover", _recover_from_any_log),
            Replaced(OffsetTracker, "_check_end", _await_nothing),
        ),
        (3, 5, 14),
        faults=Faults(workers=2, kills=3, recreated=True),
    ),
    Rule(
        "4: a silent tap instance expires by the log's time",
        (Replaced(TapInstances, "silent", lambda self, since_ms: set()),),
        (8, 15),
    ),
    Rule(
        "4: a farewell and a successor end open streams",
        (Replaced(Assembler, "_abandon_ended_instances", _return_none),),
        (14, 19, 24),
    ),
    Rule(
        "4: a tick advances the log's time if no message comes",
        (Replaced(Partition, "_tick_if_due", _await_nothing),),
        (4, 7, 31),
    ),
    Rule(
        "4: a segment after the end opens no stream",
        (
            Replaced(Assembler, "_close", _close_and_forget),
            Replaced(TapInstances, "mark_abandoned", _return_none),
        ),
        (6, 9, 10),
    ),
    Rule(
        "6: a log gap is reported, and marked",
        (Replaced(Partition, "report_gap", _return_none),),
        (12, 13, 56, 62),
        faults=_CUT,
    ),
    Rule(
        "6: the records of streams that were open have the reason",
        (Replaced(Assembler, "mark_gap", _return_none),),
        (12, 13, 79),
        faults=_CUT,
    ),
    Rule(
        "7: metrics are observed when a checkpoint is confirmed",
        (Replaced(Partition, "_process_message", _process_and_observe_at_once),),
        (2, 4, 5),
    ),
)
