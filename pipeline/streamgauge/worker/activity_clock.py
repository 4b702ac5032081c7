"""How the task of one partition spends its time: each moment belongs to exactly one activity.

waiting      for messages, also for the broker's word on missing ones, or for its turn while other partitions have theirs
decoding     making a bundle of a message's bytes
applying     assembling the bundle's segments into streams and records
sending      handing over records, dead letters and ticks; a dead letter until it is durable
committing   a checkpoint: confirmation of what was sent, the state, the metrics, the offset to be committed

A worker with several partitions has one event loop for all of them. So the seconds are those of the wall clock, for each
partition by itself: of one partition the five add up to a second per second, of eight partitions to eight. `decoding` and
`applying` never wait, so their sum over all partitions is the part of a second for which the event loop is busy with them.
A partition that waits may have messages: the lag tells that. While a partition sends or commits, it may wait for the
broker, and others have their turn. Other tasks commit the offsets of all partitions and write the ledger: that is no
partition's time.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class Activity(StrEnum):
    """What a partition's task does; the label of its metric."""

    WAITING = "waiting"
    DECODING = "decoding"
    APPLYING = "applying"
    SENDING = "sending"
    COMMITTING = "committing"


class ActivityClock:
    """The seconds of one partition's task, by activity. It begins with waiting. `now`: the time (seconds)."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._activity = Activity.WAITING
        self._since = now()
        self._seconds = dict.fromkeys(Activity, 0.0)

    def enter(self, activity: Activity) -> Activity:
        """Begin an activity, which ends the one before; gives the one before."""
        now, before = self._now(), self._activity
        self._seconds[before] += now - self._since
        self._since, self._activity = now, activity
        return before

    @contextmanager
    def during(self, activity: Activity) -> Iterator[None]:
        """An activity inside of another one, which goes on after it."""
        before = self.enter(activity)
        try:
            yield
        finally:
            self.enter(before)

    def take(self) -> dict[Activity, float]:
        """The seconds since the last call, with those of the activity that is under way."""
        self.enter(self._activity)
        taken, self._seconds = self._seconds, dict.fromkeys(Activity, 0.0)
        return taken
