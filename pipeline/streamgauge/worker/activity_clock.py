"""Measure how the task of one partition spends its time: each moment belongs to exactly one activity.

waiting      for messages, for the broker's answer about missing messages, or while other partitions run
decoding     decoding a message's bytes into a bundle
applying     assembling the bundle's segments into streams and records
sending      sending records, dead letters and ticks; for a dead letter, until it is durable
committing   a checkpoint: confirmation of what was sent, the state, the metrics, the offset to be committed

All partitions of a worker share one event loop, and each measures wall-clock seconds of its own. So the five activities
add up to one second per second for one partition, and to eight for eight partitions. `decoding` and `applying` never wait,
so the sum of both over all partitions is the share of time in which the event loop runs them. A partition that waits may
have messages to read: the lag shows that. While a partition sends or commits, it may wait for the broker, and other
partitions run. Other tasks commit the offsets of all partitions and write the ledger; no partition's time includes that.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class Activity(StrEnum):
    """Activities of a partition's task; also values of the metric's label."""

    WAITING = "waiting"
    DECODING = "decoding"
    APPLYING = "applying"
    SENDING = "sending"
    COMMITTING = "committing"


class ActivityClock:
    """The seconds of one partition's task, by activity. The first activity is WAITING. `now`: returns the time (seconds)."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._activity = Activity.WAITING
        self._since = now()
        self._seconds = dict.fromkeys(Activity, 0.0)

    def enter(self, activity: Activity) -> Activity:
        """Begin an activity and end the previous one; returns the previous one."""
        now, before = self._now(), self._activity
        self._seconds[before] += now - self._since
        self._since, self._activity = now, activity
        return before

    @contextmanager
    def during(self, activity: Activity) -> Iterator[None]:
        """Enter an activity for the duration of a block, and then return to the previous one."""
        before = self.enter(activity)
        try:
            yield
        finally:
            self.enter(before)

    def take_seconds(self) -> dict[Activity, float]:
        """Return the seconds since the last call, by activity, including the current activity."""
        self.enter(self._activity)
        taken, self._seconds = self._seconds, dict.fromkeys(Activity, 0.0)
        return taken
