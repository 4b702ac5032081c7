"""Which known calls the calls of a closing event are: by id, else by name in order, each at most once; texts so far."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.assembly.event_sink import StreamEventSink, digest_of, matched
from streamgauge.core.assembly.state import StreamState, ToolState
from streamgauge.core.dialects.contract import WholeCall

NAMES = st.sampled_from([None, "f", "g"])
IDS = st.sampled_from([None, "", "a", "b", "c"])
TOOLS = st.lists(st.builds(lambda name, call_id: ToolState(0, name, digest_of(call_id)), NAMES, IDS), max_size=5)
CALLS = st.lists(st.builds(lambda name, call_id: WholeCall(name, "{}", call_id), NAMES, IDS), max_size=5)


@given(CALLS, TOOLS)
def test_each_call_is_at_most_one_known_call(calls: list[WholeCall], tools: list[ToolState]) -> None:
    found = matched(calls, tools)
    known = [id(tool) for tool in found if tool is not None]
    assert len(found) == len(calls)
    assert len(known) == len(set(known))
    assert set(known) <= {id(tool) for tool in tools}
    for call, tool in zip(calls, found, strict=True):
        same_id = tool is not None and tool.call_digest is not None and tool.call_digest == digest_of(call.call_id)
        assert tool is None or same_id or call.name is None or tool.name in (None, call.name)
        if tool is None:  # no known call is left that it could be
            left = [other for other in tools if id(other) not in known]
            assert not [one for one in left if call.name is None or one.name in (None, call.name)]


@given(TOOLS)
def test_a_closing_event_that_repeats_all_calls_brings_no_new_one(tools: list[ToolState]) -> None:
    names = [tool.name for tool in tools]
    assert None not in matched([WholeCall(name, "{}") for name in names], tools)


def test_an_id_decides_before_a_name() -> None:
    first, second = ToolState(0, "f", digest_of("a")), ToolState(1, "f", digest_of("b"))
    calls = [WholeCall("f", "{}", "b"), WholeCall("f", "{}", "a"), WholeCall("f", "{}", "c")]
    found = matched(calls, [first, second])
    assert found[0] is second
    assert found[1] is first
    assert found[2] is None


PIECES = st.lists(st.text(st.sampled_from("ab é長\U0001f30a"), min_size=1, max_size=6), min_size=1, max_size=12)


def state_after(texts: list[tuple[str, bool]], *, reasoning: bool) -> StreamState:
    """The state after events with these texts; `True` beside one: the event may repeat the text."""
    state = StreamState(b"s" * 16, b"i" * 16, 0)
    sink = StreamEventSink(state, 10**9)
    for stamp, (text, may_repeat) in enumerate(texts):
        sink.begin(None, stamp)
        sink.text_or_so_far(0, text, reasoning=reasoning, may_repeat=may_repeat)
        sink.end()
    sink.close()
    return state


def chars(state: StreamState, *, reasoning: bool) -> int:
    return state.counts.reasoning_chars if reasoning else state.counts.text_chars


@given(PIECES, st.booleans())
def test_texts_so_far_count_once(pieces: list[str], reasoning: bool) -> None:
    so_far = ["".join(pieces[:end]) for end in range(1, len(pieces) + 1)]
    state = state_after([*((text, False) for text in so_far), (so_far[-1], True)], reasoning=reasoning)
    assert chars(state, reasoning=reasoning) == len(so_far[-1])
    assert state.counts.token_events == len(pieces)


@given(PIECES)
def test_pieces_count_each_once_an_empty_one_ends_them(pieces: list[str]) -> None:
    state = state_after([*((piece, False) for piece in pieces), ("", True)], reasoning=False)
    assert chars(state, reasoning=False) == sum(map(len, pieces))
    assert state.counts.token_events == len(pieces)


@pytest.mark.parametrize("times", [7, 8])
def test_a_text_that_has_grown_eight_times_may_stay_as_it_is(times: int) -> None:
    """A character that needs several tokens leaves the text as it is; pieces that grow each time are unlikely."""
    grown = [("a" * length, False) for length in range(1, times + 2)]
    stays = grown[-1][0]
    sum_of_pieces = sum(range(1, times + 2)) + len(stays)
    counted = chars(state_after([*grown, (stays, False)], reasoning=False), reasoning=False)
    assert counted == (len(stays) if times == 8 else sum_of_pieces)


def test_a_piece_whose_length_may_be_a_repetition_shows_nothing() -> None:
    assert chars(state_after([("ab", False), ("cd", True)], reasoning=False), reasoning=False) == 2
    assert chars(state_after([("ab", False), ("cd", False)], reasoning=False), reasoning=False) == 4
