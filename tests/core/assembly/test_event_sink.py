"""Which known calls the calls of a closing event are: by id, else by name in order, each at most once."""

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.assembly.event_sink import digest_of, matched
from streamgauge.core.assembly.state import ToolState
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
