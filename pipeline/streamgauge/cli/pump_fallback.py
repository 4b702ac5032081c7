"""The fallback from the native pump: if a tap's relays crash repeatedly, the tap starts them without the pump.

The pump is the relay's part in C. A fault in it kills the whole relay by a signal and cuts all of its open streams. Without
the pump the relay does the same work in Python.
"""

import contextlib
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from streamgauge.runtime.child import encode_settings
from streamgauge.spool.read_counters import Counters, Incident
from streamgauge.taps.proxy.relay_settings import RelaySettings

# The signals of a fault in machine code. SIGKILL (also the kernel's, when memory is short) and SIGTERM come from outside,
# so they indicate no fault of the pump.
CRASH_SIGNALS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
# The pump is switched off after CRASHES crashes of a tap's relays within WINDOW_S seconds. One or two may be chance; a
# relay that crashes every half minute is useless.
CRASHES = 3
WINDOW_S = 60.0


class PumpFallback:
    """Decides whether a tap's relays use the pump. `pump`: whether they do at first; `counters`: the tap's counters file.

    `say` prints a sentence for the operator; `now` is a clock in seconds.
    """

    def __init__(
        self, pump: bool, counters: Path, say: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.pump = pump
        self._counters = counters
        self._say = say
        self._now = now
        self._crashes: deque[float] = deque(maxlen=CRASHES)  # times of the latest crashes

    def encoded(self, relay: RelaySettings) -> bytes:
        """A relay's settings for its next start."""
        return encode_settings(replace(relay, pump=self.pump))

    def relay_ended(self, code: int) -> None:
        """Counts a relay that exited by itself. `code`: its exit code, or the negative number of its signal."""
        if not self.pump or -code not in CRASH_SIGNALS:
            return
        self._crashes.append(self._now())
        if len(self._crashes) < CRASHES or self._crashes[-1] - self._crashes[0] > WINDOW_S:
            return
        self.pump = False
        self._say(
            f"relays crashed {CRASHES} times within {WINDOW_S:g} s, the last one by {signal.Signals(-code).name}: from now on"
            " the tap starts relays without the pump, as with --pump off, which uses more CPU."
            " Please report the crash; to use the pump again, restart the tap"
        )
        with contextlib.suppress(OSError), Counters(self._counters, "delivery") as own:  # `say` has reported it
            own.happened(Incident.PUMP_OFF)
