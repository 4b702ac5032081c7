"""Streams that add up to a difference: exact, the same each time, and only where chance is no explanation."""

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import ZERO, Tokens, minus, total_of
from streamgauge.audit.subsets import Search, signed_subsets

tokens = st.builds(Tokens, st.integers(0, 10**6), st.integers(0, 10**4), st.just(0), st.integers(1, 10**4))


@given(st.lists(tokens, min_size=1, max_size=40), st.data())
def test_an_answer_is_exact(streams: list[Tokens], data: st.DataObject) -> None:
    some = data.draw(st.sets(st.integers(0, len(streams) - 1), max_size=4))
    target = total_of(streams[place] for place in some)
    found = Search().subset(streams, target)
    if found is not None:
        assert total_of(streams[place] for place in found) == target
        assert found == sorted(set(found))
        assert Search().subset(streams, target) == found


def test_few_of_many_are_found() -> None:
    streams = [Tokens(1_000 + 37 * place * place, place % 7, 0, 100 + 11 * place) for place in range(30)]
    for some in ([3], [3, 17], [0, 9, 21], [4, 5, 6, 7, 8], [1, 8, 20, 29], list(range(30))):
        assert Search().subset(streams, total_of(streams[place] for place in some)) == some


def test_a_run_of_an_outage_is_found_among_thousands() -> None:
    streams = [Tokens(1_000 + 37 * place % 9_973, 0, 0, 100 + 11 * place % 997) for place in range(5_000)]
    some = list(range(2_000, 2_321))
    assert Search().subset(streams, total_of(streams[place] for place in some)) == some


def test_what_chance_would_fit_is_not_answered() -> None:
    small = [Tokens(output=1 + place % 5) for place in range(25)]
    assert Search().subset(small, Tokens(output=31)) is None


def test_nothing_and_negative_have_no_answer() -> None:
    assert Search().subset([Tokens(1, 0, 0, 1)], ZERO) is None
    assert Search().subset([Tokens(1, 0, 0, 1)], Tokens(-1, 0, 0, 1)) is None


def test_of_equal_streams_the_earliest_is_chosen() -> None:
    one = Tokens(50_000, 0, 0, 700)
    assert Search().subset([Tokens(3, 0, 0, 3), one, one], one) == [1]


def test_streams_that_came_and_went() -> None:
    came = [Tokens(1_000 + place, 0, 0, 400 + 7 * place) for place in range(3)]
    went = [Tokens(9_000 + 13 * place, 5, 0, 40 + place) for place in range(3)]
    target = minus(total_of([came[0], came[2]]), went[1])
    assert signed_subsets(came, went, target) == ([0, 2], [1])
    assert signed_subsets(came, went, Tokens(1, 1, 1, 1)) is None
    assert signed_subsets(came * 10, went, target) is None  # too many ways


def test_effort_is_limited() -> None:
    streams = [Tokens(1_000 + 37 * place * place, place % 7, 0, 100 + 11 * place) for place in range(30)]
    target = total_of([streams[3], streams[9], streams[20]])
    search = Search(effort=31)
    assert search.subset(streams, target) == [3, 9, 20]
    assert search.subset(streams, target) is None
    assert search.subset(streams, streams[4]) == [4]


def test_a_count_of_requests_decides_what_few_tokens_do_not() -> None:
    streams = [Tokens(output=5), Tokens(output=3), Tokens(output=2), Tokens(output=2)]
    assert Search().subset(streams, Tokens(output=5)) is None
    assert Search().subset(streams, Tokens(output=5), count=1) == [0]
    assert Search().subset(streams, Tokens(output=5), count=2) == [1, 2]


def test_each_further_target_needs_more_evidence() -> None:
    streams = [Tokens(output=1_000 + place) for place in range(3)]
    assert Search().subset(streams, streams[1]) == [1]
    assert Search().subset(streams, streams[1], tried=50) is None
