"""Billed parts of a usage (`Usage.parts`): what a response bills apart from its tokens, each an object with a `type`.

    server_tool    calls of a tool that the provider ran: `name`, and `requests`, `sources`, `search_queries` or tokens
    citations      `input_tokens` of the sources that the model read (Perplexity)
    audio          `seconds` of audio in the prompt (Mistral)
    billed_units   what Cohere bills in place of the tokens, in its own words
    others         steps with tokens of their own, in the provider's words (Anthropic: compaction, advisor_message)

A part whose counts are all 0 is none.
"""

from collections.abc import Iterator, Mapping

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.safe_values import safe_code, whole_number

Part = dict[str, object]

# Types of Anthropic's iterations that the top level of its usage counts already: of the model itself, and of the model
# that took over after a refusal (server-side fallback: the top level is then the usage of the last model).
_TOP_LEVEL = (None, "message", "fallback_message")

# Members of an object that counts server tools, and the name of the tool.
_REQUESTS = {
    "web_search_requests": "web_search",
    "web_fetch_requests": "web_fetch",
    "code_execution_requests": "code_execution",
    "tool_search_requests": "tool_search",
}
# xAI's Responses (docs.x.ai, tools: usage).
_CALLS = {
    "web_search_calls": "web_search",
    "x_search_calls": "x_search",
    "code_interpreter_calls": "code_interpreter",
    "file_search_calls": "file_search",
    "collections_search_calls": "collections_search",
    "document_search_calls": "document_search",
    "mcp_calls": "mcp",
    "image_generation_calls": "image_generation",
}
# Tools of OpenAI's `tool_usage`, and of Perplexity's `tool_calls_details`.
_TOOLS = (
    "web_search",
    "file_search",
    "code_interpreter",
    "image_gen",
    "image_generation",
    "mcp",
    "computer_use",
    "shell",
)
_MORE_TOOLS = ("search_web", "fetch_url", "people_search", "finance_search", "image_search")
# Members of a tool's own object that count its calls.
_CALL_COUNTS = ("num_requests", "num_calls", "num_sessions", "invocation")
_TOKENS = ("input_tokens", "output_tokens")

_KEEP_TOKENS: Mapping[str, Spec] = {
    **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), Kind.COUNT),
    "input_tokens_details": dict.fromkeys(("text_tokens", "image_tokens", "cached_tokens"), Kind.COUNT),
    "output_tokens_details": dict.fromkeys(("text_tokens", "image_tokens"), Kind.COUNT),
}
# OpenAI's Responses: beside `usage`, and read as a member of it.
_KEEP_TOOL: Spec = {**dict.fromkeys(_CALL_COUNTS, Kind.COUNT), **_KEEP_TOKENS}
KEEP_TOOL_USAGE: Mapping[str, Spec] = dict.fromkeys(_TOOLS, _KEEP_TOOL)
# The members of a usage object that count server tools: of OpenRouter (`server_tool_use_details`), xAI, Perplexity,
# Anthropic (`server_tool_use`) and OpenAI (`tool_usage`).
KEEP_SERVER_TOOLS: Mapping[str, Spec] = {
    "server_tool_use": dict.fromkeys(_REQUESTS, Kind.COUNT),
    "server_tool_use_details": dict.fromkeys((*_REQUESTS, "tool_calls_requested", "tool_calls_executed"), Kind.COUNT),
    "server_side_tool_usage_details": dict.fromkeys(_CALLS, Kind.COUNT),
    "num_server_side_tools_used": Kind.COUNT,
    "num_sources_used": Kind.COUNT,
    "num_search_queries": Kind.COUNT,
    "citation_tokens": Kind.COUNT,
    "tool_calls_details": dict.fromkeys((*_TOOLS, *_MORE_TOOLS), (Kind.COUNT, {"invocation": Kind.COUNT})),
    "tool_usage": KEEP_TOOL_USAGE,
}


def parts_of(raw: Mapping[str, object]) -> list[Part]:
    """The parts of a usage object, which has the members that its dialect's allowlist names."""
    return [*_iterations(raw), *_server_tools(raw), *_others(raw)]


def _iterations(raw: Mapping[str, object]) -> Iterator[Part]:
    iterations = raw.get("iterations")
    for part in iterations if isinstance(iterations, list) else ():
        if isinstance(part, dict) and part.get("type") not in _TOP_LEVEL:
            yield part


def _server_tools(raw: Mapping[str, object]) -> Iterator[Part]:
    yield from _requests(raw)
    details, used = _object(raw, "server_side_tool_usage_details"), _count(raw, "num_server_side_tools_used")
    named = [_tool(name, requests=count) for member, name in _CALLS.items() if (count := _count(details, member))]
    yield from named
    if used and not named:
        yield _tool(None, requests=used)
    if sources := _count(raw, "num_sources_used"):
        yield _tool("live_search", sources=sources)
    for group in ("tool_usage", "tool_calls_details"):
        for name, tool in _object(raw, group).items():
            counts = _own_counts(tool)
            if counts:
                yield _tool(name, **counts)
    if queries := _count(raw, "webSearchQueries"):  # Gemini
        yield _tool("google_search", search_queries=queries)
    grounding = raw.get("grounding_tool_count")  # Gemini's Interactions
    for tool in grounding if isinstance(grounding, list) else ():
        counts = {"requests": _count(tool, "count"), "search_queries": _count(tool, "search_query_count")}
        if any(counts.values()):
            yield _tool(safe_code(tool.get("type")), **{name: count for name, count in counts.items() if count})


def _requests(raw: Mapping[str, object]) -> Iterator[Part]:
    """Anthropic's and OpenRouter's tools. OpenRouter counts the calls of all its tools, and its searches apart. A search
    may be among the calls or not (openrouter.ai/docs, server tools), so the calls count only if there is no search."""
    own, details = _object(raw, "server_tool_use"), _object(raw, "server_tool_use_details")
    named = [
        _tool(name, requests=count)
        for member, name in _REQUESTS.items()
        if (count := _count(own, member) or _count(details, member))
    ]
    searches = _count(raw, "num_search_queries")  # Perplexity
    if searches and not named:
        named.append(_tool("web_search", requests=searches))
    yield from named
    if not named and (executed := _count(details, "tool_calls_executed")):
        yield _tool(None, requests=executed)


def _own_counts(tool: object) -> dict[str, int]:
    """The counts of a tool that has an object of its own, or a number: its calls, and its tokens; those above 0."""
    if not isinstance(tool, dict):
        calls = whole_number(tool)
        return {"requests": calls} if calls else {}
    counts = {"requests": next((count for member in _CALL_COUNTS if (count := _count(tool, member))), 0)}
    counts |= {member: _count(tool, member) for member in _TOKENS}
    return {name: count for name, count in counts.items() if count}


def _others(raw: Mapping[str, object]) -> Iterator[Part]:
    if citations := _count(raw, "citation_tokens"):
        yield {"type": "citations", "input_tokens": citations}
    if seconds := _count(raw, "prompt_audio_seconds"):
        yield {"type": "audio", "seconds": seconds}
    billed = {name: count for name, count in _object(raw, "billed_units").items() if whole_number(count) is not None}
    if any(billed.values()):
        yield {"type": "billed_units", **billed}


def _tool(name: str | None, **counts: int) -> Part:
    return {"type": "server_tool", "name": name, **counts}


def _object(raw: Mapping[str, object], name: str) -> Mapping[str, object]:
    member = raw.get(name)
    return member if isinstance(member, dict) else {}


def _count(raw: object, name: str) -> int:
    """The count of a member; 0 if there is none."""
    return (whole_number(raw.get(name)) or 0) if isinstance(raw, Mapping) else 0
