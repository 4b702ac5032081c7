"""Reports to the operator and the metrics while the disk refuses the recorder's writes to the spool."""

from collections.abc import Callable

from streamgauge.spool.read_counters import Counters

# A disk that is nearly full accepts and refuses writes in turn. A new refusal is reported at most this often (seconds).
REPORT_EVERY_S = 60.0


class WriteRefusals:
    """Call `refused` after each refused write, and `written` after each successful one. The gauge changes at once; the log is
    throttled (REPORT_EVERY_S).

    `say` writes a sentence for the operator; `clock` returns monotonic seconds.
    """

    def __init__(
        self,
        data_dir: str,
        counters: Counters,
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._data_dir = data_dir
        self._counters = counters
        self._say = say
        self._clock = clock
        self._active = self._reported = False
        self._began_s = 0.0
        self._reported_s: float | None = None
        counters.writes_refused(False)  # an earlier recorder may have been killed while the disk refused writes

    def refused(self, error: str) -> None:
        """Report that the system refused a write with this error."""
        if self._active:
            return
        self._active = True
        self._counters.writes_refused(True)
        now = self._began_s = self._clock()
        if self._reported_s is not None and now - self._reported_s < REPORT_EVERY_S:
            return
        self._reported, self._reported_s = True, now
        self._say(
            f"the spool in {self._data_dir} cannot be written ({error}): new reads wait in memory; beyond its limit they are"
            " discarded and counted as spool_failed; free space there, or make the directory writable"
        )

    def written(self) -> None:
        """Report that a write succeeded."""
        if not self._active:
            return
        self._active = False
        self._counters.writes_refused(False)
        if self._reported:
            self._reported = False
            lasted = self._clock() - self._began_s
            self._say(f"the spool in {self._data_dir} can be written again, after {lasted:.1f} s")
