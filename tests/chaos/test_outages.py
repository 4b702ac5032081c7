"""How the harness of outages judges an outage, its table, and a short run with a real broker."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.outages import FIRST_S, Outage, is_well, report

_ROOT = Path(__file__).parent.parent.parent


def outage(first_s: float | None, all_s: float | None, *codes: int, how: str = "kill") -> Outage:
    return Outage(how, 2.0, "works", None, first_s, all_s, codes)


@pytest.mark.parametrize(
    ("found", "well"),
    [
        (outage(1.0, 2.0), True),
        (outage(FIRST_S + 1, FIRST_S + 2), False),  # late, and no reason was logged
        (outage(None, None), False),
        (outage(130.0, 131.0, 75), True),  # ended with its reason, and its next run continued
        (outage(None, None, 75), False),
        (outage(1.0, 2.0, 3), False),
    ],
)
def test_judgement_of_an_outage(found: Outage, well: bool) -> None:
    assert is_well(found) is well


def test_the_table() -> None:
    table = report([outage(1.0, 2.0), outage(3.0, 9.0), outage(None, None, 75), outage(0.5, 0.6, how="freeze")])
    assert "| killed, 0 to 4 s | 3 | 2.0 / 3.0 s | 5.5 / 9.0 s | 1 | 75 |" in table
    assert "| frozen, 0 to 4 s | 1 | 0.5 / 0.5 s | 0.6 / 0.6 s | 0 | none |" in table
    assert table.splitlines()[-1].startswith("| all | 4 |")


@pytest.mark.kafka
@pytest.mark.timeout(400)
def test_short_run_with_a_real_broker_has_no_finding(kafka: str) -> None:
    """`kafka` skips if no broker can be started; the harness starts its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.outages", "--minutes", "0.3", "--seed", "3"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 streams with two records" in done.stdout
