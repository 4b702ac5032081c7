"""The cost of a response in US dollars, as the gateway or provider that sells it reports it.

    OpenRouter   usage.cost, with is_byok or cost_details, or in a response whose id begins with `gen-`
                 (openrouter.ai/docs, usage accounting)
    Vercel       the same members with market_cost (vercel.com/docs, AI Gateway)
    xAI          usage.cost_in_usd_ticks: 10**10 ticks are a dollar (docs.x.ai, api reference)
    Perplexity   usage.cost.total_cost (docs.perplexity.ai, chat completions and agent api)
    LiteLLM      usage.cost alone, or the header x-litellm-response-cost (https://github.com/BerriAI/litellm/pull/39069),
                 if the response's head is LiteLLM's

A number alone, without LiteLLM's head, does not count: neither its seller nor its currency is known.
"""

from collections.abc import Mapping

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.capture.segments import Head
from streamgauge.core.record import ReportedCost
from streamgauge.core.safe_values import decimal_text, safe_code, whole_number

LITELLM = "litellm"
_TICKS_DIGITS = 10
_OPENROUTER_ID = "gen-"

_DETAILS = (
    "upstream_inference_cost",
    "upstream_inference_prompt_cost",
    "upstream_inference_completions_cost",
    "upstream_inference_input_cost",
    "upstream_inference_output_cost",
)
_PERPLEXITY = (
    "input_tokens_cost",
    "output_tokens_cost",
    "reasoning_tokens_cost",
    "citation_tokens_cost",
    "search_queries_cost",
    "request_cost",
    "input_cost",
    "output_cost",
    "cache_creation_cost",
    "cache_read_cost",
    "tool_calls_cost",
    "total_cost",
)
# The members of a usage object that report the cost.
KEEP_COST: Mapping[str, Spec] = {
    "cost_in_usd_ticks": Kind.COUNT,
    "cost": (Kind.NUMBER, {**dict.fromkeys(_PERPLEXITY, Kind.NUMBER), "currency": Kind.CODE}),
    "market_cost": Kind.NUMBER,
    "is_byok": Kind.FLAG,
    "cost_details": dict.fromkeys(_DETAILS, Kind.NUMBER),
}


def reported_cost(raw: Mapping[str, object] | None, head: Head | None, response_id: str | None) -> ReportedCost | None:
    """The cost that a usage object reports, else the head's; None without a report of a known seller."""
    own = None if raw is None else _of_usage(raw, head, response_id)
    if own is not None or head is None or head.gateway != LITELLM:
        return own
    usd = decimal_text(head.cost)
    return None if usd is None else ReportedCost(usd, False, LITELLM)


def _of_usage(raw: Mapping[str, object], head: Head | None, response_id: str | None) -> ReportedCost | None:
    ticks, cost = whole_number(raw.get("cost_in_usd_ticks")), raw.get("cost")
    if ticks is not None:
        return ReportedCost(_dollars(ticks), False, "xai")
    if isinstance(cost, dict):
        usd, currency = decimal_text(cost.get("total_cost")), safe_code(cost.get("currency"))
        return None if usd is None or currency not in (None, "USD") else ReportedCost(usd, False, "perplexity")
    usd = decimal_text(cost)
    if usd is None:
        return None
    byok = raw.get("is_byok")
    known_byok = byok if isinstance(byok, bool) else None
    if "market_cost" in raw:
        return ReportedCost(usd, known_byok, "vercel")
    if known_byok is not None or "cost_details" in raw or (response_id or "").startswith(_OPENROUTER_ID):
        return ReportedCost(usd, known_byok, "openrouter")
    return ReportedCost(usd, False, LITELLM) if head is not None and head.gateway == LITELLM else None


def _dollars(ticks: int) -> str:
    whole, rest = divmod(ticks, 10**_TICKS_DIGITS)
    return f"{whole}.{rest:0{_TICKS_DIGITS}}".rstrip("0").removesuffix(".")
