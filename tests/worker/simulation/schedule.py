"""One schedule: what goes wrong and when, drawn from a seed, around real workers; and what is left when it is over.

Each schedule draws which kinds of fault it has (so that some have many of one kind), then lets taps, network, workers and
broker go their way for a while, then lets all faults end and waits until everything is done.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from streamgauge.core.limits import Limits
from streamgauge.kafka.producer import Message
from streamgauge.metrics import table
from streamgauge.worker.faults import LogRecreatedError
from streamgauge.worker.settings import WorkerSettings
from tests.worker.simulation.broker import Broker, Entry, PartitionLog
from tests.worker.simulation.faults import Faults, drawn
from tests.worker.simulation.group import Group
from tests.worker.simulation.life import AnyShelf, Life, Shelf
from tests.worker.simulation.oracle import Durable, Oracle
from tests.worker.simulation.taps import Sent, Stream, Tap
from tests.worker.simulation.world import World

SETTINGS = WorkerSettings("127.0.0.1:1", Path("unused"), "sim", abandon_after=12.0, tick_s=3.0)
# How long everything may take to be done when taps have stopped (seconds).
PATIENCE_S = 400.0
# The cleaner's lag of slow schedules (ms): above the 30 s within which an owner writes every entry again, a session, and
# the time until the next owner does.
SLOW_LAG_MS = 45_000
_STREAMS = 12


class Gap(NamedTuple):
    """What the log lost unread: what was committed, where it begins now, and the streams that had their record."""

    committed: int
    begins: int
    recorded: frozenset[str]


class Schedule:
    """Run it once with `run`; then it can be judged (`verdict.py`)."""

    def __init__(self, seed: int, faults: Faults | None = None, shelf: AnyShelf | None = None) -> None:
        self.world = World(seed)
        self.faults = faults or drawn(self.world)
        self.settings = replace(SETTINGS, checkpoint_s=self.faults.checkpoint_s)
        self.topics = self.settings.topics
        self.broker = Broker(self.world, self.topics, self.faults.partitions)
        self.broker.trouble = self.faults.trouble
        if self.faults.slow:
            self.broker.compaction_lag_ms = min(self.broker.compaction_lag_ms, SLOW_LAG_MS)
        self.broker.on_append = self._on_append
        self.group = Group(self.broker, SETTINGS.session_timeout_s, self._on_commit)
        self.shelf: AnyShelf = shelf or Shelf(self.world, self.faults.refusing)
        limits = Limits(abandon_after=self.settings.abandon_after)
        self.history: list[list[Entry]] = [[] for _ in range(self.faults.partitions)]
        self.oracles = [Oracle(number, limits, log) for number, log in enumerate(self.history)]
        self.durable = Durable()
        self.recorded: dict[str, list[bytes]] = {}
        self.taps: list[Tap] = []
        self.lives: list[Life] = []
        self.violations: list[str] = []
        self._on_the_way = 0
        self.deleted = 0
        self.gaps: dict[int, Gap] = {}
        self.lost_with_log: dict[int, int] = {}
        self.is_disturbed = self.faults.cut or self.faults.recreated  # the log itself: no assembler can read all of it
        self._current: dict[str, Life] = {}
        self.is_finished = self._forging = False

    @property
    def streams(self) -> list[Stream]:
        return [stream for tap in self.taps for stream in tap.streams]

    def run(self) -> bool:
        """Whether everything was done in the end, or a worker said that it could not."""
        for number in range(self.faults.workers):
            self._start_worker(f"worker-{number}")
        self._plan_taps()
        self._plan_faults()
        self.world.after(self.faults.traffic_s, self._end_traffic)
        try:
            return self.world.run(self._is_over, self.faults.traffic_s + PATIENCE_S)
        finally:
            self.world.end()

    # --- workers ----------------------------------------------------------------------------------------------------

    def _start_worker(self, identity: str) -> None:
        life = Life(self.broker, self.group, self.shelf, self.settings, identity, self.faults.losing)
        self.lives.append(life)
        self._current[identity] = life

    def _look_after_workers(self) -> None:
        """Start again who is gone: soon, or after its session."""
        for identity, life in self._current.items():
            if life.ended and not isinstance(life.fault, LogRecreatedError):
                life.kill()
                self._start_worker(identity)
        self.world.after(self.world.chance.choice((0.5, 2.0, 2.0, 12.0)), self._look_after_workers)

    def _some_life(self) -> Life:
        return self.world.chance.choice([*self._current.values()])

    # --- what goes wrong --------------------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        faults, chance, world = self.faults, self.world.chance, self.world
        kinds = (
            (faults.kills, self._kill),
            (faults.stops, lambda: self._some_life().stop()),
            (faults.freezes, self._freeze),
            (faults.outages, self._outage),
            (faults.compactions, self._compact),
            (faults.poison, lambda: self._write(chance.randbytes(9))),
            (faults.holes, self._leave_hole),
            (faults.forgeries, self._forge),
            (int(faults.cut), self._cut_off),
            (int(faults.recreated), self._recreate_log),
        )
        for times, fault in kinds:
            for _ in range(times):
                world.after(chance.uniform(1.0, faults.traffic_s + 5), fault)
        world.after(1.0, self._look_after_workers)

    def _kill(self) -> None:
        """SIGKILL: at once, or between two sends of what it sends next."""
        life, chance = self._some_life(), self.world.chance
        topic = chance.choice((None, self.topics.records, self.topics.state, self.topics.state))
        if topic is None:
            life.kill()
        else:
            life.at_send(topic, chance.randrange(4), lambda: self.world.after(chance.random() * 0.1, life.kill))

    def _freeze(self) -> None:
        """SIGSTOP: at once, or while entries of its state are on their way out."""
        life, chance = self._some_life(), self.world.chance
        if chance.random() < 0.3:
            self._put_to_sleep(life)
        else:
            life.at_send(self.topics.state, chance.randrange(4), lambda: self._put_to_sleep(life))

    def _put_to_sleep(self, life: Life) -> None:
        life.freeze()
        self.world.after(
            self.world.chance.choice((1.0, 13.0, 13.0, 40.0 if self.faults.slow else 20.0)), lambda: self._wake(life)
        )

    def _wake(self, life: Life) -> None:
        """What it had begun goes on: it may be a zombie's. Then the cleaner may come, and the next owner may die, too."""
        chance = self.world.chance
        life.wake()
        if chance.random() < 0.5:
            self.world.after(0.2, self._compact)
        for other in list(self._current.values()):
            if chance.random() < 0.5:
                self.world.after(0.3 + chance.random(), other.kill)

    def _outage(self) -> None:
        self.broker.up = False
        self.world.after(self.world.chance.choice((0.3, 3.0, 12.0)), self._end_outage)

    def _end_outage(self) -> None:
        self.broker.up = True

    def _compact(self) -> None:
        self.broker.compact()
        for number, log in enumerate(self.broker.logs[self.topics.state]):
            self.durable.look_again(number, log.entries)

    def _some_partition(self) -> int:
        return self.world.chance.randrange(self.faults.partitions)

    def _write(self, value: bytes) -> None:
        self.broker.append(self.topics.segments, self._some_partition(), None, value)

    def _leave_hole(self) -> None:
        """A transaction's marker: an offset without a message, then a message."""
        log = self.broker.logs[self.topics.segments][self._some_partition()]
        log.end += 1

    def _forge(self) -> None:
        """Somebody writes another record of a stream that has one."""
        if self.recorded:
            stream = self.world.chance.choice([*self.recorded])
            forged = self.recorded[stream][0].replace(b'"tap_version":"1"', b'"tap_version":"2"')
            self._forging = True
            self.broker.take(Message(self.topics.records, forged, stream.encode()))
            self._forging = False

    def _cut_off(self) -> None:
        """All workers die, and before they come back a part of the log is gone."""
        for life in self._current.values():
            life.kill()
        self.world.after(self.world.chance.uniform(0.2, 6.0), self._cut)

    def _cut(self) -> None:
        """Retention deletes the log's beginning, read or not."""
        for number, log in enumerate(self.broker.logs[self.topics.segments]):
            before = self.world.chance.randint(log.begin, log.end)
            committed = self.group.committed.get((self.topics.segments, number), 0)
            fetched = self.broker.fetched_to.get((self.topics.segments, number), 0)
            unread = len([entry for entry in log.entries if fetched <= entry.offset < before])
            if unread:
                self.deleted += unread
                self.gaps[number] = Gap(committed, before, frozenset(self.recorded))
            log.delete_before(before)

    def _recreate_log(self) -> None:
        """The segments topic is deleted and made again."""
        for (topic, number), offset in self.group.committed.items():
            if topic == self.topics.segments:
                self.lost_with_log[number] = offset
        self.broker.logs[self.topics.segments] = [PartitionLog() for _ in range(self.faults.partitions)]
        self.is_disturbed = True

    # --- taps -------------------------------------------------------------------------------------------------------

    def _plan_taps(self) -> None:
        chance = self.world.chance
        self.left_to_begin = _STREAMS
        for _ in range(chance.randint(1, 2)):
            self._new_tap()
        for _ in range(self.faults.tap_deaths):
            self.world.after(chance.uniform(2.0, self.faults.traffic_s), self._end_a_tap)

    def _new_tap(self) -> Tap:
        tap = Tap(self.world, self.faults.network, self.faults.partitions, self._dispatch)
        self.taps.append(tap)
        self.world.after(self.world.chance.random(), lambda: self._step(tap))
        return tap

    def _step(self, tap: Tap) -> None:
        if tap.gone or self.world.now > self.faults.traffic_s:
            return
        begin = min(self.left_to_begin, self.world.chance.choice((0, 0, 1, 2)))
        self.left_to_begin -= begin
        tap.step(begin)
        pace = 8.0 if self.faults.slow else 1.0
        self.world.after(self.world.chance.uniform(0.2, 1.5) * pace, lambda: self._step(tap))

    def _end_a_tap(self) -> None:
        """It says farewell, or dies; then another may take its place, on the same data directory or not."""
        living = [tap for tap in self.taps if not tap.gone]
        if not living:
            return
        chance = self.world.chance
        tap = chance.choice(living)
        match chance.randrange(4):
            case 0:
                tap.leave([], farewell=True)
                self._new_tap()
            case 1:
                tap.gone = True
                self._new_tap()
            case 2:
                tap.gone = True
                self._new_tap().succeed(tap)
            case 3:
                tap.gone = True

    def _dispatch(self, sent: Sent, delay: float) -> None:
        self._on_the_way += 1
        self.world.after(delay, lambda: self._deliver(sent))

    def _deliver(self, sent: Sent) -> None:
        self._on_the_way -= 1
        if not self.broker.up:
            self._dispatch(sent, 1.0)
            return
        at_ms = self.broker.now_ms
        offset = self.broker.append(self.topics.segments, sent.partition, None, sent.value)
        sent.arrivals.append((offset, at_ms))

    # --- the end ----------------------------------------------------------------------------------------------------

    def _end_traffic(self) -> None:
        """Taps finish what they can; then nothing goes wrong any more."""
        for tap in self.taps:
            if not tap.gone:
                for _ in range(self.world.chance.choice((0, 12))):
                    tap.step(0)
                if self.world.chance.random() < 0.7:
                    tap.leave([], farewell=True)
                tap.gone = True
        self.world.after(6.0, self._end_faults)

    def _end_faults(self) -> None:
        self.broker.trouble = 0.0
        self.shelf.refusing = 0.0
        self._look_whether_finished()

    def _look_whether_finished(self) -> None:
        self.is_finished = self._is_finished()
        self.world.after(2.0, self._look_whether_finished)

    def _is_finished(self) -> bool:
        logs = self.broker.logs
        for topic in (self.topics.segments, self.topics.records):
            for number, log in enumerate(logs[topic]):
                last = log.entries[-1].offset + 1 if log.entries else 0
                if self.group.committed.get((topic, number), 0) < last:
                    return False
        lives = self._current.values()
        return self._on_the_way == 0 and all(life.works and not life.open_streams for life in lives)

    def _is_over(self) -> bool:
        if self.violations or self.is_finished:
            return True
        return any(life.fault is not None and life.ended for life in self.lives)

    # --- what is watched --------------------------------------------------------------------------------------------

    def _on_append(self, topic: str, partition: int, entry: Entry) -> None:
        if topic == self.topics.segments:
            self.history[partition].append(Entry(entry.offset, entry.at_ms, entry.key, entry.value))
        elif topic == self.topics.state:
            self.durable.note(entry.key or b"", entry.value or b"")
        elif topic == self.topics.records and not self._forging:
            self.recorded.setdefault((entry.key or b"").decode(), []).append(entry.value or b"")

    def _on_commit(self, topic: str, partition: int, offset: int) -> None:
        if self.is_disturbed:
            return
        if topic == self.topics.segments:
            self.violations += self.oracles[partition].missing_at_commit(
                offset, self._is_recorded, self.durable.newest.get(partition, {})
            )
        elif topic == self.topics.records:
            done = [entry for entry in self.broker.logs[topic][partition].entries if entry.offset < offset]
            missing = {(one.key or b"").decode() for one in done} - self.shelf.records.keys()
            self.violations += [f"committed {offset} of the records without {stream}" for stream in sorted(missing)]

    def _is_recorded(self, stream: str, record: bytes) -> bool:
        return record in self.recorded.get(stream, ())

    def counted(self, name: str) -> int:
        """A metric, over all lives."""
        return sum(life.metrics.counts[name] for life in self.lives)

    @property
    def gaps_reported(self) -> int:
        return self.counted(table.LOG_GAP_MESSAGES.name)
