"""Counts silent streams: open event streams that have sent no token event for some time.

Time is the clock of the stream's own tap, as its bundles and heartbeats carry it. So a stream does not become silent because
the broker is away, or because the worker is behind: then that clock stands still. Nothing here reaches a record or the state.
"""

from collections import Counter
from collections.abc import Iterable

from streamgauge.core.assembly.record_builder import is_ignored
from streamgauge.core.assembly.state import StreamState


class SilenceTracker:
    """The silence of the open streams of one partition. `silent_seconds`: how long a silent stream has been without a token.

    A stream's silence begins when `count` first sees it, or sees that it has more token events: call it every few seconds.
    """

    def __init__(self, silent_seconds: float) -> None:
        self._silent_ns = round(silent_seconds * 1e9)
        self._clocks: dict[bytes, int] = {}  # of the tap instances that have open streams (ns)
        self._since: dict[
            bytes, tuple[int, int]
        ] = {}  # of each open stream: its token events, its tap's clock then (ns)

    def pass_time(self, instance: bytes, tap_ns: int) -> None:
        """The clock of a tap instance shows `tap_ns`."""
        self._clocks[instance] = max(tap_ns, self._clocks.get(instance, 0))

    def count(self, streams: Iterable[StreamState]) -> Counter[str | None]:
        """The number of silent streams by upstream, 0 included; `streams`: all that are open now.

        A stream whose tap has sent nothing since this process got the partition counts as not silent.
        """
        clocks: dict[bytes, int] = {}
        since: dict[bytes, tuple[int, int]] = {}
        silent: Counter[str | None] = Counter()
        for state in streams:
            now = self._clocks.get(state.instance)
            if now is None:
                continue
            clocks[state.instance] = now
            events = state.timing.token_events
            before = self._since.get(state.stream)
            since[state.stream] = before = before if before is not None and before[0] == events else (events, now)
            upstream = state.opening.upstream if state.opening is not None else None
            silent[upstream] += now - before[1] > self._silent_ns and is_expected_to_generate(state)
        self._clocks, self._since = clocks, since
        return silent


def is_expected_to_generate(state: StreamState) -> bool:
    """Whether more output is due: a stream was requested or has begun, and neither its terminal nor an error was seen."""
    if state.terminal or state.error is not None or is_ignored(state):
        return False
    if state.head is not None:
        return state.head.event_stream
    return state.request is not None and state.request.stream is True
