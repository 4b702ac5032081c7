"""The reason why a response is not captured, by its request's path and its Content-Type.

A model's API has more than the endpoints of `core.dialects`: providers bill embeddings, images and audio as well, and some
stream in formats that are not read. Such a response is `format`, and not `not_llm`: a bill has money for it.
"""

import re
from collections.abc import Iterable

from streamgauge.spool.response_counters import NotCaptured

# Paths of models' APIs that have no record, by the end of the path. OpenAI's, and those who copy it: embeddings, images,
# audio, video, moderations, rerank, realtime. Cohere: /v2/embed. Gemini: :embedContent and others. Ollama: /api/embed.
# TGI: /generate. Anthropic: count_tokens.
_UNREAD = re.compile(
    r"(?:/(?:embeddings?|embed|rerank|moderations|realtime|videos|images/(?:generations|edits|variations)"
    r"|audio/(?:speech|transcriptions|translations)|generate|count_tokens|batches)/?"
    r"|:(?:embedContent|batchEmbedContents|countTokens|predict|serverStreamingPredict|predictLongRunning))\Z"
)
# Types of bodies that come piece by piece and are no server-sent events: Bedrock's event stream, lines of JSON (Ollama).
_STREAMS = frozenset(
    ("application/vnd.amazon.eventstream", "application/x-ndjson", "application/ndjson", "application/jsonl",
     "application/x-jsonlines", "application/json-seq", "application/stream+json")
)  # fmt: skip


def why_not_captured(target: str, content_types: Iterable[str]) -> NotCaptured:
    """`format` for a model's endpoint or stream that is not read, else `not_llm`. `target`: path and query."""
    if _UNREAD.search(target.partition("?")[0]):
        return NotCaptured.FORMAT
    types = (part.partition(";")[0].strip().lower() for value in content_types for part in value.split(","))
    return NotCaptured.FORMAT if any(media_type in _STREAMS for media_type in types) else NotCaptured.NOT_LLM
