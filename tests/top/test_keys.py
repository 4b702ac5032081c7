"""Keys: how terminals send them, and what each changes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.top.keys import HELP, MAX_FILTER, STREAM, STREAMS, TOTALS, State, is_unfinished, keys_of, pressed
from streamgauge.top.streams import SORTS

IDS = [f"stream-{number}" for number in range(30)]


def after(state: State, *keys: str) -> State:
    for key in keys:
        state = pressed(state, key, IDS, 10)
    return state


def test_terminals_send_escape_sequences() -> None:
    text = "\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[4~\r\t \x7fq\x1b"
    assert list(keys_of(text)) == [
        "up", "down", "page up", "page down", "home", "end", "enter", "tab", "space", "backspace", "q", "escape",
    ]  # fmt: skip
    assert list(keys_of("\x1b[1;5Z\x00é")) == ["é"], "an unknown sequence is no key"
    assert [is_unfinished(text) for text in ("\x1b", "a\x1b[", "\x1b[1;5", "\x1bO", "\x1b[A", "a", "")] == [
        True, True, True, True, False, False, False,
    ]  # fmt: skip


def test_the_selection_moves_and_stays_in_the_list() -> None:
    state = after(State(), "down", "down")
    assert (state.selected, state.index) == (IDS[2], 2)
    assert after(state, "page down", "j").index == 13
    assert after(state, "k", "up", "up", "up").index == 0
    assert after(state, "G").selected == IDS[-1]
    assert after(state, "end", "page down").index == 29
    assert after(state, "end", "g").index == 0


def test_the_selection_follows_its_stream_and_stays_where_it_was_when_that_is_gone() -> None:
    state = after(State(), "down", "down")
    assert pressed(state, "down", ["new", *IDS], 10).selected == IDS[3]
    assert pressed(state, "down", IDS[:2] + IDS[3:], 10).selected == IDS[4]
    assert pressed(state, "down", IDS[:1], 10).selected == IDS[0]
    assert pressed(state, "down", [], 10) == state


def test_screens_lead_back() -> None:
    stream = after(State(), "down", "enter")
    assert (stream.screen, stream.selected) == (STREAM, IDS[1])
    assert after(stream, "escape").screen == STREAMS
    assert after(stream, "?").screen == HELP
    assert after(stream, "?", "escape").screen == STREAM
    assert after(stream, "?", "?").screen == STREAM
    assert after(State(), "tab").screen == TOTALS
    assert after(State(), "tab", "tab").screen == STREAMS
    assert after(State(), "tab", "?", "escape", "escape").screen == STREAMS
    assert pressed(State(), "enter", [], 10).screen == STREAMS
    assert after(stream, "down", "down", "up").top == 1
    assert after(stream, "up").top == 0


def test_sort_pause_and_end() -> None:
    names = list(SORTS)
    assert after(State(), "s").sort == names[1]
    assert after(State(), "S").sort == names[-1]
    assert after(State(), *["s"] * len(names)).sort == names[0]
    assert after(State(), "space").paused
    assert not after(State(), "space", "space").paused
    assert after(State(), "q").ended


def test_a_filter_is_typed() -> None:
    typed = after(State(), "/", "q", "s", "space", "?", "x", "backspace")
    assert (typed.filter, typed.typing, typed.ended, typed.screen) == ("qs ?", True, False, STREAMS)
    assert after(typed, "enter") == replace(typed, typing=False)
    assert after(typed, "escape") == State()
    assert after(typed, "clear").filter == ""
    assert after(typed, "enter", "escape").filter == ""
    assert len(after(State(typing=True), *"a" * (MAX_FILTER + 5)).filter) == MAX_FILTER


@given(
    st.lists(
        st.sampled_from([*"qsSjkgG/? x", "up", "down", "page up", "end", "home", "enter", "escape", "tab", "backspace"])
    ),
    st.lists(st.sampled_from(IDS), unique=True),
)
def test_no_keys_lead_out_of_the_list(keys: list[str], ids: list[str]) -> None:
    state = State()
    for key in keys:
        state = pressed(state, key, ids, 10)
        assert state.top >= 0
        assert not ids or 0 <= state.index < len(ids)
        assert state.screen in (STREAMS, TOTALS, STREAM, HELP)


@given(st.text())
@pytest.mark.parametrize("rest", ["", "\x1b[A"])
def test_no_text_fails(rest: str, text: str) -> None:
    for key in keys_of(text + rest):
        pressed(State(), key, IDS, 10)
        pressed(State(typing=True), key, IDS, 10)
