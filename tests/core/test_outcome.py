"""The order in which an outcome is decided: the first line that holds."""

import pytest

from streamgauge.core.outcome import FINISH_REASONS, outcome_of
from streamgauge.core.segments import Ending


@pytest.mark.parametrize(
    ("status", "error", "terminal", "ending", "gone", "outcome"),
    [
        (500, True, True, Ending.COMPLETE, True, "http_error"),
        (300, False, False, Ending.COMPLETE, False, "http_error"),
        (200, True, True, Ending.CLIENT, True, "stream_error"),
        (200, False, True, Ending.RESET, False, "completed"),
        (200, False, True, Ending.CLIENT, True, "completed"),
        (200, False, True, None, False, "completed"),
        (200, False, False, Ending.RESET, True, "client_abort"),
        (None, False, False, Ending.CLIENT, True, "client_abort"),
        (None, False, False, Ending.RESET, False, "upstream_reset"),
        (200, False, False, Ending.RESET, False, "upstream_reset"),
        (200, False, False, Ending.COMPLETE, False, "truncated"),
        (None, False, False, Ending.TIMEOUT, False, "timeout"),
        (200, False, False, Ending.CUT, False, "abandoned"),
        (None, False, False, None, False, "abandoned"),
    ],
)
def test_the_first_line_that_holds(
    status: int | None, error: bool, terminal: bool, ending: Ending | None, gone: bool, outcome: str
) -> None:
    assert outcome_of(status=status, error=error, terminal=terminal, ending=ending, client_gone=gone) == outcome


def test_finish_reasons_have_one_vocabulary() -> None:
    assert set(FINISH_REASONS.values()) == {"stop", "length", "tool_calls", "content_filter", "error", "paused"}
