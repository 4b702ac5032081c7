"""Google's Gemini API and Vertex AI: generateContent and streamGenerateContent.

With `alt=sse` each event is a GenerateContentResponse with a part of the output; without it the body is a JSON array of
these objects. There is no [DONE] and no event name. A finish reason, or a block reason for the prompt, ends a stream;
more events may follow. Code Assist sends the same objects inside a `response` member.

Sources: https://ai.google.dev/api/generate-content (GenerateContentResponse, Candidate, UsageMetadata),
https://docs.cloud.google.com/vertex-ai/generative-ai/docs/reference/rest/v1/GenerateContentResponse, and google-genai's
types.py (Part, FunctionCall, PartialArg, ToolCall).
"""

from collections.abc import Sequence

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, LIVE_MEMBERS, Data, DialectDefaults, Sink, is_no_call
from streamgauge.core.dialects.deltas import ABSENT, Delta, Deltas, Output
from streamgauge.core.formats.cut_json import element_of, first_members, last_members
from streamgauge.core.outcome import normal_reason, reason_label
from streamgauge.core.safe_values import MASKED, safe_id, whole_number
from streamgauge.core.usage import UsageRules

# A streamed argument is a value at a path; the path itself does not count as output.
_KEEP_FRAGMENT: Spec = {
    "stringValue": Kind.TEXT,
    "numberValue": Kind.ARGUMENTS,
    "boolValue": Kind.ARGUMENTS,
    "nullValue": Kind.CODE,
}
_KEEP_CALL: Spec = {
    "id": Kind.ID,
    "name": Kind.ID,
    "args": Kind.ARGUMENTS,
    "partialArgs": [_KEEP_FRAGMENT],
    "willContinue": Kind.FLAG,
}
_KEEP_PART: Spec = {
    "text": Kind.TEXT,
    "thought": Kind.FLAG,
    "functionCall": _KEEP_CALL,
    "toolCall": {"id": Kind.ID, "toolType": Kind.ID, "args": Kind.ARGUMENTS},
    "inlineData": {"data": Kind.TEXT},
    "executableCode": {"code": Kind.TEXT},
}
# How many searches grounded the answer: the length of a list beside the usage, read as a member of it.
_SEARCH_QUERIES = "webSearchQueries"
_KEEP_MODALITIES: Spec = [{"modality": Kind.CODE, "tokenCount": Kind.COUNT}]
_KEEP_USAGE: dict[str, Spec] = {
    "promptTokenCount": Kind.COUNT,
    "candidatesTokenCount": Kind.COUNT,
    "responseTokenCount": Kind.COUNT,
    "thoughtsTokenCount": Kind.COUNT,
    "toolUsePromptTokenCount": Kind.COUNT,
    "cachedContentTokenCount": Kind.COUNT,
    "totalTokenCount": Kind.COUNT,
    "promptTokensDetails": _KEEP_MODALITIES,
    "candidatesTokensDetails": _KEEP_MODALITIES,
    "responseTokensDetails": _KEEP_MODALITIES,
    "toolUsePromptTokensDetails": _KEEP_MODALITIES,
    "cacheTokensDetails": _KEEP_MODALITIES,
    "trafficType": Kind.CODE,
    "serviceTier": Kind.CODE,
    _SEARCH_QUERIES: Kind.COUNT,
}
_KEEP_ANSWER: dict[str, Spec] = {
    "candidates": [
        {
            "index": Kind.COUNT,
            "content": {"parts": [_KEEP_PART]},
            "finishReason": Kind.REASON,
            "groundingMetadata": {_SEARCH_QUERIES: [Kind.TEXT]},
        }
    ],
    "promptFeedback": {"blockReason": Kind.REASON},
    "usageMetadata": _KEEP_USAGE,
    "modelVersion": Kind.ID,
    "responseId": Kind.ID,
    "createTime": Kind.CODE,
}
KEEP: dict[str, Spec] = {**KEEP_ERRORS, **_KEEP_ANSWER, "response": _KEEP_ANSWER}

# Members of usageMetadata that describe how a request was served, not what it used. Vertex sends `trafficType` alone on
# all events but the last.
_SERVED = ("trafficType", "serviceTier")

# Parts that hold media, and the member with it.
_MEDIA = {"inlineData": "data", "executableCode": "code"}


# Finish reasons as numbers, which clients get with `$alt=json;enum-encoding=int`. The two APIs number them differently:
# google/ai/generativelanguage/v1beta/generative_service.proto (Candidate.FinishReason) and
# google/cloud/aiplatform/v1/content.proto (the same). 0 is the default of a message: no reason.
def _numbered(names: str) -> dict[int, str]:
    return dict(enumerate(names.split(), 1))


_FINISH_REASONS = _numbered(
    "STOP MAX_TOKENS SAFETY RECITATION OTHER LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII MALFORMED_FUNCTION_CALL IMAGE_SAFETY "
    "UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS"
)
_VERTEX_FINISH_REASONS = _numbered(
    "STOP MAX_TOKENS SAFETY RECITATION OTHER BLOCKLIST PROHIBITED_CONTENT SPII MALFORMED_FUNCTION_CALL MODEL_ARMOR "
    "IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION IMAGE_OTHER UNEXPECTED_TOOL_CALL NO_IMAGE"
)

_LIVE = frozenset(LIVE_MEMBERS)
# A count that only Gemini Live's usage has, which may come in a message of its own (google-genai's types.py, UsageMetadata).
_LIVE_COUNT = "responseTokenCount"

# The key of calls whose every fragment repeats the name and the id, as some proxies send them: the id identifies a
# call. The key is negative, so that it equals no index.
_BY_ID = -1

_PART = "candidates.content.parts"
_DELTAS = Deltas(
    kinds=(
        Delta(Output.TEXT, f"{_PART}.text", when={f"{_PART}.thought": (None, ABSENT)}),
        Delta(Output.REASONING, f"{_PART}.text", when={f"{_PART}.thought": (True,)}),
    ),
    choice="candidates.index",
    response_id=("responseId",),
    model=("modelVersion",),
    tier=tuple(f"usageMetadata.{name}" for name in _SERVED),
    usage="usageMetadata",
    unread=frozenset(("createTime",)),  # it decides only how a numbered finish reason is read
    absent=frozenset(("choices",)),
)


def _audio(details: str) -> tuple[str, ...]:
    """The paths of the audio tokens in a list by modality. Google's enum may come as a number: 4 (`core/modalities.py`)."""
    return tuple(f"{details}.modality={audio}.tokenCount" for audio in ("AUDIO", "4"))


class Gemini(DialectDefaults):
    """Gemini's streamGenerateContent and generateContent."""

    name = "gemini"
    endpoint = ":streamGenerateContent"
    paths = (":streamGenerateContent", ":generateContent")
    keep = KEEP
    keep_body = KEEP
    deltas = _DELTAS
    finish_is_terminal = True
    one_finish_is_enough = True
    usage = UsageRules(
        spec=_KEEP_USAGE,
        input=("promptTokenCount",),
        input_parts=("toolUsePromptTokenCount",),
        output=("candidatesTokenCount", "responseTokenCount"),
        total=("totalTokenCount",),
        cached=("cachedContentTokenCount",),
        reasoning=("thoughtsTokenCount",),
        reasoning_outside=True,
        audio_input=_audio("promptTokensDetails"),
        audio_output=(*_audio("candidatesTokensDetails"), *_audio("responseTokensDetails")),
    )

    def recognises(self, event: str, data: Data) -> bool:
        """By candidates, usage metadata or prompt feedback, also inside a `response` member.

        Not beside `choices`, and not beside the members of a Gemini Live message.
        """
        return _is_answer(data) or _is_answer(data.get("response"))

    def recognises_body(self, data: Data) -> bool:
        """Recognises it as an event: a whole response has the same members."""
        return self.recognises("", data)

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports every candidate. Usage metadata that only describes how the request was served is no usage."""
        answer = _answer_of(data)
        usage = answer.get("usageMetadata")
        sink.identify(answer.get("responseId"), answer.get("modelVersion"), _tier(usage))
        candidates = _candidates(answer)
        for index, candidate in candidates:
            _read_candidate(index, candidate, answer, sink)
        feedback = answer.get("promptFeedback")
        if isinstance(feedback, dict):
            # Any block reason means content_filter. (OTHER is a finish reason as well, with another meaning.)
            sink.finish(0, feedback.get("blockReason"), "content_filter")
        if not isinstance(usage, dict) or usage.keys() - _SERVED:
            sink.usage(_with_searches(usage, candidates))

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """A terminal by its finish reason, before the parts or after them; usage comes before the candidate or after it."""
        first = first_members(head)
        opening = b"{" if _answer_of(first) is first else b'{"response":{'
        last = last_members(tail, opening + b'"candidates":[{', "finishReason") or last_members(
            tail, opening, "usageMetadata"
        )
        before, after = _answer_of(first), _answer_of(last)
        candidate = {**element_of(before, after, "candidates"), "content": None}
        if reason_label(candidate.get("finishReason")) is None:
            return None
        return {**before, **after, "candidates": [candidate]}

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reads it as an event: the finish reason ends it."""
        self.read("", data, sink)


def _answer_of(data: Data) -> Data:
    """The answer inside of a `response` member; the data itself if there is none."""
    wrapped = data.get("response")
    return wrapped if isinstance(wrapped, dict) and not _is_answer(data) else data


def _is_answer(data: object) -> bool:
    if not isinstance(data, dict) or "choices" in data or not _LIVE.isdisjoint(data):
        return False
    if isinstance(data.get("candidates"), list) or isinstance(data.get("promptFeedback"), dict):
        return True
    usage = data.get("usageMetadata")
    return isinstance(usage, dict) and _LIVE_COUNT not in usage


def _with_searches(usage: object, candidates: Sequence[tuple[int, Data]]) -> object:
    """The usage, with the number of searches that grounded the answer. They are billed apart (ai.google.dev, pricing)."""
    searches = 0
    for _, candidate in candidates:
        grounding = candidate.get("groundingMetadata")
        queries = grounding.get(_SEARCH_QUERIES) if isinstance(grounding, dict) else None
        searches += len(queries) if isinstance(queries, list) else 0
    return {**usage, _SEARCH_QUERIES: searches} if isinstance(usage, dict) and searches else usage


def _tier(usage: object) -> object:
    """The service tier: `trafficType` from Vertex, `serviceTier` from the Gemini API."""
    if not isinstance(usage, dict):
        return None
    return usage["trafficType"] if usage.get("trafficType") is not None else usage.get("serviceTier")


def _candidates(answer: Data) -> list[tuple[int, Data]]:
    """The candidates with their index. A candidate without one gets its position in the list."""
    listed = answer.get("candidates")
    candidates = []
    for position, candidate in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(candidate, dict):
            index = whole_number(candidate.get("index"))
            candidates.append((position if index is None else index, candidate))
    return candidates


def _numbered_reasons(answer: Data) -> dict[int, str]:
    """The finish reasons by their numbers. Only Vertex sends `createTime` and `trafficType`."""
    usage = answer.get("usageMetadata")
    is_vertex = "createTime" in answer or (isinstance(usage, dict) and "trafficType" in usage)
    return _VERTEX_FINISH_REASONS if is_vertex else _FINISH_REASONS


def _read_candidate(index: int, candidate: Data, answer: Data, sink: Sink) -> None:
    sink.choice(index)
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            _read_part(index, part, sink)
    reason = candidate.get("finishReason")
    if reason is None:
        return
    number = whole_number(reason)
    name = reason_label(reason) if number is None else _numbered_reasons(answer).get(number)
    normal = None if name is None else normal_reason(name)
    # STOP is also the finish reason of function calls.
    sink.finish(index, reason, "tool_calls" if name == "STOP" and sink.calls_client_tools(index) else normal)


def _read_part(index: int, part: Data, sink: Sink) -> None:
    """Reads one part. Signatures, and results of code and of tools, are not generated output."""
    if part.get("thought") is True:  # a summary (ai.google.dev/gemini-api/docs/thinking: thought summaries)
        sink.reasoning(index, part.get("text"), summary=True)
    else:
        sink.text(index, part.get("text"))
    call, server_call = part.get("functionCall"), part.get("toolCall")
    if isinstance(call, dict):
        _read_call(index, call, sink)
    if isinstance(server_call, dict):
        sink.tool(index, None, server_call.get("toolType"), call_id=server_call.get("id"), client=False)
        sink.arguments(index, None, server_call.get("args"))
    for name, member in _MEDIA.items():
        if name in part and isinstance(blob := part[name], dict):
            sink.media(index, blob.get(member))


def _read_call(index: int, call: Data, sink: Sink) -> None:
    """Reads a whole call, or a piece of a streamed one.

    A streamed call is its name, then fragments of its arguments without the name, then an empty object.
    """
    fragments, args = call.get("partialArgs"), call.get("args")
    streamed = isinstance(fragments, list) or call.get("willContinue") is True
    if not streamed and is_no_call(call.get("name"), call.get("id"), args):
        return
    if isinstance(call.get("name"), str) and call["name"]:
        key = _BY_ID if streamed and safe_id(call.get("id")) not in (None, MASKED) else None
        sink.tool(index, key, call["name"], call_id=call.get("id"), json=not streamed)
    if args or not streamed:
        sink.arguments(index, None, args)
    for fragment in fragments if isinstance(fragments, list) else ():
        if isinstance(fragment, dict):
            sink.arguments(index, None, _value_of(fragment))


def _value_of(fragment: Data) -> object:
    """The addition of a fragment to the arguments: the characters of a string, or another JSON value."""
    text = fragment.get("stringValue")
    if isinstance(text, str):
        return text
    value = next((scalar for name in ("numberValue", "boolValue") if (scalar := fragment.get(name)) is not None), None)
    return "null" if value is None and "nullValue" in fragment else value
