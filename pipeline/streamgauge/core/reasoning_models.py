"""Models of which it is documented whether their providers stream the reasoning itself or a summary, by name.

A gateway passes the text of both on in the same member, so only the name tells. Names are of any provider or gateway.
"""

import re

# Models whose reasoning is never streamed: at most a summary of it. Each row has its source.
_SUMMARISED: tuple[re.Pattern[str], ...] = (
    # docs.aws.amazon.com/bedrock, claude-messages-thinking-differences: Claude 4 models return summarized thinking
    re.compile(r"claude(?!.*3[.-]7)"),
    re.compile(r"gemini"),  # ai.google.dev/gemini-api/docs/thinking: thought summaries
    # platform.openai.com/docs/guides/reasoning: reasoning tokens are not visible via the API
    re.compile(r"(?:^|[/.])(?:o[1-9]|gpt-[5-9])(?![a-z])"),
)
# Models whose reasoning is streamed as it is: the same page of Bedrock, Claude 3.7 Sonnet.
_STREAMED = re.compile(r"claude.*3[.-]7")


def streams_reasoning(model: str | None) -> bool | None:
    """Whether the provider of this model streams its reasoning itself; False: a summary; None: no document is known."""
    name = (model or "").lower()
    if _STREAMED.search(name):
        return True
    return False if any(pattern.search(name) for pattern in _SUMMARISED) else None
