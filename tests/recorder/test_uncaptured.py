"""Why a response is not captured: a model's endpoint or stream that is not read is `format`, everything else `not_llm`."""

import pytest

from streamgauge.recorder.uncaptured import why_not_captured
from streamgauge.spool.response_counters import NotCaptured


@pytest.mark.parametrize(
    ("target", "content_type", "reason"),
    [
        ("/v1/models", "application/json", NotCaptured.NOT_LLM),
        ("/embeddings/ui.css", "text/css", NotCaptured.NOT_LLM),
        ("/v1/embeddings?a=b", "application/json", NotCaptured.FORMAT),
        ("/openai/deployments/d/embeddings?api-version=1", "application/json", NotCaptured.FORMAT),
        ("/v1/images/generations", "application/json", NotCaptured.FORMAT),
        ("/v1beta/models/text-embedding:embedContent", "application/json", NotCaptured.FORMAT),
        ("/model/us.anthropic.claude%3A0/converse-stream", "application/vnd.amazon.eventstream", NotCaptured.FORMAT),
        ("/api/chat", "application/x-ndjson", NotCaptured.FORMAT),
        ("/anything", "Application/X-NDJSON; charset=utf-8", NotCaptured.FORMAT),
        ("/anything", "application/vnd.amazon.eventstream", NotCaptured.FORMAT),
    ],
)
def test_a_models_endpoint_or_stream_that_is_not_read_is_format(
    target: str, content_type: str, reason: NotCaptured
) -> None:
    assert why_not_captured(target, [content_type]) is reason
