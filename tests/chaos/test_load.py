"""Which streams a tap's death puts in doubt."""

import pytest

from tests.chaos.load import LOSS_WINDOW_S, Asked, Killed

KILLED = Killed("tap-0", 100.0, 101.0)
BEGAN = KILLED.since - 60


@pytest.mark.parametrize(
    ("began", "ended", "over", "doubt"),
    [
        (BEGAN, BEGAN + 20, BEGAN + 20, None),  # all of it was safe
        (BEGAN, KILLED.since - 1, KILLED.since - 1, "open"),  # its end may be under way
        (BEGAN, KILLED.since - LOSS_WINDOW_S - 1, KILLED.until, "open"),  # it stalled, and the death ended it
        (KILLED.since - 1, KILLED.since, KILLED.until, "new"),
        (KILLED.until + 1, KILLED.until + 3, KILLED.until + 3, None),  # of the next life
    ],
)
def test_a_stream_is_in_doubt_if_the_tap_died_before_all_of_it_was_safe(
    began: float, ended: float, over: float, doubt: str | None
) -> None:
    asked = Asked("t-1", "tap-0", began, {}, ended, over)
    assert asked.line([KILLED], [("kills", 0.0)])["doubt"] == doubt
    assert asked.line([KILLED._replace(source="tap-1")], [("kills", 0.0)])["doubt"] is None
