"""The numbers of seen bundles: compared with a list of all missing numbers, and bounded in size."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.assembly.tap_instances import WINDOW, SlotState, TapInstances, TapInstanceState

TAP = bytes(16)
numbers = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 3 * WINDOW)), max_size=60)


class Listed:
    """The reference: a list of every number below the highest that has not come."""

    def __init__(self, highest: int = -1, missing: tuple[int, ...] = ()) -> None:
        self.highest, self.missing = highest, set(missing)

    def see(self, number: int) -> bool:
        if number > self.highest:
            self.missing = {one for one in self.missing if one > number - WINDOW}
            self.missing |= set(range(max(self.highest + 1, number - WINDOW), number))
            self.highest = number
            return True
        new = number in self.missing
        self.missing.discard(number)
        return new


def agree(producers: TapInstances, listed: Listed, come: list[int]) -> None:
    for at, number in enumerate(come):
        assert producers.record_bundle(TAP, 0, number, at) == listed.see(number)
        assert producers.has_gap(TAP, 0) == bool(listed.missing)


@settings(deadline=None)
@given(numbers)
def test_the_runs_agree_with_a_list_of_all_missing_numbers(come: list[int]) -> None:
    agree(TapInstances(), Listed(), come)


@settings(deadline=None)
@given(numbers)
def test_state_with_a_list_of_numbers_is_converted(come: list[int]) -> None:
    known = {TAP: TapInstanceState(0, {0: SlotState(30, [3, 4, 17])})}
    agree(TapInstances(0, known), Listed(30, (3, 4, 17)), come)


def test_taps_whose_first_bundle_has_a_high_number_take_little_space() -> None:
    producers = TapInstances()
    for number in range(2_000):
        producers.record_bundle(number.to_bytes(16, "big"), 0, 2**52, 0)
    assert len(msgspec.msgpack.encode(producers)) < 2_000 * 64
