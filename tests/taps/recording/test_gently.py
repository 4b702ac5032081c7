"""Work in portions: the same items, and others get the core in between."""

import os

import pytest

from streamgauge.taps.recording.gently import gently


@pytest.mark.parametrize(("items", "offers"), [(0, 0), (3, 0), (4, 1), (11, 2)])
def test_the_core_is_offered_behind_each_portion(items: int, offers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[int] = []
    monkeypatch.setattr(os, "sched_yield", lambda: offered.append(1))
    assert list(gently(range(items), 4)) == list(range(items))
    assert len(offered) == offers
