"""Runs one client in the scripted conversation, and prints what it saw. It imports nothing of this repository's tests, so
that it runs in an environment of its own, beside any client:

    python tests/clients/drive.py NAME ROUNDS URL [URL]

A round is a streamed question, the model's call of a tool, its result, and the streamed answer. With two URLs, each round
is at one and then at the other, by turns first. After the rounds come two requests with an error: one that is refused, and
one that clients repeat as often as they do by default. The last line of the output is a JSON object: `version`; `seen`, each
object and error as the client gives it; `seconds`, of each URL those of each round.
"""

import contextlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

QUESTION = "How high is the Seine?"
RESULT = '{"level":4}'
SCHEMA = {"type": "object", "properties": {"river": {"type": "string"}}, "required": ["river"]}
FUNCTION = {"name": "level", "description": "The level of a river", "parameters": SCHEMA}
CHAT_TOOLS: Any = [{"type": "function", "function": FUNCTION}]
RESPONSES_TOOLS: Any = [{"type": "function", **FUNCTION, "strict": False}]
MESSAGES_TOOLS: Any = [{"name": "level", "description": "The level of a river", "input_schema": SCHEMA}]

Seen = list[Any]
# Has one conversation with the named model, and gives what it saw. "m" calls a tool, "refused" and "busy" are errors.
Talk = Callable[[str], Seen]
Client = Callable[[str], contextlib.AbstractContextManager[Talk]]


def chat_history(call_id: str, name: str, arguments: str) -> list[Any]:
    """The second request's messages, in the form of OpenAI's chat."""
    function = {"name": name, "arguments": arguments}
    return [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call_id, "name": name, "content": RESULT},
    ]


def dumped(items: Any) -> Seen:
    return [item.model_dump(mode="json") for item in items]


@contextlib.contextmanager
def openai_chat(url: str) -> Iterator[Talk]:
    from openai import OpenAI

    with OpenAI(base_url=f"{url}/v1", api_key="test") as client:

        def ask(model: str, messages: list[Any]) -> Seen:
            with client.chat.completions.create(
                model=model, messages=messages, tools=CHAT_TOOLS, stream=True, stream_options={"include_usage": True}
            ) as stream:
                return dumped(stream)

        def talk(model: str) -> Seen:
            first = ask(model, [{"role": "user", "content": QUESTION}])
            calls = [call for chunk in first for one in chunk["choices"] for call in one["delta"]["tool_calls"] or []]
            arguments = "".join(call["function"]["arguments"] for call in calls)
            history = chat_history(calls[0]["id"], calls[0]["function"]["name"], arguments)
            return first + ask(model, history)

        yield talk


def responses_result(events: Seen) -> list[Any]:
    """The second request's input: the calls of the first response, and their results."""
    output = events[-1]["response"]["output"]
    return [{"type": "function_call_output", "call_id": item["call_id"], "output": RESULT} for item in output]


@contextlib.contextmanager
def openai_responses(url: str) -> Iterator[Talk]:
    from openai import OpenAI

    with OpenAI(base_url=f"{url}/v1", api_key="test") as client:

        def ask(model: str, given: list[Any], **more: Any) -> Seen:
            with client.responses.create(
                model=model, input=given, tools=RESPONSES_TOOLS, stream=True, **more
            ) as stream:
                return dumped(stream)

        def talk(model: str) -> Seen:
            first = ask(model, [{"role": "user", "content": QUESTION}])
            return first + ask(model, responses_result(first), previous_response_id=first[-1]["response"]["id"])

        yield talk


@contextlib.contextmanager
def openai_websocket(url: str) -> Iterator[Talk]:
    from openai import OpenAI

    with OpenAI(base_url=f"{url}/v1", api_key="test") as client:

        def talk(model: str) -> Seen:
            with client.responses.connect() as connection:

                def ask(given: list[Any], **more: Any) -> Seen:
                    connection.response.create(model=model, input=given, tools=RESPONSES_TOOLS, **more)
                    seen = []
                    for event in connection:
                        seen.append(event.model_dump(mode="json"))
                        if event.type in ("response.completed", "error"):
                            break
                    return seen

                first = ask([{"role": "user", "content": QUESTION}])
                if first[-1]["type"] == "error":
                    return first
                return first + ask(responses_result(first), previous_response_id=first[-1]["response"]["id"])

        yield talk


@contextlib.contextmanager
def openai_realtime(url: str) -> Iterator[Talk]:
    from openai import OpenAI

    with OpenAI(base_url=f"{url}/v1", api_key="test") as client:

        def talk(model: str) -> Seen:
            seen: Seen = []
            with client.realtime.connect(model=model) as connection:

                def until(*kinds: str) -> Any:
                    for event in connection:
                        seen.append(event.model_dump(mode="json"))
                        if event.type in kinds:
                            return seen[-1]

                until("session.created")
                message: Any = {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": QUESTION}],
                }
                connection.conversation.item.create(item=message)
                connection.response.create(response={"tools": RESPONSES_TOOLS})
                last = until("response.done", "error")
                if last["type"] == "error":
                    return seen
                for item in last["response"]["output"]:
                    result: Any = {"type": "function_call_output", "call_id": item["call_id"], "output": RESULT}
                    connection.conversation.item.create(item=result)
                connection.response.create()
                until("response.done", "error")
            return seen

        yield talk


@contextlib.contextmanager
def anthropic(url: str) -> Iterator[Talk]:
    from anthropic import Anthropic

    with Anthropic(base_url=url, api_key="test") as client:

        def ask(model: str, messages: list[Any]) -> tuple[Seen, Any]:
            tools = MESSAGES_TOOLS
            with client.messages.stream(model=model, max_tokens=99, messages=messages, tools=tools) as stream:
                return dumped(stream), stream.get_final_message()

        def talk(model: str) -> Seen:
            messages: list[Any] = [{"role": "user", "content": QUESTION}]
            first, message = ask(model, messages)
            content = [block.model_dump(mode="json", exclude_none=True) for block in message.content]
            results = [{"type": "tool_result", "tool_use_id": one["id"], "content": RESULT} for one in content]
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
            return first + ask(model, messages)[0]

        yield talk


@contextlib.contextmanager
def google_genai(url: str) -> Iterator[Talk]:
    from google import genai
    from google.genai import types

    client = genai.Client(api_key="test", vertexai=False, http_options=types.HttpOptions(base_url=url))
    declared = types.FunctionDeclaration(name="level", description="A level", parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declared])])

    def ask(model: str, contents: list[Any]) -> list[Any]:
        return list(client.models.generate_content_stream(model=model, contents=contents, config=config))

    def talk(model: str) -> Seen:
        asked = types.Content(role="user", parts=[types.Part(text=QUESTION)])
        first = ask(model, [asked])
        called = first[0].candidates[0].content
        result = types.Part.from_function_response(name="level", response={"level": 4})
        second = ask(model, [asked, called, types.Content(role="user", parts=[result])])
        # Each chunk has the whole response's head, with its date.
        return [chunk.model_dump(mode="json", exclude={"sdk_http_response"}) for chunk in first + second]

    yield talk
    client.close()


@contextlib.contextmanager
def mistralai(url: str) -> Iterator[Talk]:
    from mistralai.client import Mistral

    with Mistral(api_key="test", server_url=url) as client:

        def ask(model: str, messages: list[Any]) -> Seen:
            with client.chat.stream(model=model, messages=messages, tools=CHAT_TOOLS) as stream:
                return dumped(event.data for event in stream)

        def talk(model: str) -> Seen:
            first = ask(model, [{"role": "user", "content": QUESTION}])
            calls = [
                call for chunk in first for one in chunk["choices"] for call in one["delta"].get("tool_calls") or []
            ]
            arguments = "".join(call["function"]["arguments"] for call in calls)
            return first + ask(model, chat_history(calls[0]["id"], calls[0]["function"]["name"], arguments))

        yield talk


@contextlib.contextmanager
def cohere(url: str) -> Iterator[Talk]:
    import cohere

    client = cohere.ClientV2("test", base_url=url, log_warning_experimental_features=False)

    def ask(model: str, messages: list[Any]) -> Seen:
        return dumped(client.chat_stream(model=model, messages=messages, tools=CHAT_TOOLS))

    def talk(model: str) -> Seen:
        first = ask(model, [{"role": "user", "content": QUESTION}])
        begun = next(event for event in first if event["type"] == "tool-call-start")["delta"]["message"]["tool_calls"]
        history = chat_history(begun["id"], begun["function"]["name"], '{"river":"Seine"}')
        history[-1].pop("name")
        return first + ask(model, history)

    yield talk


@contextlib.contextmanager
def ollama(url: str) -> Iterator[Talk]:
    import ollama

    client = ollama.Client(host=url)

    def ask(model: str, messages: list[Any]) -> Seen:
        return dumped(client.chat(model, messages, tools=CHAT_TOOLS, stream=True))

    def talk(model: str) -> Seen:
        asked = {"role": "user", "content": QUESTION}
        first = ask(model, [asked])
        return first + ask(
            model, [asked, first[0]["message"], {"role": "tool", "tool_name": "level", "content": RESULT}]
        )

    yield talk
    client.close()


@contextlib.contextmanager
def boto3(url: str) -> Iterator[Talk]:
    """With a bearer key or signed, as the environment says; with the tap's hook at the URL that HOOKED_URL names."""
    import botocore.session
    from botocore.config import Config

    session = botocore.session.get_session()
    config = Config(retries={"total_max_attempts": 2, "mode": "standard"})
    client: Any = session.create_client("bedrock-runtime", "eu-central-1", endpoint_url=url, config=config)
    if os.environ.get("HOOKED_URL") == url:
        from streamgauge.taps.boto3 import tap

        tap(client)
    specification = {"name": "level", "description": "A level", "inputSchema": {"json": SCHEMA}}

    def ask(model: str, messages: list[Any]) -> Seen:
        tools = {"tools": [{"toolSpec": specification}]}
        with contextlib.closing(
            client.converse_stream(modelId=model, messages=messages, toolConfig=tools)["stream"]
        ) as one:
            return list(one)

    def talk(model: str) -> Seen:
        messages: list[Any] = [{"role": "user", "content": [{"text": QUESTION}]}]
        first = ask(model, messages)
        use = first[1]["contentBlockStart"]["start"]["toolUse"]
        result = {"toolUseId": use["toolUseId"], "content": [{"text": RESULT}]}
        messages.append({"role": "assistant", "content": [{"toolUse": {**use, "input": {"river": "Seine"}}}]})
        messages.append({"role": "user", "content": [{"toolResult": result}]})
        return first + ask(model, messages)

    yield talk
    client.close()


def langchain(model: Any) -> Seen:
    """One conversation of a LangChain model."""
    from langchain_core.messages import HumanMessage, ToolMessage  # type: ignore[import-not-found]

    bound = model.bind_tools(CHAT_TOOLS)
    first = list(bound.stream([HumanMessage(QUESTION)]))
    whole = first[0]
    for chunk in first[1:]:
        whole += chunk
    [call] = whole.tool_calls
    second = list(bound.stream([HumanMessage(QUESTION), whole, ToolMessage(RESULT, tool_call_id=call["id"])]))
    # LangChain gives each run an id of its own.
    return [chunk.model_dump(mode="json", exclude={"id"}) for chunk in first + second]


@contextlib.contextmanager
def langchain_openai(url: str) -> Iterator[Talk]:
    from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]

    yield lambda model: langchain(ChatOpenAI(model=model, base_url=f"{url}/v1", api_key="test", stream_usage=True))


@contextlib.contextmanager
def langchain_anthropic(url: str) -> Iterator[Talk]:
    from langchain_anthropic import ChatAnthropic  # type: ignore[import-not-found]

    yield lambda model: langchain(ChatAnthropic(model=model, base_url=url, api_key="test", max_tokens=99))


def litellm_client(provider: str, base: str) -> Talk:
    import litellm  # type: ignore[import-not-found]

    def ask(model: str, messages: list[Any]) -> Seen:
        stream: Any = litellm.completion(
            model=f"{provider}/{model}",
            messages=messages,
            tools=CHAT_TOOLS,
            stream=True,
            stream_options={"include_usage": True},
            base_url=base,
            api_key="test",
        )
        # LiteLLM gives its own time to chunks, and an id of its own to streams of Anthropic.
        return [chunk.model_dump(mode="json", exclude={"created", "id"}) for chunk in stream]

    def talk(model: str) -> Seen:
        first = ask(model, [{"role": "user", "content": QUESTION}])
        calls = [call for chunk in first for one in chunk["choices"] for call in one["delta"].get("tool_calls") or []]
        arguments = "".join(call["function"]["arguments"] for call in calls)
        return first + ask(model, chat_history(calls[0]["id"], calls[0]["function"]["name"], arguments))

    return talk


@contextlib.contextmanager
def litellm_openai(url: str) -> Iterator[Talk]:
    yield litellm_client("openai", f"{url}/v1")


@contextlib.contextmanager
def litellm_anthropic(url: str) -> Iterator[Talk]:
    yield litellm_client("anthropic", url)


# By name: the client, and the package whose version is told.
CLIENTS: dict[str, tuple[Client, str]] = {
    "openai chat": (openai_chat, "openai"),
    "openai responses": (openai_responses, "openai"),
    "openai responses.connect": (openai_websocket, "openai"),
    "openai realtime.connect": (openai_realtime, "openai"),
    "anthropic": (anthropic, "anthropic"),
    "google-genai": (google_genai, "google-genai"),
    "boto3 bearer": (boto3, "botocore"),
    "boto3 hook": (boto3, "botocore"),
    "ollama": (ollama, "ollama"),
    "mistralai": (mistralai, "mistralai"),
    "cohere": (cohere, "cohere"),
    "langchain-openai": (langchain_openai, "langchain-openai"),
    "langchain-anthropic": (langchain_anthropic, "langchain-anthropic"),
    "litellm openai": (litellm_openai, "litellm"),
    "litellm anthropic": (litellm_anthropic, "litellm"),
}


def main(name: str, rounds: int, urls: list[str]) -> None:
    client, package = CLIENTS[name]
    seen: Seen = []
    seconds: list[list[float]] = [[] for _ in urls]
    with contextlib.ExitStack() as stack:
        talks = list(enumerate(stack.enter_context(client(url)) for url in urls))
        for _ in range(rounds):
            for place, talk in talks:
                begun = time.perf_counter()
                seen.append(talk("m"))
                seconds[place].append(time.perf_counter() - begun)
            talks.reverse()
        for model in ("refused", "busy"):
            try:
                seen.append(talks[0][1](model))
            except Exception as error:  # noqa: BLE001 - whatever an application would get
                seen.append([type(error).__name__, str(error)])
    told = {"version": importlib.metadata.version(package), "seen": seen, "seconds": seconds}
    print(json.dumps(told, default=str))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
