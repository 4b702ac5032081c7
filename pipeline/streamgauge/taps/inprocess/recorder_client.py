"""What a sender does in one turn: take the streams' notes, look for the recorder, send. It waits nowhere but in a send."""

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from streamgauge.spool.read_counters import Counters, Incident
from streamgauge.taps.inprocess.agent_location import recorder_socket
from streamgauge.taps.inprocess.capture import NotedStream
from streamgauge.taps.inprocess.counter_slot import CounterSlot
from streamgauge.taps.inprocess.note_collector import NoteCollector
from streamgauge.taps.inprocess.outbox import CAPACITY_BYTES, MessageBatches

# How often a recorder that is away is looked for, or a data directory that cannot be used (seconds).
RETRY_S = 1.0
# Between two turns of taking notes (seconds): so long at least the application's threads have the interpreter.
BREATH_S = 0.00005


class Agents(Protocol):
    """Who is told that no recorder is there (agent.py)."""

    def away(self, data_dir: Path) -> None:
        """None could be reached. May start one; never raises."""

    def expected(self, data_dir: Path) -> bool:
        """Whether one will be there soon."""


class RecorderConnection:
    """One process's way from notes to the recorder of a data directory. Used by the sender's thread alone."""

    def __init__(
        self,
        data_dir: Path,
        agents: Agents,
        capacity: int = CAPACITY_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises OSError where the data directory cannot be used, or has no role left."""
        self._data_dir, self._agents, self._capacity, self._clock = data_dir, agents, capacity, clock
        self._role = CounterSlot(data_dir)
        self._outbox = MessageBatches(lambda: recorder_socket(data_dir), self.counters, capacity)
        self._collector = NoteCollector(self._outbox, self.counters)
        self._next_look_s = 0.0

    @property
    def counters(self) -> Counters:
        """The books of this process."""
        return self._role.counters

    @property
    def full(self) -> bool:
        """There is no room for more reads."""
        return self._outbox.full or self._outbox.held + self._collector.untaken_bytes > self._capacity

    @property
    def streams(self) -> int:
        """Streams that have not ended."""
        return self._collector.open_streams

    @property
    def empty(self) -> bool:
        """All that was taken went out."""
        return self._outbox.empty

    @property
    def connected(self) -> bool:
        """Whether a recorder is there, as far as is known."""
        return self._outbox.connected

    @property
    def hopeless(self) -> bool:
        """Something waits for a recorder that is not there and will not come by itself."""
        return not (self.empty or self.connected or self._agents.expected(self._data_dir))

    def turn(self, begun: deque[NotedStream], *, hurry: bool = False) -> bool:
        """Take what was noted, send what can be sent. Whether there were any notes."""
        while begun:
            self._collector.begin(begun.popleft())
        found = False
        for _ in self._collector.collect():
            found = True
            time.sleep(BREATH_S)
        if not self._outbox.empty and not self._outbox.connected:
            self._look(hurry)
        self._outbox.send()
        return found

    def rest(self) -> None:
        """Nothing is to be done: an agent that drains need not wait for this process."""
        self._outbox.disconnect()

    def close(self) -> None:
        """The process ends: what waits is dropped, the role given back."""
        self._outbox.give_up()
        self._role.close()

    def forget(self) -> None:
        """In a forked child: connection and role are the parent's."""
        self._outbox.forget()
        self._role.forget()

    def _look(self, hurry: bool) -> None:
        now = self._clock()
        if now < self._next_look_s and not hurry:
            return
        if not self._outbox.connect():
            if now >= self._next_look_s:
                self._next_look_s = now + RETRY_S
                self._agents.away(self._data_dir)
        elif not self._role.is_current:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """The data directory was made anew: so are its books."""
        before, self._role = self._role, CounterSlot(self._data_dir)
        before.close()
        self._outbox.count_in(self.counters)
        self._collector.counters = self.counters

    def survived(self) -> None:
        """A fault of ours."""
        self.counters.happened(Incident.CAPTURE_FAULT)
