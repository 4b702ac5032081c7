"""The checks run at once, end in time, and show no traceback whatever happens in one of them."""

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path

from streamgauge.doctor.checks import CHECKS, Check, run_checks
from streamgauge.doctor.contract import Finding, Installation, failure_of, in_thread, ok
from streamgauge.errors import Unavailable
from tests.doctor.examined import FAIL, OK, installation

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "doctor.md"


async def hangs(_: Installation) -> Sequence[Finding]:
    await in_thread(time.sleep, 30)
    return []


async def breaks(_: Installation) -> Sequence[Finding]:
    raise ZeroDivisionError("CANARY")


async def refuses(_: Installation) -> Sequence[Finding]:
    raise Unavailable("the thing at http://user:CANARY@h is away: start it")


async def works(_: Installation) -> Sequence[Finding]:
    return [ok("fine"), ok("good")]


def test_each_check_ends_with_a_finding(tmp_path: Path) -> None:
    checks = [
        Check("a", hangs),
        Check("b", breaks),
        Check("c", refuses),
        Check("d", works),
        Check("e", works, ("tap",)),
    ]
    began = time.monotonic()
    found = asyncio.run(run_checks(installation("up", tmp_path), 0.3, checks))
    assert time.monotonic() - began < 20, "a thread that hangs delays neither the others nor the end"
    assert [(name, one.level) for name, one in found] == [("a", FAIL), ("b", FAIL), ("c", FAIL), ("d", OK), ("d", OK)]
    assert "within 0.3 s" in found[0][1].says
    assert "ZeroDivisionError" in found[1][1].says
    assert (found[2][1].says, found[2][1].cure) == ("the thing at ...@h is away", "start it")
    assert "CANARY" not in str(found)


def test_a_sentence_without_a_cure_stays_whole() -> None:
    assert failure_of(Unavailable("it does not work")) == Finding(FAIL, "it does not work")


def test_each_check_has_its_own_name_and_a_row_in_the_guide() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ", GUIDE.read_text(), flags=re.MULTILINE)
    assert rows == [check.name for check in CHECKS]
