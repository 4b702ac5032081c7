"""A scenario's request, as the arguments of the official clients' `create` methods."""

from streamgauge_demo.scenario import Endpoint, Scenario

QUESTION = "May I take the ford today?"

_GAUGE: dict[str, object] = {"type": "object", "properties": {"station": {"type": "string"}}, "required": ["station"]}
_MESSAGES = [{"role": "user", "content": QUESTION}]


def arguments(scenario: Scenario) -> dict[str, object]:
    """The arguments of `create`; streaming unless the scenario says otherwise."""
    usual: dict[str, object] = {"model": scenario.model, "stream": True}
    if scenario.endpoint is Endpoint.COMPLETIONS:
        usual["prompt"] = QUESTION
    elif scenario.endpoint is Endpoint.RESPONSES:
        usual["input"] = QUESTION
    else:
        usual["messages"] = _MESSAGES
    if scenario.endpoint is Endpoint.MESSAGES:
        usual["max_tokens"] = 1024
    if scenario.expected.content.arguments:
        usual["tools"] = [_tool(scenario.endpoint)]
    if scenario.timeout_s is not None:
        usual["timeout"] = scenario.timeout_s
    return {**usual, **scenario.asks}


def _tool(endpoint: Endpoint) -> dict[str, object]:
    """The offered tool, in the form of each format."""
    tool = {"name": "read_gauge", "description": "Read a river gauge."}
    if endpoint is Endpoint.MESSAGES:
        return {**tool, "input_schema": _GAUGE}
    if endpoint is Endpoint.RESPONSES:
        return {"type": "function", **tool, "parameters": _GAUGE, "strict": False}
    return {"type": "function", "function": {**tool, "parameters": _GAUGE}}
