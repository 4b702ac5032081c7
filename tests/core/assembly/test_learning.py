"""What two events share, and what of them may mean something and is not learnt."""

import pytest

from streamgauge.core.assembly.forms import Run
from streamgauge.core.assembly.learning import learn, path_to, says_the_same
from tests.core.assembly.deltas import CHAT, block, delta, learnt


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"d": "a", "index_of": 1}, {"d": "b", "index_of": 2}),  # nobody knows that it means nothing
        ({"d": "a", "s": "u"}, {"d": "b", "s": "v"}),
        ({"d": "a"}, {"d": "b", "x": 1}),
        ({"d": "a", "x": None}, {"d": "b", "x": True}),
        ({"d": "a", "usage": {"n": 1}}, {"d": "b", "usage": {"n": 2}}),
    ],
)
def test_what_may_mean_something_is_not_learnt(one: object, other: object) -> None:
    assert learn(delta("a", one), delta("b", other), CHAT) is None


def test_the_same_text_twice_teaches_nothing() -> None:
    assert learn(delta("a"), delta("a"), CHAT) is None


def test_escaped_text_shows_no_place() -> None:
    assert learn(delta('"'), delta("b"), CHAT) is None


def test_a_path_is_the_first_that_leads_there() -> None:
    wanted: dict[str, object] = {}
    assert path_to({"a": [{"b": wanted}], "c": wanted}, wanted) == ("a", 0, "b")
    assert path_to({"a": [{}]}, wanted) is None


def test_a_sequence_number_that_stands_still_would_be_told_again() -> None:
    assert (
        learn(delta("a", {"sequence_number": 7, "d": "a"}), delta("b", {"sequence_number": 7, "d": "b"}), CHAT) is None
    )


def test_an_event_id_that_stands_still_would_be_told_again() -> None:
    assert learn(delta("a", {"event_id": "i", "d": "a"}), delta("b", {"event_id": "i", "d": "b"}), CHAT) is None
    envelope = learnt(delta("a", {"event_id": "i", "d": "a"}), delta("b", {"event_id": "j", "d": "b"}))
    assert envelope.run([block(delta("c", {"event_id": "kk", "d": "c"}))]) == Run(1, None, "c", b"kk")


def test_a_text_that_reads_like_what_stands_around_it() -> None:
    for text in (",", ":", "d", "x", "}", "{", "[", "]", "1", "-", " ", "null", "event"):
        for other in ("yy", ";", "dd"):
            one = delta(text, {"x": "d", ",": ":", "d": text, "l": ["d", "x"], "n": None})
            two = delta(other, {"x": "d", ",": ":", "d": other, "l": ["d", "x"], "n": None})
            third = delta("zz", {"x": "d", ",": ":", "d": "zz", "l": ["d", "x"], "n": None})
            assert learnt(one, two).run([block(third)]) == Run(1, None, "zz")


def test_a_key_is_no_text() -> None:
    assert learn(delta("a", {"a": 1}), delta("b", {"b": 1}), CHAT) is None


def test_escapes_beside_the_text_are_read_over() -> None:
    one, other = (delta(text, {"m": 'accounts/"x"\\', "d": text, "created": 7 + at}) for at, text in enumerate("ab"))
    third = delta("zz", {"m": 'accounts/"x"\\', "d": "zz", "created": 9})
    assert learnt(one, other).run([block(third)]) == Run(1, None, "zz")


def test_what_holds_a_mark_is_not_looked_at() -> None:
    mark = 8_705_759_403_792_000
    events = [delta(text, {"d": text, "created": at, "x": mark}) for at, text in enumerate("ab")]
    assert learn(*events, CHAT) is None  # type: ignore[arg-type, call-arg]


def test_usages_are_the_same_but_for_their_counts() -> None:
    one = {"a": 1, "b": {"c": 2, "d": [1]}}
    assert says_the_same(one, {"a": 7, "b": {"c": 9, "d": [1]}}, [("a",), ("b", "c")])
    assert not says_the_same(one, {"a": 7, "b": {"c": 2, "d": [1]}}, [("b", "c")])
    assert not says_the_same(one, {"a": 1, "b": {"c": 2, "d": [2]}}, [("a",)])
    assert not says_the_same(one, {"a": 1}, [("a",)])
    assert not says_the_same({"a": 1}, {"a": True}, [])
