"""One turn of a sender: collect the notes of streams, connect to the recorder, send. It waits only in a send."""

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

# Interval between attempts to connect to a recorder, or to use a data directory (seconds).
RETRY_S = 1.0
# Pause between two turns of collecting notes (seconds): the application's threads get the GIL in between.
BREATH_S = 0.00005


class Agents(Protocol):
    """Receives the report that no recorder is reachable (agent.py)."""

    def away(self, data_dir: Path) -> None:
        """No recorder is reachable. May start one; never raises."""

    def expected(self, data_dir: Path) -> bool:
        """Whether one will be started."""


class RecorderConnection:
    """Sends one process's notes to the recorder of a data directory. Only the sender's thread uses it."""

    def __init__(
        self,
        data_dir: Path,
        agents: Agents,
        capacity: int = CAPACITY_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises OSError if the data directory cannot be used or has no free counter slot."""
        self._data_dir, self._agents, self._capacity, self._clock = data_dir, agents, capacity, clock
        self._role = CounterSlot(data_dir)
        self._outbox = MessageBatches(lambda: recorder_socket(data_dir), self.counters, capacity)
        self._collector = NoteCollector(self._outbox, self.counters)
        self._next_look_s = 0.0

    @property
    def counters(self) -> Counters:
        """The counters of this process."""
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
        """Everything that was collected has been sent."""
        return self._outbox.empty

    @property
    def connected(self) -> bool:
        """Whether a recorder is connected, as far as is known."""
        return self._outbox.connected

    @property
    def hopeless(self) -> bool:
        """Messages wait for a recorder that is away and that this process does not start."""
        return not (self.empty or self.connected or self._agents.expected(self._data_dir))

    def turn(self, begun: deque[NotedStream], *, hurry: bool = False) -> bool:
        """Collects the notes and sends what can be sent. Returns whether there were notes."""
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
        """Disconnects while idle, so that a draining agent need not wait for this process."""
        self._outbox.disconnect()

    def close(self) -> None:
        """The process exits: drops what waits and releases the counter slot."""
        self._outbox.give_up()
        self._role.close()

    def forget(self) -> None:
        """Called in a forked child: the connection and the counter slot belong to the parent."""
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
        """The data directory was recreated: claims a slot in its new counters file."""
        before, self._role = self._role, CounterSlot(self._data_dir)
        before.close()
        self._outbox.count_in(self.counters)
        self._collector.counters = self.counters

    def survived(self) -> None:
        """Counts an internal error."""
        self.counters.happened(Incident.CAPTURE_FAULT)
