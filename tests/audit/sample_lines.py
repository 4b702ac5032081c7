"""Lines and results for tests of what is shown: made by hand, so that each amount in them is known."""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from streamgauge.audit.amounts import EXACT, usd_text
from streamgauge.audit.result import Alternatives, Amount, Days, Line, LineExplanation, Result, TokenCounts, Tolerance
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
