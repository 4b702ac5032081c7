"""A simulator for a test: in a thread with its own event loop, so that sync clients can be used."""

from collections.abc import Mapping

from streamgauge_demo.scenario import Scenario
from streamgauge_demo.scenarios import BY_MODEL
from streamgauge_demo.simulator import Simulator

# Fast enough for a test, slow enough that most writes arrive separately.
QUICK = 0.05


def simulator(time_scale: float = QUICK, scenarios: Mapping[str, Scenario] = BY_MODEL) -> Simulator:
    """A simulator, which serves while its context lasts."""
    return Simulator(scenarios, time_scale=time_scale)
