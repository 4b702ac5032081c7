"""What is billed apart from the tokens, or in place of them: priced, or named as what a cost lacks."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from streamgauge.core.record import Usage
from streamgauge.ledger import Cost, LedgerRow
from streamgauge.ledger.cost import Unpriced, usd
from streamgauge.prices import Prices
from tests.ledger.rows import make_row
from tests.metrics.records import make_usage

CLAUDE: dict[str, Any] = {
    "host": "api.anthropic.com", "dialect": "anthropic-messages", "response_model": "claude-sonnet-4-5-20250929"
}  # fmt: skip
COHERE: dict[str, Any] = {
    "host": "api.cohere.com", "dialect": "cohere-v2", "response_model": "command-a-03-2025"
}  # fmt: skip


def usage(*parts: dict[str, object], given: int | None = 1_000, made: int | None = 100, **changes: Any) -> Usage:
    return msgspec.structs.replace(make_usage(given, made, **changes), parts=list(parts))


def found(row: LedgerRow) -> Cost | Unpriced:
    return Prices().cost_of(row)


def cost(*parts: dict[str, object], of: dict[str, Any] = CLAUDE, **changes: Any) -> Cost:
    known = found(make_row(1, **of, usage=usage(*parts, **changes)))
    assert isinstance(known, Cost)
    return known


def more(*parts: dict[str, object]) -> str:
    """What parts add to the cost of a record of Claude Sonnet 4.5 (USD): 3 in, 0.30 cached, 3.75 written, 15 out."""
    return usd(cost(*parts).total - cost().total)


def test_a_compaction_costs_its_tokens_at_the_models_price() -> None:
    """Its input does not include the cache."""
    tokens: dict[str, object] = {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500}
    assert more(tokens) == "0.5925"
    cached = {**tokens, "cache_read_input_tokens": 10_000, "cache_creation_input_tokens": 1_000}
    assert more(cached) == "0.59925"
    an_hour = {**cached, "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1_000}}
    assert more(an_hour) == "0.6015"
    assert cost(tokens).lacks == ()


def test_a_step_of_another_model_costs_that_models_price() -> None:
    """claude-opus-4-5: 5 USD in, 25 out."""
    advisor: dict[str, object] = {"type": "advisor_message", "model": "claude-opus-4-5", "input_tokens": 10**6}
    assert more({**advisor, "output_tokens": 10**6}) == "30"
    unknown = cost({**advisor, "model": "claude-unheard-of", "output_tokens": 1})
    assert (unknown.total, unknown.lacks) == (cost().total, ("advisor_message",))


def test_web_searches_cost_their_list_price_and_fetches_nothing() -> None:
    """10 USD for 1,000 searches (platform.claude.com/docs/en/about-claude/pricing)."""
    searches: dict[str, object] = {"type": "server_tool", "name": "web_search", "requests": 3}
    fetches: dict[str, object] = {"type": "server_tool", "name": "web_fetch", "requests": 9}
    assert more(searches, fetches) == "0.03"
    assert cost(searches, fetches).lacks == ()


@pytest.mark.parametrize(
    ("part", "lacking"),
    [
        ({"type": "server_tool", "name": "code_execution", "requests": 1}, "server_tool.code_execution"),
        ({"type": "server_tool", "name": None, "requests": 1}, "server_tool.unknown"),
        ({"type": "server_tool", "name": "web_search", "requests": 1, "search_queries": 4}, "server_tool.web_search"),
        (
            {"type": "server_tool", "name": "image_gen", "input_tokens": 5, "output_tokens": 900},
            "server_tool.image_gen",
        ),
        ({"type": "citations", "input_tokens": 7}, "citations"),
        ({"type": "audio", "seconds": 7}, "audio"),
        ({"type": "compaction", "input_tokens": "many", "output_tokens": 1}, "compaction"),
        ({"type": "compaction", "input_tokens": -1, "output_tokens": 1}, "compaction"),
        ({}, "unknown"),
    ],
)
def test_what_has_no_price_is_named(part: dict[str, object], lacking: str) -> None:
    known = cost(part)
    assert (known.total, known.lacks) == (cost().total, (lacking,))
    assert json.loads(known.as_json())["lacks"] == [lacking]
    assert Cost.of_json(json.loads(known.as_json())) == Cost(
        known.total, None, known.source, known.date, None, (lacking,)
    )


def test_a_search_without_a_price_in_the_list_is_named() -> None:
    of: dict[str, Any] = {"host": "api.groq.com", "response_model": "llama-3.1-8b-instant"}
    assert cost({"type": "server_tool", "name": "web_search", "requests": 1}, of=of).lacks == (
        "server_tool.web_search",
    )


def test_perplexitys_fees_are_named_since_their_price_is_not_reported() -> None:
    """The list has only the highest fee of a request (12 USD for 1,000), and two prices of a search."""
    sonar: dict[str, Any] = {"host": "api.perplexity.ai", "response_model": "sonar"}
    known = cost(of=sonar, given=10**6, made=10**6)
    assert (usd(known.total), known.lacks) == ("2", ("request_fee",))
    searches: dict[str, object] = {"type": "server_tool", "name": "web_search", "requests": 3}
    assert cost(searches, of=sonar).lacks == ("request_fee", "server_tool.web_search")
    agent: dict[str, Any] = {"host": "api.perplexity.ai", "response_model": "perplexity/sonar"}
    assert cost(searches, of=agent) == replace(cost(of=agent), lacks=("server_tool.web_search",))


def test_cohere_is_priced_by_its_billed_units() -> None:
    """command-a: 2.50 USD in, 10 out. The reported tokens include those of its own prompt."""
    units: dict[str, object] = {"type": "billed_units", "input_tokens": 3, "output_tokens": 2}
    known = cost(units, of=COHERE, given=203, made=5)
    assert (usd(known.input or 0), usd(known.output or 0), known.lacks) == ("0.0000075", "0.00002", ())
    assert cost(of=COHERE, given=203, made=5, raw={"billed_units": {"input_tokens": 3, "output_tokens": 2}}) == known
    searched = cost({**units, "search_units": 1}, of=COHERE, given=203, made=5)
    assert (searched.total, searched.lacks) == (known.total, ("billed_units.search_units",))


def test_parts_are_counted_once_where_a_cost_was_reported() -> None:
    reported = usage({"type": "server_tool", "name": "web_search", "requests": 3})
    reported = msgspec.structs.replace(reported, reported_cost={"usd": "1", "byok": None, "source": "xai"})
    row = LedgerRow.of_json(make_row(1, **CLAUDE, usage=reported).record.removesuffix(b',"cost":null}') + b"}")
    known = found(row)
    assert isinstance(known, Cost)
    assert (known.total, known.lacks) == (10**12, ())
