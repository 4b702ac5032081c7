"""Where an official client and the core read a stream differently, each with the fact that justifies the core's reading.

`REFUSALS`: exceptions of a client that stops reading; what it read before must be the beginning of the core's reading.
`DISAGREEMENTS`: streams that a client reads to the end, and the fields in which its reading differs.
The tests fail for a difference that is missing here, and for one that is listed here and does not occur.
"The record" in a fact means the record's definition: it describes what was sent, not what one client can use.
"""

import itertools

import msgspec

# Names of clients. `+` joins several.
CHAT_STREAM = ("openai chat.completions.stream",)
CHAT_CREATE = ("openai chat.completions.create",)
COMPLETIONS = ("openai completions.create",)
RESPONSES_STREAM = ("openai responses.stream",)
RESPONSES_CREATE = ("openai responses.create",)
ANTHROPIC = ("anthropic messages.stream",)
MISTRAL = ("mistralai chat.stream",)
COHERE = ("cohere chat_stream",)
GEMINI = ("google-genai generate_content_stream",)
OLLAMA = ("ollama chat",)
INTERACTIONS = ("google-genai interactions.create",)
CHATS = CHAT_STREAM + CHAT_CREATE
EVERY_CHAT = CHATS + MISTRAL
RESPONSES = RESPONSES_STREAM + RESPONSES_CREATE


class Refusal(msgspec.Struct, frozen=True):
    """An exception of these clients. `raised`: the beginning of its type and message."""

    clients: tuple[str, ...]
    raised: str
    fact: str


class Disagreement(msgspec.Struct, frozen=True):
    """`fields`: all in which the two readings differ. `fact`: what justifies the core's reading, and its source."""

    fields: frozenset[str]
    fact: str


_NOT_JSON = "The record: an event that is not JSON is counted (unparsed_events), and the stream continues."
_WRONG_TYPES = "The record: a value of a wrong type is ignored. The clients build their models without validation."

_WRONG_TYPES_REFUSED = "The record: a value of a wrong type is ignored. The client refuses the whole line."

REFUSALS: tuple[Refusal, ...] = (
    # WHATWG HTML 9.2.6: a block without data dispatches nothing (the client parses its "" as JSON); others are not JSON.
    Refusal(CHATS, "JSONDecodeError: Expecting value", _NOT_JSON),
    Refusal(CHATS + RESPONSES + COMPLETIONS, "JSONDecodeError: Expecting property name", _NOT_JSON),
    Refusal(CHATS, "JSONDecodeError: Extra data", _NOT_JSON),
    Refusal(CHATS, "JSONDecodeError: Invalid control character", _NOT_JSON),
    Refusal(GEMINI, "UnknownApiResponseError: Failed to parse response as JSON", _NOT_JSON),
    Refusal(OLLAMA, "JSONDecodeError: Unterminated string", "The record: a last line that is cut off is no event."),
    Refusal(OLLAMA, "ValidationError: 1 validation error for ChatResponse", _WRONG_TYPES_REFUSED),
    Refusal(OLLAMA, "ValidationError: 2 validation errors for ChatResponse", _WRONG_TYPES_REFUSED),
    Refusal(INTERACTIONS, "AttributeError: 'str' object has no attribute 'event_type'", _NOT_JSON),
    Refusal(
        GEMINI,
        "AttributeError: 'int' object has no attribute 'upper'",
        "Google's servers send enums as numbers to clients that ask for them (enum-encoding=int). This client does not.",
    ),
    Refusal(
        EVERY_CHAT,
        "RecursionError: ",
        "RFC 8259 does not limit depth. An event nested deeper than a reader accepts is one event that does not parse.",
    ),
    Refusal(
        EVERY_CHAT,
        "ValueError: Exceeds the limit (4300 digits)",
        "RFC 8259 does not limit the size of numbers. No count is this long.",
    ),
    Refusal(
        EVERY_CHAT, "UnicodeDecodeError: ", "WHATWG HTML 9.2.6: an event stream is decoded with replacement characters."
    ),
    Refusal(CHATS, "AttributeError: 'int' object has no attribute", _WRONG_TYPES),
    Refusal(CHATS + RESPONSES_STREAM + ANTHROPIC, "AttributeError: 'str' object has no attribute", _WRONG_TYPES),
    Refusal(
        CHAT_CREATE + RESPONSES_CREATE + INTERACTIONS, 'TypeError: can only concatenate str (not "int")', _WRONG_TYPES
    ),
    Refusal(GEMINI, "ValidationError: ", _WRONG_TYPES),
    Refusal(
        CHATS, "AttributeError: 'NoneType' object has no attribute 'name'", "A custom tool's call has no `function`."
    ),
    Refusal(
        CHAT_CREATE + RESPONSES_CREATE,
        'TypeError: can only concatenate str (not "list")',
        "Mistral sends content as a list of parts. From other servers a value of a wrong type is ignored.",
    ),
    Refusal(
        CHAT_STREAM,
        "TypeError: list indices must be integers",
        "Mistral's calls have no index; their id identifies them.",
    ),
    Refusal(
        CHAT_STREAM, "IndexError: list index out of range", "The record: with an invalid index the text still counts."
    ),
    Refusal(
        CHAT_STREAM, "AssertionError: ", "An entry of tool_calls without a function is not a call. The text counts."
    ),
    Refusal(
        CHAT_STREAM,
        "RuntimeError: Expected list delta entry",
        "The index in OpenRouter's reasoning_details is optional.",
    ),
    Refusal(
        MISTRAL,
        "ResponseValidationError: ",
        "The client's models require these members and types. Other servers send fewer (OpenRouter, vLLM, ...).",
    ),
    # openai-python lib/streaming/responses/_responses.py requires these; the API reference does not promise them.
    Refusal(
        RESPONSES_STREAM,
        "RuntimeError: Expected to have received `response.created`",
        "A resumed stream has no response.created.",
    ),
    Refusal(
        RESPONSES_STREAM, "RuntimeError: Received a content event", "NanoGPT's API reference has deltas without items."
    ),
    Refusal(
        RESPONSES_STREAM, "RuntimeError: Cannot complete response", "In these vectors the last response has no output."
    ),
    Refusal(RESPONSES_STREAM, "RuntimeError: Completed output item", "Gateways give an item a new id in each event."),
    Refusal(
        RESPONSES_STREAM,
        "KeyError: 0",
        "The item of this call has no name and no call id; the event that closes it has the name.",
    ),
    Refusal(RESPONSES_STREAM, "RuntimeError: Duplicate response output index", "A gateway gives two calls one index."),
    Refusal(
        RESPONSES_STREAM, "IndexError: list index out of range", "Gateways may begin at a content_index other than 0."
    ),
    # anthropic-sdk-python lib/streaming/_messages.py reads event.usage.output_tokens without a check for None.
    Refusal(
        ANTHROPIC,
        "AttributeError: 'NoneType' object has no attribute 'output_tokens'",
        "Compatible servers may send no usage.",
    ),
    Refusal(
        ANTHROPIC,
        "ValueError: Unable to parse tool parameter JSON",
        "The record: arguments_valid is false, and the outcome is completed.",
    ),
)


class Row(msgspec.Struct, frozen=True):
    """Streams that these clients read with the same differences. `fields`, `vectors`: names, separated by spaces."""

    clients: tuple[str, ...]
    fields: str
    vectors: str


# Fact -> the differences that it justifies. A client reads one dialect, so the name of a vector identifies it.
ROWS: dict[str, tuple[Row, ...]] = {
    "The record: a stream whose terminal was seen is completed, even if the connection breaks afterwards.": (
        Row(EVERY_CHAT + RESPONSES + ANTHROPIC, "ended", "client-left-after-terminal"),
        Row(RESPONSES + ANTHROPIC, "ended", "reset-after-terminal"),
        Row(GEMINI, "ended", "reset-after-finish"),
        Row(COHERE, "ended", "client-left-after-message-end"),
    ),
    "The record: a last event without its blank line counts. WHATWG HTML 9.2.6 discards it, as clients do.": (
        Row(CHATS, "ended", "error-unterminated"),
        Row(CHATS, "finish", "unterminated-finish"),
        Row(CHATS, "text", "unterminated-token"),
        Row(RESPONSES, "finish usage", "unterminated-completed"),
        Row(COHERE, "finish usage", "unterminated-message-end"),
    ),
    "The record: a finish reason that normalises to error is an in-band error. The client returns it like any reason.": (
        Row(
            EVERY_CHAT,
            "ended",
            "error-abort error-insufficient-system-resource finish-malformed finish-network-error n2-one-error "
            "sglang-abort-graceful",
        ),
        Row(EVERY_CHAT + COMPLETIONS, "ended", "error-finish-reason"),
        Row(EVERY_CHAT + GEMINI, "ended", "finish-error-replaces"),
        Row(RESPONSES, "ended", "completed-but-cancelled"),
        Row(
            GEMINI,
            "ended",
            "finish-language finish-malformed-response finish-no-image malformed-function-call unexpected-tool-call",
        ),
        Row(ANTHROPIC, "ended", "finish-malformed"),
        Row(COHERE, "ended", "finish-network-error"),
        Row(GEMINI, "finish", "finish-stop-then-error"),
    ),
    "The record: a native finish reason that means an error is an in-band error. The clients do not know this member.": (
        Row(EVERY_CHAT, "ended finish", "native-error native-error-after-output native-error-alone"),
        Row(COMPLETIONS, "ended finish", "native-error"),
    ),
    "The record: the words null and none are no finish reason. The client returns the word.": (
        Row(EVERY_CHAT, "finish", "finish-word-none finish-word-null-cut"),
        Row(COHERE, "finish", "finish-word-null"),
    ),
    "The record: the default of Gemini's enum replaces no reason. The client returns the last one.": (
        Row(GEMINI, "finish", "finish-unspecified-then-stop"),
    ),
    "The record: what only a closing event brings is output. The client builds its answer of deltas alone.": (
        Row(CHAT_STREAM, "calls finish reasoning text usage", "closing-alone"),
        Row(CHAT_STREAM, "arguments calls finish", "closing-brings-arguments"),
        Row(CHAT_STREAM, "finish text", "closing-second-choice"),
        Row(CHAT_CREATE, "calls reasoning text", "closing-alone"),
        Row(CHAT_CREATE, "arguments calls", "closing-brings-arguments"),
        Row(CHAT_CREATE, "text", "closing-second-choice"),
        Row(RESPONSES, "calls", "call-at-terminal terminal-call-without-output terminal-nameless-calls"),
        Row(RESPONSES, "text", "output-at-terminal"),
        Row(RESPONSES_CREATE, "arguments", "done-shell-command-only"),
        Row(RESPONSES_CREATE, "arguments calls refusal", "terminal-brings-the-rest"),
        Row(RESPONSES_CREATE, "reasoning", "terminal-reasoning-alone"),
        Row(INTERACTIONS, "calls reasoning text", "completed-alone"),
    ),
    "SAP's service has clients of its own. This client does not look into its wrapper.": (
        Row(CHATS, "finish text usage", "sap-orchestration sap-orchestration-usage-after-done"),
        Row(CHATS, "calls finish", "sap-orchestration-first-version"),
    ),
    "The record: an event without a type has that of its event: line. The client goes by the member alone.": (
        Row(RESPONSES_CREATE, "ended finish", "type-in-event-line-failed"),
        Row(RESPONSES_CREATE, "finish", "type-in-event-line-incomplete"),
        Row(RESPONSES_CREATE, "calls finish text usage", "type-in-event-line"),
        Row(ANTHROPIC, "finish text usage", "type-in-event-line"),
        Row(INTERACTIONS, "ended", "type-in-event-line"),
    ),
    "FastAPI's detail alone and MiniMax's base_resp are errors, which this client does not know.": (
        Row(COMPLETIONS, "ended", "error-base-resp error-detail"),
        Row(RESPONSES, "ended", "error-base-resp"),
        Row(ANTHROPIC, "ended output", "error-detail-alone"),
    ),
    "Old llama.cpp, gpustack and proxies send errors outside of data. A client that follows WHATWG ignores them.": (
        Row(EVERY_CHAT, "ended", "error-bare-json error-field-unterminated"),
        Row(EVERY_CHAT + COMPLETIONS, "ended", "error-field"),
    ),
    "OpenRouter's error in a choice is an in-band error. The clients check the event's own `error` only.": (
        Row(EVERY_CHAT, "ended finish", "error-in-choice"),
    ),
    "A new id begins a new call (Cerebras: two at one index; Mistral: no index). The client uses the index.": (
        Row(
            CHATS,
            "arguments calls",
            "cerebras-two-ids-one-index tool-name-with-another-id tool-two-ids-one-index-in-one-chunk "
            "two-ids-one-index-in-turn",
        ),
        Row(CHAT_STREAM, "calls", "tool-id-repeated-at-one-index"),
        Row(
            CHAT_CREATE,
            "arguments calls",
            "mistral-tools-without-index tool-without-index-and-id tool-without-index-by-id "
            "tool-without-index-many-fragments tool-without-index-odd-ids tools-by-id",
        ),
        Row(CHAT_CREATE + MISTRAL, "arguments calls", "tool-without-index-by-turns"),
        Row(MISTRAL, "arguments calls", "tool-id-repeated-at-one-index"),
        Row(RESPONSES_CREATE, "arguments calls", "two-calls-one-index"),
        Row(ANTHROPIC, "arguments", "two-calls-one-index"),
    ),
    "A call that is reported at its end only (output_item.done) counts. The client's events need an added item.": (
        Row(RESPONSES, "calls", "calls-only-when-done"),
        Row(RESPONSES_CREATE, "calls", "call-done-in-a-leg"),
    ),
    "The record: the last value of each field stands. The client takes the last usage object as a whole.": (
        Row(CHAT_STREAM, "usage", "input-always-zero usage-before-finish-only"),
        Row(EVERY_CHAT, "input", "usage-split"),
        Row(EVERY_CHAT, "input output total", "usage-empty-behind-finish"),
    ),
    "The record: a usage of zeros after another one is a placeholder. The client takes the last usage object.": (
        Row(CHATS, "cached input output reasoning_tokens total", "zeros-after-usage"),
        Row(MISTRAL + COMPLETIONS + RESPONSES + INTERACTIONS, "input output total", "zeros-after-usage"),
        Row(GEMINI, "input output reasoning_tokens total", "zeros-after-usage"),
        Row(ANTHROPIC, "cached input output", "zeros-after-usage"),
        Row(CHAT_STREAM, "usage", "output-falls-to-zero"),
        Row(CHAT_CREATE + MISTRAL, "output", "output-falls-to-zero"),
    ),
    "The record: zeros alone are no usage. The client returns what was sent.": (
        Row(
            EVERY_CHAT + COMPLETIONS + RESPONSES + ANTHROPIC + GEMINI + INTERACTIONS,
            "usage",
            "zeros-alone",
        ),
        Row(CHAT_CREATE + MISTRAL, "usage", "total-zero-alone"),
        Row(RESPONSES, "total", "total-zero"),
    ),
    "The record: an input of 0 without a cache is not known. The client returns what was sent.": (
        Row(EVERY_CHAT + RESPONSES + GEMINI, "input", "input-zero"),
        Row(CHAT_CREATE + MISTRAL, "input", "input-always-zero"),
        Row(ANTHROPIC, "input", "start-input-zero"),
    ),
    "The record: an output of 0 beside token events is not known. The client returns what was sent.": (
        Row(
            CHATS + COMPLETIONS + RESPONSES + ANTHROPIC + GEMINI + INTERACTIONS + COHERE,
            "output",
            "output-zero",
        ),
        Row(MISTRAL, "output total", "output-zero"),
        Row(CHAT_CREATE + MISTRAL, "output", "usage-before-finish-only"),
    ),
    "The record: of several places of a count the first positive one counts. The client reads its own place only.": (
        Row(CHATS, "cached", "cache-write-beside-hit cached-zero-beside-hit"),
        Row(COMPLETIONS + RESPONSES, "cached", "cached-zero-beside-read"),
        Row(COHERE, "input output", "tokens-zero-beside-billed"),
        Row(CHATS, "cached input output reasoning_tokens", "usage-names-of-responses"),
        Row(MISTRAL, "input output", "usage-names-of-responses"),
        Row(RESPONSES, "cached input output reasoning_tokens", "usage-names-of-chat"),
        Row(CHATS, "reasoning_tokens", "billed-searches-perplexity"),
        Row(ANTHROPIC, "input", "cache-write-in-parts"),
        Row(ANTHROPIC, "input output", "usage-names-of-chat"),
    ),
    "The record: audio, or a cache, that is no part of the input field is input. The client returns that field.": (
        Row(EVERY_CHAT + RESPONSES + GEMINI + INTERACTIONS, "input", "audio-outside"),
        Row(CHATS, "cached input", "cache-outside-by-the-total"),
        Row(MISTRAL, "input", "cache-outside-by-the-total"),
        Row(CHATS, "cached input total", "cache-write-outside"),
        Row(MISTRAL + COMPLETIONS + RESPONSES, "input total", "cache-write-outside"),
    ),
    "The record: usage after [DONE] counts. This client takes the usage of the terminal.": (
        Row(RESPONSES, "usage", "usage-after-done usage-after-done-alone"),
    ),
    "The record: usage from before the finish is partial. The client takes the usage of the last response only.": (
        Row(RESPONSES_CREATE, "usage", "usage-before-terminal-cut"),
    ),
    "Anthropic's message_start has a placeholder as output count. The record keeps null until a message_delta.": (
        Row(
            ANTHROPIC,
            "output",
            "client-left done-alone half-event half-event-name-only message-start-with-content nanogpt-eof reset "
            "stop-without-reason truncated",
        ),
    ),
    "openai-python's streaming/chat/_completions.py accepts one value of `object`. Other servers send others or none.": (
        Row(CHAT_STREAM, "calls finish", "local-tools-as-sent local-tools-corrected"),
        Row(CHAT_STREAM, "finish", "closing-with-other-ids perplexity-crlf perplexity-done-repeats-calls"),
        Row(CHAT_STREAM, "finish reasoning text", "nanogpt-reasoning"),
        Row(
            CHAT_STREAM,
            "finish text",
            "chunks-called-completions chunks-called-completions-with-totals moonshot-no-object",
        ),
        Row(
            CHAT_STREAM,
            "finish text usage",
            "perplexity-done-after-role perplexity-done-only perplexity-done-with-new-kind together-completion-chunk",
        ),
        Row(CHAT_STREAM, "finish usage", "closing-repeats perplexity-done-without-delta sansa-happy"),
        Row(CHAT_STREAM, "text", "pretty-json usage-empty-object"),
        Row(CHAT_STREAM, "usage", "usage-chunk-alone"),
    ),
    "The record: an empty usage object is not usage.": (Row(CHAT_CREATE, "usage", "usage-empty-object"),),
    "Its choices have `delta` instead of `text`.": (Row(COMPLETIONS, "text", "tgi-delta"),),
    "llama.cpp sends `event: error` without an error member. openai-python's _streaming.py checks the member only.": (
        Row(CHATS, "ended", "error-event-empty local-error-before local-error-mid-stream"),
        Row(COMPLETIONS, "ended", "local-error"),
    ),
    "An error member beside choices, which the client does not know.": (
        Row(MISTRAL, "ended", "error-after-finish error-with-choices"),
    ),
    "A gateway's error event, whose type the client skips.": (
        Row(COHERE, "ended", "error-after-finish error-gateway"),
    ),
    "The client drops events without a name. The record is made by their `type`.": (
        Row(ANTHROPIC, "ended output", "error-unnamed"),
        Row(ANTHROPIC, "finish text usage", "no-event-lines"),
    ),
    "The client skips a second message_start.": (Row(ANTHROPIC, "input", "message-start-twice"),),
    "A resumed stream has no message_start, which the client needs.": (
        Row(ANTHROPIC, "finish text usage", "nimbus-resumed"),
    ),
    "The fragment in the provider's documentation has no message_start, which the client needs.": (
        Row(ANTHROPIC, "calls finish", "nimbus-tools-fragment"),
    ),
    "The record: a count that is negative, not whole or above 2^53 is invalid and ignored. The client returns it.": (
        Row(CHATS, "input output total", "usage-bad-values"),
        Row(RESPONSES_CREATE, "output total", "usage-bad-values"),
        Row(ANTHROPIC, "input output", "usage-bad-values"),
        Row(INTERACTIONS + COHERE, "usage", "usage-bad-values"),
    ),
    "xAI's total is input + output + reasoning, so the record adds reasoning to output.": (
        Row(CHATS, "output", "xai-reasoning-on-top"),
    ),
    "Grok on Azure reports more cached than input tokens: its input excludes the cache, and the record adds it.": (
        Row(EVERY_CHAT, "input", "azure-grok-cache-outside"),
    ),
    "DeepSeek, Together, Z.ai and Perplexity use other names for this count, which the client's types do not have.": (
        Row(CHATS, "cached", "deepseek together-text-and-delta"),
        Row(CHATS, "reasoning_tokens", "zai-role-everywhere"),
        Row(EVERY_CHAT, "input output", "usage-other-names"),
        Row(RESPONSES_CREATE, "cached", "perplexity-usage"),
    ),
    "Groq sends usage in x_groq, which the client does not know.": (Row(EVERY_CHAT, "usage", "groq-usage-in-x-groq"),),
    "core/assembly/event_sink.py limits choices and calls (MAX_CHOICES, ...). integrity.reasons has state_limit.": (
        Row(EVERY_CHAT, "calls", "many-tools"),
        Row(EVERY_CHAT, "text", "many-choices"),
    ),
    "The record: a name must be printable ASCII and a reason must look like a code; otherwise it is `masked`.": (
        Row(EVERY_CHAT, "calls", "labels"),
        Row(EVERY_CHAT, "finish", "finish-free-text"),
    ),
    "The record: a finish reason is text. The client returns a number.": (Row(CHATS, "finish", "confused-labels"),),
    "Another name, or another entry of one list, is another call (Gemini's chat: all at index 0, without ids).": (
        Row(
            CHATS,
            "arguments calls",
            "gemini-calls-at-one-index-in-turn gemini-two-calls-at-one-index tool-name-after-arguments "
            "tool-same-name-twice-at-one-index",
        ),
    ),
    _WRONG_TYPES: (
        Row(CHAT_STREAM, "calls", "fuzz-numbers-as-texts"),
        Row(RESPONSES, "arguments", "fuzz-argument-delta-no-text"),
        Row(RESPONSES, "calls", "fuzz-item-type"),
    ),
    "A custom tool's call has no `function`, the only member that this oracle reads.": (
        Row(CHAT_CREATE, "calls", "tool-custom"),
    ),
    "A call outside of a list (Snowflake Cortex, text-generation-inference), which the client does not know.": (
        Row(EVERY_CHAT, "calls", "snowflake-tool-use"),
        Row(MISTRAL, "calls", "tgi-tool-object"),
    ),
    "FastChat and vLLM mark an error by `object`, Groq sends it in x_groq. The clients check `error` only.": (
        Row(CHATS, "ended", "error-object-error"),
        Row(EVERY_CHAT, "ended", "error-x-groq"),
    ),
    "The error is in a list. The client expects an object.": (Row(GEMINI, "ended", "error-in-a-list"),),
    "The record: arguments that are an object count as their compact JSON.": (
        Row(CHAT_CREATE, "arguments", "tool-arguments-object"),
    ),
    "The record: the position replaces an invalid index.": (Row(CHAT_CREATE + MISTRAL, "text", "odd-indices"),),
    "OpenAI's deprecated function_call, which the client does not know.": (
        Row(MISTRAL, "calls", "function-call-legacy"),
    ),
    "The reasoning is in reasoning_details only (OpenRouter).": (
        Row(CHATS, "reasoning", "sansa-reasoning-details"),
        Row(CHAT_CREATE, "reasoning", "three-reasonings"),
    ),
    "The accumulator replaces Mistral's lists of parts instead of joining them.": (
        Row(CHAT_STREAM, "reasoning text", "mistral-list-content"),
    ),
    "Code Assist wraps each chunk in `response`. The client reads the outer object.": (
        Row(GEMINI, "finish text usage", "code-assist"),
    ),
    "The record: usage after [DONE] counts. The clients stop reading at [DONE].": (
        Row(CHAT_STREAM, "usage", "usage-after-done-replaces"),
        Row(
            EVERY_CHAT,
            "usage",
            "usage-after-done-empty-id usage-after-done-unterminated usage-after-done-with-empty-choice "
            "usage-after-done-without-finish usage-after-done-without-id",
        ),
        Row(EVERY_CHAT, "usage", "usage-after-done-in-a-choice"),
        Row(EVERY_CHAT + COMPLETIONS, "usage", "usage-after-done"),
        Row(CHAT_CREATE + MISTRAL, "output total", "usage-after-done-replaces"),
    ),
    "FastAPI's detail and MiniMax's base_resp are in-band errors. The clients check the `error` member only.": (
        Row(
            CHATS,
            "ended",
            "error-detail-first error-detail-list error-detail-object minimax-error minimax-error-code-as-text",
        ),
        Row(CHATS + RESPONSES, "ended", "error-detail"),
        Row(EVERY_CHAT, "ended", "minimax-error-with-choices"),
        Row(ANTHROPIC, "ended output", "error-detail"),
    ),
    "The record: output that only a closing event carries counts. The client's deltas do not have it.": (
        Row(CHAT_CREATE, "text", "perplexity-done-after-role perplexity-done-with-new-kind"),
        Row(CHAT_CREATE + MISTRAL, "text", "perplexity-done-only"),
        Row(
            RESPONSES,
            "arguments",
            "done-arguments-in-item done-arguments-only done-code-event-only done-code-only done-custom-input-only "
            "done-mcp-arguments-only done-patch-diff-only",
        ),
        Row(RESPONSES, "calls", "done-call-without-item done-patch-and-shell-only"),
        Row(
            RESPONSES,
            "text",
            "done-empty-call done-item-only done-many-items done-part-only done-two-items done-two-parts",
        ),
        Row(RESPONSES_STREAM, "text", "done-item-of-parts"),
        Row(RESPONSES_CREATE, "calls", "done-name-only"),
        Row(
            RESPONSES_CREATE,
            "reasoning",
            "done-reasoning-item-only done-reasoning-part-only done-reasoning-summary-only",
        ),
        Row(RESPONSES_CREATE, "refusal", "done-refusal-only"),
        Row(RESPONSES_CREATE, "refusal text", "done-item-of-parts"),
        Row(RESPONSES_CREATE, "text", "done-second-item done-text-only done-two-texts done-unplaced"),
    ),
    "GitHub Copilot sends reasoning_text. This oracle reads reasoning and reasoning_content only.": (
        Row(CHATS, "reasoning", "reasoning-text"),
    ),
    "The record: an input count of 0 after a positive one is a placeholder. The client takes the last usage object.": (
        Row(CHATS + ANTHROPIC, "cached input", "input-falls-to-zero"),
        Row(CHAT_STREAM, "usage", "input-falls-to-zero-on-each-delta"),
        Row(CHAT_CREATE + MISTRAL, "input total", "input-falls-to-zero-on-each-delta"),
        Row(MISTRAL + GEMINI, "input", "input-falls-to-zero"),
        Row(ANTHROPIC, "input", "input-falls-to-zero-alone"),
    ),
    "The record: a choice's first finish reason stands, unless an error follows. The client takes the last one.": (
        Row(EVERY_CHAT, "ended finish", "finish-error-stands"),
        Row(EVERY_CHAT, "finish", "finish-first-stands-of-each"),
        Row(EVERY_CHAT + COMPLETIONS + ANTHROPIC + GEMINI, "finish", "finish-first-stands"),
    ),
    "The record: an entry without name, id and arguments is not a call, a missing name is null. The client has a call.": (
        Row(CHATS, "calls", "function-call-empty"),
        Row(EVERY_CHAT, "calls", "tool-empty-entry tool-only-an-id"),
        Row(CHAT_CREATE, "calls", "tool-custom-empty"),
        Row(MISTRAL, "calls", "tool-empty-entry-between tool-empty-entry-first"),
        Row(ANTHROPIC, "calls", "tool-empty-block"),
        Row(COHERE, "calls", "tool-empty-call"),
    ),
    "The record: pieces of a name are joined, a repeated name is one name. The client joins all, or takes one.": (
        Row(CHATS, "calls", "tool-name-too-long"),
        Row(CHAT_STREAM, "calls", "tool-name-repeated"),
        Row(CHAT_CREATE, "calls", "tool-name-in-pieces tool-name-in-pieces-of-two"),
        Row(CHAT_CREATE + MISTRAL, "calls", "function-call-name-in-pieces"),
    ),
    "The record: the finish reason is the known reason among a sentence's words. The client returns the sentence.": (
        Row(EVERY_CHAT, "ended finish", "finish-in-a-sentence-error"),
        Row(EVERY_CHAT, "finish", "finish-in-a-sentence-hyphens finish-in-a-sentence-punctuation"),
        Row(EVERY_CHAT + ANTHROPIC + GEMINI, "finish", "finish-in-a-sentence"),
        Row(RESPONSES_CREATE, "finish", "incomplete-in-a-sentence"),
        Row(GEMINI, "finish", "blocked-in-a-sentence"),
        Row(COHERE, "ended finish", "finish-in-a-sentence"),
    ),
    "The record: a missing total is the sum of input and output. The client returns what was sent.": (
        Row(EVERY_CHAT, "total", "reasoning-beyond-output"),
        Row(MISTRAL, "input total", "reasoning-beyond-output-without-input"),
    ),
    "Workers AI: the usage is that of its last event, which is no chunk. The client has that of the chunk before.": (
        Row(CHAT_STREAM, "input total", "workers-ai-usage"),
    ),
    "Vertex's events before it had steps. This client knows the new names only.": (
        Row(INTERACTIONS, "finish reasoning text usage", "legacy-events"),
    ),
}


def _disagreements() -> dict[tuple[str, str], Disagreement]:
    found: dict[tuple[str, str], Disagreement] = {}
    for fact, rows in ROWS.items():
        for row in rows:
            for pair in itertools.product(row.clients, row.vectors.split()):
                assert pair not in found, f"{pair} has two rows"
                found[pair] = Disagreement(frozenset(row.fields.split()), fact)
    return found


# (name of a client, name of a vector) -> the fields in which they differ, and why.
DISAGREEMENTS = _disagreements()
