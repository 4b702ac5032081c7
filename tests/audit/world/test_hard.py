"""Worlds of a company's size and noise: no cause is invented, and none is missed that evidence can decide.

`make bench-causes` audits 200 of them, also large ones, and writes what became of their causes into docs/performance.md.
"""

from pathlib import Path

import pytest
from hypothesis import settings

from tests.audit.world.cases import HARD_EXPORTS, Case, audited, cases
from tests.audit.world.hard_plants import HARD_PLANTS
from tests.audit.world.test_world import check_sums
from tests.each import each

# Every eleventh of the worlds with 300 calls a day: of each export some. All with the profile `many`.
EVERY = {"many": 1}.get(settings.get_current_profile_name(), 11)
# Not mended: each day has billed streams without usage, and no kind of token agrees, so the shift of the time zone is not
# found; in one line of each a stream without usage is as likely, and the alternatives lack the shift.
HIDDEN_SHIFTS = (184, 196)
SMALL = [case for case in cases(200) if case.per_day == 300 and case.seed not in HIDDEN_SHIFTS]


def test_each_plant_and_each_export_is_in_a_world() -> None:
    assert {case.export for case in SMALL[::EVERY]} == set(HARD_EXPORTS)
    assert {plant for case in cases(200) for plant in case.plants} == set(HARD_PLANTS)


@pytest.mark.timeout(900)
@each(SMALL[::EVERY])
def test_no_cause_is_invented_and_none_is_missed(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    tally, result, _ = audited(case, tmp_path_factory.mktemp("world"))
    assert tally.faults == []
    check_sums(result)


def test_a_thousand_streams_a_cell_are_searched(tmp_path: Path) -> None:
    case = Case(7, "OpenAI API", 3_000, ("missing", "retries"), "same model")
    tally, result, _ = audited(case, tmp_path)
    assert tally.faults == []
    assert {"missing_from_invoice", "retries_billed_twice"} <= {one["cause"] for one in result["causes"]}
