"""The result of an audit, as schemas/audit.v1.json describes it. The names are a contract: additions only.

`python -m streamgauge.audit.result` prints the schema.
"""

import json
from typing import Annotated, Literal

import msgspec

# What an invoice bills beside tokens.
Charge = Literal[
    "web_search", "code_interpreter", "training", "storage", "images", "tax", "credit", "minimum", "discount",
    "other_charge",
]  # fmt: skip
CHARGES: tuple[str, ...] = Charge.__args__  # type: ignore[attr-defined]
Cause = Literal[
    "late_across_midnight", "time_zone_shift", "missing_from_invoice", "duplicate_lines", "wrong_unit", "price_changed",
    "cache_counted_differently", "reasoning_counted_differently", "aborted_without_usage", "usage_not_reported",
    "retries_billed_twice", "tier", "other_key", "batch", "coverage",
    "web_search", "code_interpreter", "training", "storage", "images", "tax", "credit", "minimum", "discount",
    "other_charge",
]  # fmt: skip
# In the order in which results list them.
CAUSES: tuple[str, ...] = Cause.__args__  # type: ignore[attr-defined]

_USD = "Dollars, as a decimal string without exponent. null: unknown, since a price or the money of a side is missing"
Usd = Annotated[str, msgspec.Meta(pattern=r"^-?[0-9]+(\.[0-9]+)?$", description=_USD)]
Day = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", description="A day, as YYYY-MM-DD")]


class TokenCounts(msgspec.Struct):
    """Tokens in four kinds that exclude each other, and their sum. A count may be negative in a difference.

    A kind of input is null if the invoices do not count it apart: then `input_uncached` includes it.
    """

    input_uncached: Annotated[int, msgspec.Meta(description="Input that was neither read from nor written to a cache")]
    input_cached: Annotated[int | None, msgspec.Meta(description="Input that was read from a cache")]
    input_cache_write: Annotated[int | None, msgspec.Meta(description="Input that was written to a cache")]
    output: Annotated[int, msgspec.Meta(description="Output, including reasoning")]
    total: Annotated[int, msgspec.Meta(description="All of them together")]


class Amount(msgspec.Struct):
    """Tokens and money."""

    tokens: Annotated[TokenCounts | None, msgspec.Meta(description="null: the invoices have no tokens")]
    usd: Usd | None


def _no_amount() -> Amount:
    return Amount(None, None)


class Days(msgspec.Struct, rename={"from_": "from"}):
    """The period: whole days of a time zone, the last one excluded."""

    from_: Day
    to: Day
    timezone: Annotated[str, msgspec.Meta(description="The name of the time zone, such as UTC")]


class Tolerance(msgspec.Struct):
    """What may stay unexplained in an audit that agrees: for the sums of absolute amounts over all lines."""

    tokens: Annotated[int, msgspec.Meta(description="Tokens")]
    usd: Usd


class CauseTotal(msgspec.Struct):
    """A cause that occurs, over all lines."""

    cause: Cause
    tokens: Annotated[
        TokenCounts | None, msgspec.Meta(description="The sum of its explanations; null: no invoice has tokens")
    ]
    usd: Usd | None
    streams: Annotated[int, msgspec.Meta(description="How many streams its explanations name")]


class RateChange(msgspec.Struct):
    """A price that changed."""

    kind: Annotated[str, msgspec.Meta(description="The kind of token, or `total` if all prices changed by one factor")]
    old_usd_per_million: Annotated[Usd | None, msgspec.Meta(description="The price that our costs are made with")]
    new_usd_per_million: Annotated[Usd, msgspec.Meta(description="The price that is billed")]
    first_seen: Annotated[str, msgspec.Meta(description="The first day of the period with the new price")]


class LineExplanation(msgspec.Struct, omit_defaults=True):
    """A part of a line's difference, and its cause."""

    cause: Cause
    tokens: TokenCounts | None
    usd: Usd | None
    streams: Annotated[list[str], msgspec.Meta(description="The ids of the streams that it concerns, oldest first")]
    rates: Annotated[list[RateChange], msgspec.Meta(description="The prices, for price_changed")] = []
    labels: Annotated[
        list[str],
        msgspec.Meta(description="The names of these charges as the invoice writes them, for what is no tokens"),
    ] = []


class Alternatives(msgspec.Struct):
    """A part of a line's difference that several causes explain equally well. Which of them it is, is not decided."""

    one_of: Annotated[list[Cause], msgspec.Meta(description="The causes, each of which explains it")]
    tokens: TokenCounts | None
    usd: Usd | None
    streams: Annotated[list[str], msgspec.Meta(description="The ids of streams that one of the causes concerns")]


class Line(msgspec.Struct):
    """A cell: what we saw, what is billed, and why they differ.

    difference = theirs - ours = explanations + undecided + unexplained.
    """

    day: Annotated[Day | None, msgspec.Meta(description="The day; null if the invoices have rows of several days")]
    provider: Annotated[str, msgspec.Meta(description="The provider, in lower case")]
    model: Annotated[str | None, msgspec.Meta(description="The model; null for a charge that is no model's")]
    key: Annotated[str | None, msgspec.Meta(description="The tenant, or their key; null if keys are not compared")]
    tier: Annotated[str | None, msgspec.Meta(description="The service tier; null if tiers are not compared")]
    ours: Amount
    theirs: Amount
    difference: Amount
    explanations: list[LineExplanation]
    unexplained: Amount
    # Kept results of earlier versions have none of what follows.
    undecided: Annotated[Amount, msgspec.Meta(description="The sum of the alternatives")] = msgspec.field(
        default_factory=_no_amount
    )
    alternatives: list[Alternatives] = []


class Verdict(msgspec.Struct):
    """Whether one of the two, tokens or money, agrees."""

    verdict: Annotated[Literal["agrees", "differs", "not_compared"], msgspec.Meta(description="The verdict")]
    reason: Annotated[str | None, msgspec.Meta(description="One sentence: why it differs, or was not compared")]


class Verdicts(msgspec.Struct):
    """The verdicts on tokens and on money."""

    tokens: Verdict
    money: Verdict


def _no_verdicts() -> Verdicts:
    return Verdicts(Verdict("not_compared", None), Verdict("not_compared", None))


class ProviderTotal(msgspec.Struct):
    """The sums of the lines of a provider, or of all of them."""

    provider: Annotated[str | None, msgspec.Meta(description="null: all providers together")]
    billed: Amount
    ours: Amount
    difference: Amount
    explained: Annotated[Amount, msgspec.Meta(description="The sum of the explanations")]
    undecided: Amount
    unexplained: Amount
    in_dispute: Annotated[
        Amount,
        msgspec.Meta(description="Unexplained, undecided, and explained by a cause that a provider has to answer for"),
    ]
    # Kept results of earlier versions have none of what follows.
    billed_not_compared: Annotated[
        Amount, msgspec.Meta(description="The part of `billed` in lines where the other side is unknown")
    ] = msgspec.field(default_factory=_no_amount)
    ours_not_compared: Annotated[
        Amount, msgspec.Meta(description="The part of `ours` in lines where the other side is unknown")
    ] = msgspec.field(default_factory=_no_amount)


class InvoiceUsed(msgspec.Struct):
    """A file that the audit has read."""

    name: Annotated[str, msgspec.Meta(description="The file's name, without its folders")]
    sha256: Annotated[str, msgspec.Meta(description="The digest of its bytes")]
    format: Annotated[str, msgspec.Meta(description="The name of its format")]
    rows: Annotated[int, msgspec.Meta(description="Rows with content, also those outside of the period")]
    first_day: Annotated[Day | None, msgspec.Meta(description="The first day that it has a row or an empty bucket of")]
    last_day: Day | None


class Provenance(msgspec.Struct):
    """What the result was made of. The time of a kept run is beside it, not in it: equal inputs give equal bytes."""

    version: Annotated[str, msgspec.Meta(description="The version of Streamgauge")]
    price_list: Annotated[str | None, msgspec.Meta(description="The version of the list of prices that is installed")]
    ledger_sha256: Annotated[
        str, msgspec.Meta(description="The digest of the period's records, as the ledger holds them")
    ]
    invoices: list[InvoiceUsed]
    options: Annotated[dict[str, str], msgspec.Meta(description="The options that decide the result, by name")]
    files: Annotated[
        dict[str, str], msgspec.Meta(description="Digests of the other files, by option: map, scope, rates")
    ]


class FindingLine(msgspec.Struct):
    """What the records show by themselves, or what is not compared. The finding does not change whether the audit agrees."""

    finding: Annotated[str, msgspec.Meta(description="Its name")]
    provider: Annotated[str | None, msgspec.Meta(description="The provider that it concerns")]
    model: Annotated[str | None, msgspec.Meta(description="The model that it concerns")]
    count: Annotated[int, msgspec.Meta(description="How many streams it concerns")]
    streams: Annotated[list[str], msgspec.Meta(description="The ids of the first of them")]
    detail: Annotated[str, msgspec.Meta(description="One sentence for people")]


class Result(msgspec.Struct):
    """The result of an audit."""

    period: Days
    agrees: Annotated[
        bool,
        msgspec.Meta(
            description="Whether what is unexplained is within tolerance, no cause but late_across_midnight occurs, and all "
            "money that is billed is compared"
        ),
    ]
    tolerance: Tolerance
    coverage: Annotated[
        dict[str, str | None],
        msgspec.Meta(
            description="By provider, the share of the billed tokens of which the ledger has a record: a decimal, rounded"
            " down; null: unknown"
        ),
    ]
    causes: Annotated[list[CauseTotal], msgspec.Meta(description="Every cause that occurs")]
    lines: Annotated[list[Line], msgspec.Meta(description="Every cell, also those without a difference")]
    unexplained: Annotated[Amount, msgspec.Meta(description="The sum over all lines")]
    findings: list[FindingLine]
    # Kept results of earlier versions have none of what follows.
    undecided: Annotated[Amount, msgspec.Meta(description="The sum over all lines")] = msgspec.field(
        default_factory=_no_amount
    )
    verdicts: Verdicts = msgspec.field(default_factory=_no_verdicts)
    totals: Annotated[list[ProviderTotal], msgspec.Meta(description="All providers together, then each provider")] = []
    accepted: Annotated[
        list[str], msgspec.Meta(description="One sentence for each known cause that the operator has accepted")
    ] = []
    notes: Annotated[
        list[str],
        msgspec.Meta(description="One sentence each: what was left out, given twice, or not covered by a file"),
    ] = []
    provenance: Provenance | None = None
    uncovered_days: Annotated[
        dict[str, int],
        msgspec.Meta(
            description="By provider, how many days of the period are not compared, or in one of tokens and money alone,"
            " since no export covers them"
        ),
    ] = msgspec.field(default_factory=dict)


def not_compared(result: Result) -> list[Line]:
    """The lines with billed money that is not compared, since the cost of one of our streams is unknown."""
    return [line for line in result.lines if line.ours.usd is None and line.theirs.usd not in (None, "0")]


def encode(result: Result) -> bytes:
    """A result as UTF-8 JSON: equal results give equal bytes."""
    return msgspec.json.encode(result)


def json_schema() -> str:
    """The JSON Schema of a result, as schemas/audit.v1.json holds it."""
    (root,), parts = msgspec.json.schema_components([Result], ref_template="#/$defs/{name}")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "audit.v1.json", **root, "$defs": parts}
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(json_schema())
