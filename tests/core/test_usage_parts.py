"""What is billed apart from the tokens: tools that the provider ran, steps of their own, billed units."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.allowlist import Kind, apply_allowlist
from streamgauge.core.dialects import BY_NAME
from streamgauge.core.usage import UsageState, normalised, take
from streamgauge.core.usage_parts import KEEP_SERVER_TOOLS, parts_of

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic-messages"

COUNTED: Mapping[str, dict[str, Any]] = {  # a count: without one there is no usage
    CHAT: {"prompt_tokens": 9},
    RESPONSES: {"input_tokens": 9},
    ANTHROPIC: {"input_tokens": 9},
    "gemini": {"promptTokenCount": 9},
    "cohere-v2": {"tokens": {"input_tokens": 9}},
    "gemini-interactions": {"total_input_tokens": 9},
}


def parts(dialect: str, *usages: dict[str, Any]) -> list[dict[str, object]]:
    """The parts of a stream, whose usages a tap masked."""
    rules, state = BY_NAME[dialect].usage, UsageState()
    for one in usages:
        masked = apply_allowlist(rules.spec, COUNTED[dialect] | one)
        take(state, rules, masked, final=True)
    return normalised(state, rules).parts


def tool(name: str | None, **counts: int) -> dict[str, object]:
    return {"type": "server_tool", "name": name, **counts}


@pytest.mark.parametrize(
    ("dialect", "usage", "expected"),
    [
        # Anthropic
        (ANTHROPIC, {"server_tool_use": {"web_search_requests": 2}}, [tool("web_search", requests=2)]),
        (
            ANTHROPIC,
            {"server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 1, "code_execution_requests": 3}},
            [tool("web_fetch", requests=1), tool("code_execution", requests=3)],
        ),
        (ANTHROPIC, {"server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0}}, []),
        (ANTHROPIC, {"server_tool_use": None}, []),
        # OpenRouter: a search may be among the calls, so that the two are not added up
        (CHAT, {"server_tool_use": {"web_search_requests": 1}}, [tool("web_search", requests=1)]),
        (
            CHAT,
            {
                "server_tool_use_details": {
                    "web_search_requests": 1,
                    "tool_calls_requested": 1,
                    "tool_calls_executed": 1,
                }
            },
            [tool("web_search", requests=1)],
        ),
        (
            CHAT,
            {"server_tool_use_details": {"tool_calls_requested": 2, "tool_calls_executed": 1}},
            [tool(None, requests=1)],
        ),
        (
            CHAT,
            {"server_tool_use": {"web_search_requests": 0}, "server_tool_use_details": {"web_search_requests": 4}},
            [tool("web_search", requests=4)],
        ),
        # OpenAI
        (RESPONSES, {"tool_usage": {"web_search": {"num_requests": 1}}}, [tool("web_search", requests=1)]),
        (
            RESPONSES,
            {
                "tool_usage": {
                    "image_gen": {"input_tokens": 20, "output_tokens": 272, "total_tokens": 292},
                    "file_search": {"num_calls": 2},
                    "code_interpreter": {"num_sessions": 1},
                    "web_search": {"num_requests": 0},
                }
            },
            [
                tool("file_search", requests=2),
                tool("code_interpreter", requests=1),
                tool("image_gen", input_tokens=20, output_tokens=272),
            ],
        ),
        # xAI
        (CHAT, {"num_sources_used": 5}, [tool("live_search", sources=5)]),
        (RESPONSES, {"num_server_side_tools_used": 3}, [tool(None, requests=3)]),
        (
            RESPONSES,
            {
                "num_sources_used": 0,
                "num_server_side_tools_used": 3,
                "server_side_tool_usage_details": {"web_search_calls": 0, "x_search_calls": 2, "mcp_calls": 1},
            },
            [tool("x_search", requests=2), tool("mcp", requests=1)],
        ),
        # Perplexity
        (
            CHAT,
            {"num_search_queries": 3, "citation_tokens": 900},
            [tool("web_search", requests=3), {"type": "citations", "input_tokens": 900}],
        ),
        (RESPONSES, {"tool_calls_details": {"search_web": {"invocation": 2}}}, [tool("search_web", requests=2)]),
        (RESPONSES, {"tool_calls_details": {"web_search": 1}}, [tool("web_search", requests=1)]),
        # Mistral
        (CHAT, {"prompt_audio_seconds": 47}, [{"type": "audio", "seconds": 47}]),
        # Cohere
        (
            "cohere-v2",
            {"billed_units": {"input_tokens": 3, "output_tokens": 0, "search_units": 1, "classifications": 2}},
            [{"type": "billed_units", "input_tokens": 3, "output_tokens": 0, "search_units": 1, "classifications": 2}],
        ),
        ("cohere-v2", {"billed_units": {"input_tokens": 0, "output_tokens": 0}}, []),
        # Gemini
        ("gemini", {"webSearchQueries": 2}, [tool("google_search", search_queries=2)]),
        # Gemini's Interactions
        (
            "gemini-interactions",
            {
                "grounding_tool_count": [
                    {"type": "google_search", "count": 1, "search_query_count": 4},
                    {"type": "maps"},
                ]
            },
            [tool("google_search", requests=1, search_queries=4)],
        ),
    ],
)
def test_each_provider(dialect: str, usage: dict[str, Any], expected: list[dict[str, object]]) -> None:
    assert parts(dialect, usage) == expected


def test_counts_are_running_totals() -> None:
    first, later = {"server_tool_use": {"web_search_requests": 1}}, {"server_tool_use": {"web_search_requests": 3}}
    assert parts(ANTHROPIC, first, later) == [tool("web_search", requests=3)]
    assert parts(ANTHROPIC, later, {"output_tokens": 4}) == [tool("web_search", requests=3)]


def test_steps_and_tools_of_one_response() -> None:
    steps = [{"type": "message", "input_tokens": 1}, {"type": "compaction", "input_tokens": 100}]
    usage = {"iterations": steps, "server_tool_use": {"web_search_requests": 1}}
    assert parts(ANTHROPIC, usage) == [{"type": "compaction", "input_tokens": 100}, tool("web_search", requests=1)]


@pytest.mark.parametrize("bad", [-1, 1.5, True, "7", [], {"x": 1}, 2**53 + 1])
def test_a_bad_count_is_no_call(bad: object) -> None:
    for usage in ({"server_tool_use": {"web_search_requests": bad}}, {"num_sources_used": bad}, {"tool_usage": bad}):
        assert parts(CHAT, usage) == []


_VALUES = st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.floats(), st.text(max_size=3))


def _objects(spec: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of the names of an allowlist, and values of any type."""
    inner = {name: _objects(kind) if isinstance(kind, Mapping) else _VALUES for name, kind in spec.items()}
    return st.fixed_dictionaries({}, optional={name: st.one_of(_VALUES, one) for name, one in inner.items()})


@given(_objects(KEEP_SERVER_TOOLS))
def test_every_part_has_a_type_and_counts_above_zero(usage: dict[str, Any]) -> None:
    for part in parts_of(usage):
        counts = {name: count for name, count in part.items() if name not in ("type", "name")}
        assert part["type"] in ("server_tool", "citations")
        assert counts and all(type(count) is int and count > 0 for count in counts.values())


def test_every_name_of_the_allowlist_is_a_count() -> None:
    """So that masking keeps numbers alone of what is under these names."""
    kinds: list[object] = []

    def collect(spec: Any) -> None:
        for one in spec.values() if isinstance(spec, Mapping) else spec if isinstance(spec, tuple) else (spec,):
            if isinstance(one, Kind):
                kinds.append(one)
            else:
                collect(one)

    collect(KEEP_SERVER_TOOLS)
    assert set(kinds) == {Kind.COUNT}
