"""Where an official client and the core rightly read differently, with the fact that decides. Both tables are held exactly.

`REFUSES`: what a client raises instead of reading on; what it read until then must still be the beginning of what we read.
`DISAGREES`: streams that a client reads, and the fields in which it says something else.
"The record" is the record's definition: an observer judges a stream by what was sent, not by what one client can use.
"""

import msgspec

CHAT_STREAM = "openai chat.completions.stream"
CHAT_CREATE = "openai chat.completions.create"
COMPLETIONS = "openai completions.create"
RESPONSES_STREAM = "openai responses.stream"
RESPONSES_CREATE = "openai responses.create"
ANTHROPIC = "anthropic messages.stream"
MISTRAL = "mistralai chat.stream"
COHERE = "cohere chat_stream"
GEMINI = "google-genai generate_content_stream"
INTERACTIONS = "google-genai interactions.create"
CHATS = (CHAT_STREAM, CHAT_CREATE)
EVERY_CHAT = (*CHATS, MISTRAL)
RESPONSES = (RESPONSES_STREAM, RESPONSES_CREATE)


class Refusal(msgspec.Struct, frozen=True):
    """`raised`: how what the client raises begins, type and message."""

    clients: tuple[str, ...]
    raised: str
    fact: str


class Disagreement(msgspec.Struct, frozen=True):
    """`fields`: all in which they differ. `fact`: what decides, and where it stands."""

    fields: frozenset[str]
    fact: str


_NO_JSON = "The record: an event that is no JSON is counted (unparsed_events) and the stream goes on."
_ODD_TYPES = "The record: a value of a wrong type counts nothing; the clients' models are built without validation."
_TYPED = (
    "Its models want these members and types; others that speak chat completions send fewer (OpenRouter, vLLM, ...)."
)

REFUSES: tuple[Refusal, ...] = (
    # WHATWG HTML 9.2.6: a block without data dispatches nothing (the client reads its "" as JSON); else no JSON.
    Refusal(CHATS, "JSONDecodeError: Expecting value", _NO_JSON),
    Refusal((*CHATS, *RESPONSES, COMPLETIONS), "JSONDecodeError: Expecting property name", _NO_JSON),
    Refusal(CHATS, "JSONDecodeError: Extra data", _NO_JSON),
    Refusal(CHATS, "JSONDecodeError: Invalid control character", _NO_JSON),
    Refusal((GEMINI,), "UnknownApiResponseError: Failed to parse response as JSON", _NO_JSON),
    Refusal((INTERACTIONS,), "AttributeError: 'str' object has no attribute 'event_type'", _NO_JSON),
    Refusal(
        EVERY_CHAT,
        "RecursionError: ",
        "RFC 8259 knows no depth; deeper than a reader goes is one event that does not parse.",
    ),
    Refusal(
        EVERY_CHAT,
        "ValueError: Exceeds the limit (4300 digits)",
        "RFC 8259 knows no size of numbers; no count is so long.",
    ),
    Refusal(
        EVERY_CHAT, "UnicodeDecodeError: ", "WHATWG HTML 9.2.6: an event stream is decoded with replacement characters."
    ),
    Refusal(CHATS, "AttributeError: 'int' object has no attribute", _ODD_TYPES),
    Refusal((*CHATS, RESPONSES_STREAM, ANTHROPIC), "AttributeError: 'str' object has no attribute", _ODD_TYPES),
    Refusal(
        (CHAT_CREATE, RESPONSES_CREATE, INTERACTIONS), 'TypeError: can only concatenate str (not "int")', _ODD_TYPES
    ),
    Refusal(
        CHATS, "AttributeError: 'NoneType' object has no attribute 'name'", "A custom tool's call has no `function`."
    ),
    Refusal((GEMINI,), "ValidationError: ", _ODD_TYPES),
    Refusal(
        (CHAT_CREATE, RESPONSES_CREATE),
        'TypeError: can only concatenate str (not "list")',
        "Mistral sends content as a list of parts; elsewhere a value of a wrong type counts nothing.",
    ),
    Refusal(
        (CHAT_STREAM,),
        "TypeError: list indices must be integers",
        "Mistral's calls have no index: their id tells them.",
    ),
    Refusal(
        (CHAT_STREAM,), "IndexError: list index out of range", "An index that is none; the text counts all the same."
    ),
    Refusal(
        (CHAT_STREAM,), "AssertionError: ", "An entry of tool_calls without a function is no call; the text counts."
    ),
    Refusal((CHAT_STREAM,), "RuntimeError: Expected list delta entry", "OpenRouter's reasoning_details need no index."),
    Refusal((MISTRAL,), "ResponseValidationError: ", _TYPED),
    # openai-python lib/streaming/responses/_responses.py; the API reference promises none of it to an observer.
    Refusal((RESPONSES_STREAM,), "RuntimeError: Expected to have received `response.created`", "A leg that continues."),
    Refusal(
        (RESPONSES_STREAM,), "RuntimeError: Received a content event", "NanoGPT's reference sends deltas without items."
    ),
    Refusal(
        (RESPONSES_STREAM,), "RuntimeError: Cannot complete response", "Vectors whose last response leaves output out."
    ),
    Refusal(
        (RESPONSES_STREAM,), "RuntimeError: Completed output item", "Gateways give an item a new id in each event."
    ),
    Refusal(
        (RESPONSES_STREAM,),
        "KeyError: 0",
        "A call whose item has neither name nor call id: its name comes with its end.",
    ),
    Refusal(
        (RESPONSES_STREAM,), "RuntimeError: Duplicate response output index", "A gateway gives two calls one index."
    ),
    Refusal((RESPONSES_STREAM,), "IndexError: list index out of range", "Gateways need not begin at content_index 0."),
    # anthropic-sdk-python lib/streaming/_messages.py reads event.usage.output_tokens unasked.
    Refusal(
        (ANTHROPIC,),
        "AttributeError: 'NoneType' object has no attribute 'output_tokens'",
        "Compatible servers tell no usage.",
    ),
    Refusal(
        (ANTHROPIC,), "ValueError: Unable to parse tool parameter JSON", "The record: arguments_valid false, completed."
    ),
)


class Row(msgspec.Struct, frozen=True):
    """Streams of which one fact decides. `vectors`, `fields`: names with a space between."""

    clients: tuple[str, ...]
    dialect: str
    vectors: str
    fields: str
    fact: str


_BROKEN_BEHIND = "The record: terminal seen is completed, whatever breaks afterwards."
_UNTERMINATED = (
    "The record: a last event without its blank line counts; WHATWG HTML 9.2.6 discards it, and so do clients."
)
_ERROR_REASON = (
    "The record: a finish reason that normalises to error is an in-band error; the client hands it out as any."
)
_NOT_DATA = "Old llama.cpp, gpustack and proxies send errors outside of data; a client that follows WHATWG drops them."
_ERROR_EVENT = (
    "`event: error` without an error member (llama.cpp); openai-python _streaming.py looks at the member alone."
)
_BAD_VALUES = "The record: a count that is negative, broken or beyond 2^53 is bad and ignored; the client hands it out."
_PLACEHOLDER = "Anthropic's message_start holds a placeholder for output; the record keeps null until a message_delta."
_ON_TOP = "xAI's total is input + output + reasoning: output counts with reasoning, as the stream's own total says."
_CACHE = "Grok on Azure says more cached than input: the cache lies outside, and the record's input holds it."
_OTHER_NAMES = (
    "DeepSeek, Together, Z.ai and Perplexity tell it under names of their own, which the client's type has not."
)
_LIMITS = (
    "core/assembly/event_sink.py MAX_CHOICES and its like for tools: state is bounded, and integrity says state_limit."
)
_LABELS = "The record: names are printable ASCII, reasons look like codes, else `masked`."
_KEYS = "A new id opens a new call (Cerebras: two at one index; Mistral: none); the client goes by index."
_NAMES = "Another name, or another entry of one list, is another call (Gemini's own chat, all at index 0, without ids)."
_FLAT = "A call that is no entry of a list (Snowflake Cortex, text-generation-inference), unknown to the client."
_ERROR_OBJECT = "FastChat and vLLM say an error by `object`, Groq inside x_groq; the clients look at `error` alone."
_OBJECT = (
    "openai-python lib/streaming/chat/_completions.py takes one `object` alone; compatible servers send others or none."
)
_IN_CHOICE = "OpenRouter's error in a choice is an error in band; the clients look at the event's own `error` alone."
_AT_ITS_END = (
    "A call that is told once it is over (output_item.done alone) is one; the client's events begin with its item."
)
_BY_THE_WAY = "The record: what was told before the finish is partial; the client takes the last response's."
_BARE_ERROR = (
    "FastAPI's detail and MiniMax's base_resp are errors in band; the clients look at the `error` member alone."
)
_SENTENCE = "The record: of a sentence the known reason among its words counts; the client hands the sentence out."
_FIRST_REASON = (
    "The record: a choice's first finish reason stands, unless an error follows; the client takes the last one."
)
_FALLEN = (
    "The record: an input that was positive and is 0 later is a placeholder; the client takes the last object whole."
)
_SUM = "The record: without a total it is the sum of input and output; the client hands out what was sent."
_COPILOT = "GitHub Copilot's reasoning_text; the client's reader knows reasoning and reasoning_content."
_AFTER_DONE = "The record: usage behind [DONE] is usage; the clients stop reading at [DONE]."
_CLOSING = "The record: what only a closing event brings is output; the client's deltas have none of it."
_PIECES = (
    "The record: pieces of a name are one name, the same name again is the same; the client adds all, or takes one."
)
_NO_CALL = (
    "The record: an entry without name, id and arguments is no call, and a name never told is null; the client makes a "
    "call of every entry, with an empty name."
)
_LAST_USAGE = "The record: per field the last present value wins; the client takes the last object whole."

ROWS: tuple[Row, ...] = (
    Row(EVERY_CHAT, "openai-chat", "client-left-after-terminal", "ended", _BROKEN_BEHIND),
    Row(RESPONSES, "openai-responses", "client-left-after-terminal reset-after-terminal", "ended", _BROKEN_BEHIND),
    Row((ANTHROPIC,), "anthropic-messages", "client-left-after-terminal reset-after-terminal", "ended", _BROKEN_BEHIND),
    Row((GEMINI,), "gemini", "reset-after-finish", "ended", _BROKEN_BEHIND),
    Row((COHERE,), "cohere-v2", "client-left-after-message-end", "ended", _BROKEN_BEHIND),
    Row(CHATS, "openai-chat", "unterminated-finish", "finish", _UNTERMINATED),
    Row(CHATS, "openai-chat", "unterminated-token", "text", _UNTERMINATED),
    Row(CHATS, "openai-chat", "error-unterminated", "ended", _UNTERMINATED),
    Row(RESPONSES, "openai-responses", "unterminated-completed", "finish usage", _UNTERMINATED),
    Row((COHERE,), "cohere-v2", "unterminated-message-end", "finish usage", _UNTERMINATED),
    Row(
        EVERY_CHAT,
        "openai-chat",
        "error-abort error-finish-reason error-insufficient-system-resource n2-one-error sglang-abort-graceful",
        "ended",
        _ERROR_REASON,
    ),
    Row((COMPLETIONS,), "openai-completions", "error-finish-reason", "ended", _ERROR_REASON),
    Row(
        (GEMINI,),
        "gemini",
        "finish-language finish-no-image malformed-function-call unexpected-tool-call",
        "ended",
        _ERROR_REASON,
    ),
    Row(EVERY_CHAT, "openai-chat", "error-bare-json error-field error-field-unterminated", "ended", _NOT_DATA),
    Row(EVERY_CHAT, "openai-chat", "error-in-choice", "ended", _IN_CHOICE),
    Row(CHATS, "openai-chat", "two-ids-one-index-in-turn", "calls arguments", _KEYS),
    Row((RESPONSES_CREATE,), "openai-responses", "two-calls-one-index", "calls arguments", _KEYS),
    Row((RESPONSES_CREATE,), "openai-responses", "call-done-in-a-leg", "calls", _AT_ITS_END),
    Row(RESPONSES, "openai-responses", "calls-only-when-done", "calls", _AT_ITS_END),
    Row((ANTHROPIC,), "anthropic-messages", "two-calls-one-index", "arguments", _KEYS),
    Row(EVERY_CHAT, "openai-chat", "usage-empty-behind-finish", "input output total", _LAST_USAGE),
    Row((RESPONSES_CREATE,), "openai-responses", "usage-before-terminal-cut", "usage", _BY_THE_WAY),
    Row((ANTHROPIC,), "anthropic-messages", "message-start-with-content", "output", _PLACEHOLDER),
    Row((CHAT_STREAM,), "openai-chat", "usage-empty-object", "text", _OBJECT),
    Row((CHAT_CREATE,), "openai-chat", "usage-empty-object", "usage", "The record: an empty object tells nothing."),
    Row((COMPLETIONS,), "openai-completions", "tgi-delta", "text", "Its choices have a delta where the API has text."),
    Row((COMPLETIONS,), "openai-completions", "error-field", "ended", _NOT_DATA),
    Row(CHATS, "openai-chat", "error-event-empty local-error-before local-error-mid-stream", "ended", _ERROR_EVENT),
    Row((COMPLETIONS,), "openai-completions", "local-error", "ended", _ERROR_EVENT),
    Row(
        (MISTRAL,),
        "openai-chat",
        "error-after-finish error-with-choices",
        "ended",
        "An error member beside choices, unknown to it.",
    ),
    Row(
        (COHERE,),
        "cohere-v2",
        "error-after-finish error-gateway",
        "ended",
        "A gateway's error frame; the client skips its type.",
    ),
    Row(
        (ANTHROPIC,),
        "anthropic-messages",
        "error-unnamed",
        "ended output",
        "Without a name it drops the event; `type` tells.",
    ),
    Row(
        (ANTHROPIC,),
        "anthropic-messages",
        "client-left done-alone half-event half-event-name-only nanogpt-eof reset stop-without-reason truncated",
        "output",
        _PLACEHOLDER,
    ),
    Row((ANTHROPIC,), "anthropic-messages", "message-start-twice", "input", "The client skips a second message_start."),
    Row(
        (ANTHROPIC,), "anthropic-messages", "nimbus-resumed", "text finish usage", "A leg that continues has no start."
    ),
    Row(
        (ANTHROPIC,), "anthropic-messages", "nimbus-tools-fragment", "calls finish", "The page's fragment has no start."
    ),
    Row(
        (ANTHROPIC,),
        "anthropic-messages",
        "no-event-lines",
        "text finish usage",
        "It drops events without a name; `type` tells.",
    ),
    Row(CHATS, "openai-chat", "usage-bad-values", "input output total", _BAD_VALUES),
    Row((RESPONSES_CREATE,), "openai-responses", "usage-bad-values", "output total", _BAD_VALUES),
    Row((ANTHROPIC,), "anthropic-messages", "usage-bad-values", "input output", _BAD_VALUES),
    Row((INTERACTIONS,), "gemini-interactions", "usage-bad-values", "usage", _BAD_VALUES),
    Row((COHERE,), "cohere-v2", "usage-bad-values", "usage", _BAD_VALUES),
    Row(CHATS, "openai-chat", "xai-reasoning-on-top", "output", _ON_TOP),
    Row(EVERY_CHAT, "openai-chat", "azure-grok-cache-outside", "input", _CACHE),
    Row(CHATS, "openai-chat", "deepseek together-text-and-delta", "cached", _OTHER_NAMES),
    Row((RESPONSES_CREATE,), "openai-responses", "perplexity-usage", "cached", _OTHER_NAMES),
    Row(CHATS, "openai-chat", "zai-role-everywhere", "reasoning_tokens", _OTHER_NAMES),
    Row(
        EVERY_CHAT,
        "openai-chat",
        "groq-usage-in-x-groq",
        "usage",
        "Groq's usage lies in x_groq, unknown to the client.",
    ),
    Row(EVERY_CHAT, "openai-chat", "usage-split", "input", _LAST_USAGE),
    Row((CHAT_STREAM,), "openai-chat", "usage-before-finish-only", "usage", _LAST_USAGE),
    Row(EVERY_CHAT, "openai-chat", "many-choices", "text", _LIMITS),
    Row(EVERY_CHAT, "openai-chat", "many-tools", "calls", _LIMITS),
    Row(EVERY_CHAT, "openai-chat", "labels", "calls", _LABELS),
    Row(EVERY_CHAT, "openai-chat", "finish-free-text", "finish", _LABELS),
    Row(
        CHATS,
        "openai-chat",
        "confused-labels",
        "finish",
        "The record's reasons are text; the client hands out a number.",
    ),
    Row(CHATS, "openai-chat", "cerebras-two-ids-one-index", "calls arguments", _KEYS),
    Row(
        CHATS,
        "openai-chat",
        "gemini-calls-at-one-index-in-turn gemini-two-calls-at-one-index",
        "calls arguments",
        _NAMES,
    ),
    Row((CHAT_STREAM,), "openai-chat", "fuzz-numbers-as-texts", "calls", _ODD_TYPES),
    Row(RESPONSES, "openai-responses", "fuzz-item-type", "calls", _ODD_TYPES),
    Row(RESPONSES, "openai-responses", "fuzz-argument-delta-no-text", "arguments", _ODD_TYPES),
    Row(
        (CHAT_CREATE,),
        "openai-chat",
        "tool-custom",
        "calls",
        "A custom tool's call has no `function`, all it looks at.",
    ),
    Row(EVERY_CHAT, "openai-chat", "snowflake-tool-use", "calls", _FLAT),
    Row((MISTRAL,), "openai-chat", "tgi-tool-object", "calls", _FLAT),
    Row(CHATS, "openai-chat", "error-object-error", "ended", _ERROR_OBJECT),
    Row(EVERY_CHAT, "openai-chat", "error-x-groq", "ended", _ERROR_OBJECT),
    Row((GEMINI,), "gemini", "error-in-a-list", "ended", "An error in a list of one: the client looks for an object."),
    Row(EVERY_CHAT, "openai-chat", "usage-other-names", "input output", _OTHER_NAMES),
    Row((CHAT_STREAM,), "openai-chat", "usage-chunk-alone", "usage", _OBJECT),
    Row((CHAT_STREAM,), "openai-chat", "perplexity-done-without-delta", "usage finish", _OBJECT),
    Row(RESPONSES, "openai-responses", "completed-but-cancelled", "ended", _ERROR_REASON),
    Row((CHAT_CREATE,), "openai-chat", "mistral-tools-without-index tools-by-id", "calls arguments", _KEYS),
    Row(
        (CHAT_CREATE,), "openai-chat", "tool-arguments-object", "arguments", "An object is counted as its compact JSON."
    ),
    Row(
        (CHAT_CREATE, MISTRAL),
        "openai-chat",
        "odd-indices",
        "text",
        "The record: an index that is none is its position.",
    ),
    Row(
        (MISTRAL,), "openai-chat", "function-call-legacy", "calls", "OpenAI's deprecated function_call, unknown to it."
    ),
    Row(
        CHATS,
        "openai-chat",
        "sansa-reasoning-details",
        "reasoning",
        "Reasoning in reasoning_details alone (OpenRouter).",
    ),
    Row(
        (CHAT_CREATE,),
        "openai-chat",
        "three-reasonings",
        "reasoning",
        "Reasoning in reasoning_details alone (OpenRouter).",
    ),
    Row(
        (CHAT_STREAM,),
        "openai-chat",
        "mistral-list-content",
        "text reasoning",
        "Mistral's lists of parts are replaced, not added.",
    ),
    Row((CHAT_STREAM,), "openai-chat", "moonshot-no-object", "text finish", _OBJECT),
    Row((CHAT_STREAM,), "openai-chat", "local-tools-as-sent local-tools-corrected", "calls finish", _OBJECT),
    Row((CHAT_STREAM,), "openai-chat", "nanogpt-reasoning", "text reasoning finish", _OBJECT),
    Row((CHAT_STREAM,), "openai-chat", "perplexity-crlf", "finish", _OBJECT),
    Row((CHAT_STREAM,), "openai-chat", "pretty-json", "text", _OBJECT),
    Row((CHAT_STREAM,), "openai-chat", "sansa-happy", "finish usage", _OBJECT),
    Row((CHAT_STREAM,), "openai-chat", "together-completion-chunk", "text finish usage", _OBJECT),
    Row(
        (GEMINI,),
        "gemini",
        "code-assist",
        "text finish usage",
        "Code Assist wraps each chunk in `response`; it looks outside.",
    ),
    Row(
        EVERY_CHAT,
        "openai-chat",
        "usage-after-done usage-after-done-empty-id usage-after-done-unterminated "
        "usage-after-done-with-empty-choice usage-after-done-without-finish usage-after-done-without-id",
        "usage",
        _AFTER_DONE,
    ),
    Row((CHAT_CREATE, MISTRAL), "openai-chat", "usage-after-done-replaces", "output total", _AFTER_DONE),
    Row((CHAT_STREAM,), "openai-chat", "usage-after-done-replaces", "usage", _AFTER_DONE),
    Row((COMPLETIONS,), "openai-completions", "usage-after-done", "usage", _AFTER_DONE),
    Row((ANTHROPIC,), "anthropic-messages", "error-detail", "ended output", _BARE_ERROR),
    Row(
        CHATS,
        "openai-chat",
        "error-detail error-detail-first error-detail-list error-detail-object minimax-error "
        "minimax-error-code-as-text",
        "ended",
        _BARE_ERROR,
    ),
    Row(EVERY_CHAT, "openai-chat", "minimax-error-with-choices", "ended", _BARE_ERROR),
    Row(RESPONSES, "openai-responses", "error-detail", "ended", _BARE_ERROR),
    Row((CHAT_CREATE,), "openai-chat", "perplexity-done-after-role perplexity-done-with-new-kind", "text", _CLOSING),
    Row((CHAT_CREATE, MISTRAL), "openai-chat", "perplexity-done-only", "text", _CLOSING),
    Row((RESPONSES_CREATE,), "openai-responses", "done-item-of-parts", "refusal text", _CLOSING),
    Row((RESPONSES_CREATE,), "openai-responses", "done-name-only", "calls", _CLOSING),
    Row(
        (RESPONSES_CREATE,),
        "openai-responses",
        "done-reasoning-item-only done-reasoning-part-only done-reasoning-summary-only",
        "reasoning",
        _CLOSING,
    ),
    Row((RESPONSES_CREATE,), "openai-responses", "done-refusal-only", "refusal", _CLOSING),
    Row(
        (RESPONSES_CREATE,),
        "openai-responses",
        "done-second-item done-text-only done-two-texts done-unplaced",
        "text",
        _CLOSING,
    ),
    Row(
        RESPONSES,
        "openai-responses",
        "done-arguments-in-item done-arguments-only done-code-only done-custom-input-only "
        "done-mcp-arguments-only done-patch-diff-only",
        "arguments",
        _CLOSING,
    ),
    Row(RESPONSES, "openai-responses", "done-call-without-item done-patch-and-shell-only", "calls", _CLOSING),
    Row(
        RESPONSES,
        "openai-responses",
        "done-item-only done-many-items done-part-only done-two-items done-two-parts",
        "text",
        _CLOSING,
    ),
    Row((RESPONSES_STREAM,), "openai-responses", "done-item-of-parts", "text", _CLOSING),
    Row(CHATS, "openai-chat", "reasoning-text", "reasoning", _COPILOT),
    Row((GEMINI,), "gemini", "finish-error-replaces", "ended", _ERROR_REASON),
    Row(
        EVERY_CHAT, "openai-chat", "finish-error-replaces finish-malformed finish-network-error", "ended", _ERROR_REASON
    ),
    Row((ANTHROPIC,), "anthropic-messages", "input-falls-to-zero-alone", "input", _FALLEN),
    Row((ANTHROPIC,), "anthropic-messages", "input-falls-to-zero", "cached input", _FALLEN),
    Row((GEMINI,), "gemini", "input-falls-to-zero", "input", _FALLEN),
    Row(CHATS, "openai-chat", "input-falls-to-zero", "cached input", _FALLEN),
    Row((CHAT_CREATE, MISTRAL), "openai-chat", "input-falls-to-zero-on-each-delta", "input total", _FALLEN),
    Row((CHAT_STREAM,), "openai-chat", "input-falls-to-zero-on-each-delta", "usage", _FALLEN),
    Row((MISTRAL,), "openai-chat", "input-falls-to-zero", "input", _FALLEN),
    Row((ANTHROPIC,), "anthropic-messages", "finish-first-stands", "finish", _FIRST_REASON),
    Row((GEMINI,), "gemini", "finish-first-stands", "finish", _FIRST_REASON),
    Row(EVERY_CHAT, "openai-chat", "finish-error-stands", "ended finish", _FIRST_REASON),
    Row(EVERY_CHAT, "openai-chat", "finish-first-stands finish-first-stands-of-each", "finish", _FIRST_REASON),
    Row((COMPLETIONS,), "openai-completions", "finish-first-stands", "finish", _FIRST_REASON),
    Row(
        (CHAT_CREATE,),
        "openai-chat",
        "tool-without-index-and-id tool-without-index-by-id tool-without-index-many-fragments "
        "tool-without-index-odd-ids",
        "arguments calls",
        _KEYS,
    ),
    Row(
        CHATS, "openai-chat", "tool-name-with-another-id tool-two-ids-one-index-in-one-chunk", "arguments calls", _KEYS
    ),
    Row((CHAT_CREATE, MISTRAL), "openai-chat", "tool-without-index-by-turns", "arguments calls", _KEYS),
    Row((CHAT_STREAM,), "openai-chat", "tool-id-repeated-at-one-index", "calls", _KEYS),
    Row((MISTRAL,), "openai-chat", "tool-id-repeated-at-one-index", "arguments calls", _KEYS),
    Row((CHAT_STREAM,), "openai-chat", "input-always-zero", "usage", _LAST_USAGE),
    Row(CHATS, "openai-chat", "tool-name-after-arguments tool-same-name-twice-at-one-index", "arguments calls", _NAMES),
    Row((ANTHROPIC,), "anthropic-messages", "tool-empty-block", "calls", _NO_CALL),
    Row((COHERE,), "cohere-v2", "tool-empty-call", "calls", _NO_CALL),
    Row((CHAT_CREATE,), "openai-chat", "tool-custom-empty", "calls", _NO_CALL),
    Row(CHATS, "openai-chat", "function-call-empty", "calls", _NO_CALL),
    Row(EVERY_CHAT, "openai-chat", "tool-empty-entry tool-only-an-id", "calls", _NO_CALL),
    Row((MISTRAL,), "openai-chat", "tool-empty-entry-between tool-empty-entry-first", "calls", _NO_CALL),
    Row(RESPONSES, "openai-responses", "done-empty-call", "text", _CLOSING),
    Row(
        (CHAT_STREAM,),
        "openai-chat",
        "perplexity-done-after-role perplexity-done-only perplexity-done-with-new-kind",
        "finish text usage",
        _OBJECT,
    ),
    Row((CHAT_STREAM,), "openai-chat", "perplexity-done-repeats-calls", "finish", _OBJECT),
    Row((CHAT_CREATE,), "openai-chat", "tool-name-in-pieces tool-name-in-pieces-of-two", "calls", _PIECES),
    Row(CHATS, "openai-chat", "tool-name-too-long", "calls", _PIECES),
    Row((CHAT_CREATE, MISTRAL), "openai-chat", "function-call-name-in-pieces", "calls", _PIECES),
    Row((CHAT_STREAM,), "openai-chat", "tool-name-repeated", "calls", _PIECES),
    Row((ANTHROPIC,), "anthropic-messages", "finish-in-a-sentence", "finish", _SENTENCE),
    Row((COHERE,), "cohere-v2", "finish-in-a-sentence", "ended finish", _SENTENCE),
    Row((GEMINI,), "gemini", "blocked-in-a-sentence finish-in-a-sentence", "finish", _SENTENCE),
    Row(EVERY_CHAT, "openai-chat", "finish-in-a-sentence-error", "ended finish", _SENTENCE),
    Row(EVERY_CHAT, "openai-chat", "finish-in-a-sentence finish-in-a-sentence-punctuation", "finish", _SENTENCE),
    Row((RESPONSES_CREATE,), "openai-responses", "incomplete-in-a-sentence", "finish", _SENTENCE),
    Row(EVERY_CHAT, "openai-chat", "reasoning-beyond-output", "total", _SUM),
    Row((MISTRAL,), "openai-chat", "reasoning-beyond-output-without-input", "input total", _SUM),
    Row(
        (INTERACTIONS,),
        "gemini-interactions",
        "legacy-events",
        "text reasoning finish usage",
        "Vertex's events before steps; this client knows their new names alone.",
    ),
)


def _disagreements() -> dict[tuple[str, str], Disagreement]:
    found: dict[tuple[str, str], Disagreement] = {}
    for row in ROWS:
        for pair in [(client, f"{row.dialect}/{name}") for client in row.clients for name in row.vectors.split()]:
            assert pair not in found, f"{pair} stands there twice"
            found[pair] = Disagreement(frozenset(row.fields.split()), row.fact)
    return found


# (client, vector) -> in what they differ, and why.
DISAGREES = _disagreements()
