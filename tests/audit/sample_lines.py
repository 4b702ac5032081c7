"""Lines and results for tests of what is shown: made by hand, so that each amount in them is known."""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from streamgauge.audit.amounts import EXACT, usd_text
from streamgauge.audit.result import (
    Alternatives,
    Amount,
    Days,
    FindingLine,
    InvoiceUsed,
    Line,
    LineExplanation,
    Provenance,
    RateChange,
    Result,
    TokenCounts,
    Tolerance,
    Verdict,
    Verdicts,
)
from streamgauge.audit.totals import totals_of


def counts(uncached: int = 0, cached: int | None = 0, written: int | None = 0, output: int = 0) -> TokenCounts:
    """Counts with their total."""
    return TokenCounts(uncached, cached, written, output, uncached + (cached or 0) + (written or 0) + output)


def amount(tokens: int | None, usd: str | None) -> Amount:
    """Uncached input and money."""
    return Amount(None if tokens is None else counts(tokens), usd)


def explained(
    cause: str, tokens: int | None, usd: str | None, *streams: str, labels: tuple[str, ...] = ()
) -> LineExplanation:
    """A part of a difference with a cause."""
    counted = None if tokens is None else counts(tokens)
    return LineExplanation(cause, counted, usd, list(streams), labels=list(labels))  # type: ignore[arg-type]


def undecided(one_of: tuple[str, ...], tokens: int | None, usd: str | None, *streams: str) -> Alternatives:
    """A part of a difference with several causes."""
    return Alternatives(list(one_of), None if tokens is None else counts(tokens), usd, list(streams))  # type: ignore[arg-type]


def line(
    *parts: LineExplanation | Alternatives,
    ours: Amount,
    rest: Amount,
    provider: str = "openai",
    day: str | None = "2026-11-03",
    model: str | None = "gpt-5",
    key: str | None = None,
    tier: str | None = None,
) -> Line:
    """A line whose difference is the sum of its parts and of the rest, and whose bill is ours with the difference.

    A rest without money, or without tokens: it is not compared.
    """
    explanations = [part for part in parts if isinstance(part, LineExplanation)]
    alternatives = [part for part in parts if isinstance(part, Alternatives)]
    difference = _sum(rest, *parts)
    open_parts = _sum(amount(None if rest.tokens is None else 0, None if rest.usd is None else "0"), *alternatives)
    return Line(
        day, provider, model, key, tier,
        ours=ours,
        theirs=_sum(ours, difference),
        difference=difference,
        explanations=explanations,
        unexplained=rest,
        undecided=open_parts,
        alternatives=alternatives,
    )  # fmt: skip


def _sum(first: Amount, *others: Amount | LineExplanation | Alternatives) -> Amount:
    """The tokens and the money that the first one has, with those of the others."""
    tokens, usd = first.tokens, first.usd
    for other in others:
        if tokens is not None and other.tokens is not None:
            tokens = counts(
                tokens.input_uncached + other.tokens.input_uncached,
                (tokens.input_cached or 0) + (other.tokens.input_cached or 0),
                (tokens.input_cache_write or 0) + (other.tokens.input_cache_write or 0),
                tokens.output + other.tokens.output,
            )
        if usd is not None and other.usd is not None:
            usd = usd_text(EXACT.add(Decimal(usd), Decimal(other.usd)))
    return Amount(tokens, usd)


_MONEY = st.decimals(min_value=-10_000, max_value=10_000, places=9, allow_nan=False).map(usd_text)
_COUNT = st.integers(-(10**12), 10**12)
_CAUSES = ("duplicate_lines", "coverage", "price_changed", "tier", "late_across_midnight", "tax")


@st.composite
def some_lines(draw: st.DrawFn) -> list[Line]:
    """Lines of a few providers; some without tokens or without money."""
    made = []
    for _ in range(draw(st.integers(0, 6))):
        has_tokens, has_usd = draw(st.booleans()), draw(st.booleans())

        def one(has_tokens: bool = has_tokens, has_usd: bool = has_usd) -> tuple[int | None, str | None]:
            return (draw(_COUNT) if has_tokens else None), (draw(_MONEY) if has_usd else None)

        parts: list[LineExplanation | Alternatives] = []
        parts += [explained(draw(st.sampled_from(_CAUSES)), *one()) for _ in range(draw(st.integers(0, 2)))]
        parts += [undecided(("coverage", "aborted_without_usage"), *one()) for _ in range(draw(st.integers(0, 2)))]
        made.append(line(*parts, ours=amount(*one()), rest=amount(*one()), provider=draw(st.sampled_from("abc"))))
    return made


def result_of(lines: list[Line], **members: Any) -> Result:
    """A result for November with these lines and their totals; `members`: further members of the result."""
    return Result(
        **{
            "period": Days("2026-11-01", "2026-12-01", "UTC"),
            "agrees": False,
            "tolerance": Tolerance(0, "0.01"),
            "coverage": {},
            "causes": [],
            "lines": lines,
            "unexplained": totals_of(lines)[0].unexplained if lines else Amount(None, None),
            "findings": [],
            "totals": totals_of(lines),
            **members,
        }
    )


def company_result() -> Result:
    """A month of a company: several providers, each kind of part, long names, and amounts of any size."""
    lines: list[Line] = []
    for number in range(1, 31):
        day = f"2026-11-{number:02}"
        ours = Amount(counts(81_250_000 + number, 22_000_000, 3_100_000, 9_400_000), f"{412.5 + number}")
        parts: list[LineExplanation | Alternatives] = []
        rest = Amount(counts(), "0")
        if number in (3, 17):
            parts.append(explained("aborted_without_usage", 4_210, "0.0421", *ids(number, 70)))
        if number >= 15:
            changed = explained("price_changed", 0, "82.123456789012")
            changed.rates = [RateChange("output", "10", "12", "2026-11-15T12:00:00Z")]
            parts.append(changed)
        if number == 21:
            parts.append(undecided(("aborted_without_usage", "coverage"), 51_000, "0.51", *ids(200, 12)))
            rest = Amount(counts(-7, 0, 0, 3), "-0.000123")
        lines.append(
            line(*parts, ours=ours, rest=rest, day=day, model="gpt-5-2025-08-07", key="river", tier="priority")
        )
        moved = explained("cache_counted_differently", 0, "1.2")
        moved.tokens = counts(12_000, -12_000)
        twice = explained("duplicate_lines", 14_600_000, "31.75")
        found = [twice] if number == 9 else [moved] if number == 10 else []
        lines.append(
            line(*found, ours=Amount(counts(9_000_000, 1, 2, 800_000), "51.3"), rest=Amount(counts(), "0"), day=day,
                 provider="anthropic", model="claude-sonnet-4-5-20250929")
        )  # fmt: skip
        lines.append(
            line(
                ours=amount(90_000, None),
                rest=amount(0, None),
                day=day,
                provider="azure-openai-west-europe",
                model="gpt-4o",
            )
        )
    for cause, usd, label in (
        ("web_search", "12.5", "Web search tool calls"),
        ("tax", "2304.19", "VAT 19 %"),
        ("credit", "-100", "Promotional credit"),
    ):
        charge = explained(cause, None, usd, labels=(label,))
        lines.append(line(charge, ours=amount(None, "0"), rest=amount(None, "0"), model=None, day=None))
    files = [
        InvoiceUsed(name, f"{number:02x}" * 32, form, 930, "2026-11-01", "2026-11-30")
        for number, (name, form) in enumerate(
            (
                ("completions_usage_2026-11-01_2026-11-30.json", "OpenAI usage (API)"),
                ("costs.json", "OpenAI costs (API)"),
            )
        )
    ]
    return result_of(
        lines,
        coverage={"anthropic": "0.9981", "openai": "0.9999"},
        verdicts=Verdicts(
            Verdict("differs", "51,000 tokens are undecided and 10 are unexplained"),
            Verdict("differs", "the price of gpt-5-2025-08-07 is not the one of our costs"),
        ),
        accepted=["aborted_without_usage of openai is accepted up to 5 USD until 2026-12-31"],
        notes=["costs.json has no bucket for 2026-11-30"],
        findings=[
            FindingLine("money_not_compared", "azure-openai-west-europe", "gpt-4o", 30, [], "these streams have no cost"),
            FindingLine("usage_missing", "openai", "gpt-5-2025-08-07", 140, [], "the streams ended without usage"),
        ],
        provenance=Provenance(
            "0.1.0", "genai-prices 0.0.47", "ab" * 32, files, {"timezone": "UTC", "tolerance_usd": "0.01"}, {"map": "cd" * 32}
        ),
    )  # fmt: skip


def ids(first: int, count: int) -> list[str]:
    """Ids as streams have them."""
    return [f"0193{first:04x}-{number:04x}-7abc-8def-0123456789ab" for number in range(count)]
