"""How a run spreads its tests over processes: one in four begins with the shortest, the others with the longest.

Long tests start brokers and workers and wait for them; short tests compute. Together they use the cores of the machine
from the beginning to the end. If all processes ran the long ones, they would start too many programs at a time, and the
short ones would use the cores only at the end. If half of them ran the short ones, units of 20 s would be left for the end.

A unit of work is one file, so that what its tests share is created once. The files of `APART` share nothing expensive:
each of their tests is a unit, but vectors of one dialect stay together. costs.toml has the durations of units; others
are short. `python -m tests.spreading build/*.xml` writes it from the reports of whole runs.
"""

import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from xdist.scheduler import LoadScopeScheduling

COSTS = Path(__file__).with_name("costs.toml")
# Units below this are not written down (s).
LEAST_COST_S = 2

# Files whose tests share nothing but the run's own broker.
APART = (
    "tests/bench/",
    "tests/blackbox/",
    "tests/chaos/",
    "tests/core/",
    "tests/docs/test_pages.py",
    "tests/faults/",
    "tests/fuzz/",
    "tests/integration/test_kafka_versions.py",
    "tests/integration/test_up.py",
    "tests/integration/test_versions.py",
    "tests/integration/test_worker.py",
    "tests/spool/",
    "tests/taps/proxy/native/test_pump_sanitized.py",
    "tests/taps/proxy/test_fuzzed_requests.py",
    "tests/recorder/",
    "tests/cli/test_main.py",
    "tests/worker/",
)
# Files whose tests share the broker that requires authentication (the fixture `secured`): together they are one unit.
SECURED = (
    "tests/faults/test_broker_rights.py",
    "tests/faults/test_broker_security.py",
    "tests/kafka/test_connection_diagnosis.py",
    "tests/security/test_kafka_roles.py",
)


def unit_of(nodeid: str) -> str:
    """The unit of work that a test belongs to."""
    if nodeid.startswith(SECURED):
        return SECURED[0]
    if not nodeid.startswith(APART):
        return nodeid.split("::", 1)[0]
    test, _, parameters = nodeid.removesuffix("]").partition("[")
    return f"{test}[{parameters.split('/', 1)[0]}]" if parameters else test


class ByCost(LoadScopeScheduling):
    """Hands out units: to one process in four the cheapest that is left, to the others the most expensive."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._costs: dict[str, int] = tomllib.loads(COSTS.read_text())

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        chosen = min if self.nodes.index(node) % 4 == 1 else max
        self.workqueue.move_to_end(chosen(self.workqueue, key=lambda unit: self._costs.get(unit, 0)), last=False)
        super()._assign_work_unit(node)


def costs_of(*reports: Path) -> dict[str, int]:
    """Seconds of each unit in JUnit reports, those of `LEAST_COST_S` and more, the costliest first."""
    found: dict[str, float] = defaultdict(float)
    for case in (case for report in reports for case in ElementTree.parse(report).getroot().iter("testcase")):
        file = f"{case.attrib['classname'].replace('.', '/')}.py"
        found[unit_of(f"{file}::{case.attrib['name']}")] += float(case.attrib["time"])
    ordered = sorted(found.items(), key=lambda one: -one[1])
    return {unit: round(cost) for unit, cost in ordered if cost >= LEAST_COST_S}


if __name__ == "__main__":
    lines = [f'"{unit}" = {cost}' for unit, cost in costs_of(*map(Path, sys.argv[1:])).items()]
    COSTS.write_text("\n".join(["# Seconds of each unit of work (tests/spreading.py), from a whole run.", *lines, ""]))
