"""What finance reads of each cause: its plain name, what it means, and what to do. One sentence each."""

from collections.abc import Sequence
from typing import NamedTuple


class CauseText(NamedTuple):
    """A cause for a reader who does not know the program."""

    name: str
    meaning: str
    action: str


_NOTHING = "Nothing: it belongs to the bill."
# The action for what several causes explain equally well, and for what none explains.
UNDECIDED_ACTION = (
    "Claim nothing yet, since each of these causes explains the amount as well as the others: an export with a row for each"
    " request, or with a count of requests, usually decides it."
)
UNEXPLAINED_ACTION = "Ask the provider for the requests of these days and models: no cause explains these amounts."
TOLERATED_ACTION = "Nothing: all of it together is within the tolerance, which rounding usually makes."
# How the next audit learns that a cause is no news.
ACCEPT = (
    "A cause that you know and accept is no news with `--accept CAUSE`, or up to an amount and a day with `--scope FILE`:"
    " what is left decides whether the bill agrees."
)
_CLAIM = "Claim it from the provider, with the streams that `streamgauge audit claim` writes."

# By the identifier of the cause, in the order of `result.CAUSES`.
CAUSE_TEXTS = {
    "late_across_midnight": CauseText(
        "Billed on the next day",
        "The request began before midnight, and is billed on the next day.",
        "Nothing: both sides count it once.",
    ),
    "time_zone_shift": CauseText(
        "Days of another time zone",
        "The invoice counts its days in another time zone than this report.",
        "Nothing to claim: make the report again with `--timezone` and the zone of the invoice.",
    ),
    "missing_from_invoice": CauseText(
        "Not billed",
        "The provider reported this usage in its streams, and does not bill it.",
        "Nothing to claim: it may come with a later invoice, so keep the amount in reserve.",
    ),
    "duplicate_lines": CauseText(
        "Rows billed more than once",
        "The invoice has the same row more than once, and agrees without the further ones.",
        "Claim it from the provider: name day, model and amount, and add our streams by `streamgauge audit claim`.",
    ),
    "wrong_unit": CauseText(
        "Cents and dollars exchanged",
        "The tokens agree, and the amounts differ by a factor of exactly 100.",
        "Export the file again; if the invoice itself is wrong, claim the difference from the provider.",
    ),
    "price_changed": CauseText(
        "Another price",
        "The tokens agree, and the price is not the one that our costs are made with.",
        "Compare the price with your contract: claim the difference, or give the ledger the new price by `streamgauge ledger"
        " price --prices FILE` and audit again.",
    ),
    "cache_counted_differently": CauseText(
        "Cached input counted differently",
        "Input that was read from or written to a cache is counted as another kind of input.",
        _CLAIM,
    ),
    "reasoning_counted_differently": CauseText(
        "Reasoning counted differently",
        "Output differs by exactly the reasoning tokens: they are counted twice, or not at all.",
        _CLAIM,
    ),
    "aborted_without_usage": CauseText(
        "Aborted streams",
        "The stream ended before the provider reported its usage, and what was made until then is billed.",
        "Usually nothing: providers bill what they made before a client left.",
    ),
    "usage_not_reported": CauseText(
        "Streams without reported usage",
        "The stream was completed, its usage was not reported to us, and it is billed.",
        "Nothing to claim: let the clients ask for usage (`stream_options.include_usage`), so that it can be compared.",
    ),
    "retries_billed_twice": CauseText(
        "Retries billed twice",
        "An attempt that failed before its first token is billed, and so is the attempt that succeeded.",
        _CLAIM,
    ),
    "tier": CauseText(
        "Another service tier",
        "The usage is billed in another service tier than the one that the response named.",
        _CLAIM,
    ),
    "other_key": CauseText(
        "Another key or project",
        "The usage is billed to another key, project or workspace than the one that our map names.",
        "Nothing to claim: correct the map of keys, or move the cost to the other cost centre.",
    ),
    "batch": CauseText(
        "Batch usage",
        "Usage of the batch API, which runs without streams, so that no tap sees it.",
        _NOTHING,
    ),
    "coverage": CauseText(
        "Billed without a record",
        "The provider bills requests of which the ledger has no record: they went around the taps, or a tap counted their"
        " responses as not captured.",
        "Look at streamgauge_tap_responses_not_captured_total for what taps did not capture. Find the clients that use this"
        " key, and send them through a tap. Ask the provider only if neither explains it.",
    ),
    "web_search": CauseText("Web search", "Calls of the provider's web search, billed beside tokens.", _NOTHING),
    "code_interpreter": CauseText(
        "Code interpreter", "Sessions of the provider's code interpreter, billed beside tokens.", _NOTHING
    ),
    "training": CauseText("Training", "Training of a model, billed beside tokens.", _NOTHING),
    "storage": CauseText("Storage", "Storage at the provider, billed beside tokens.", _NOTHING),
    "images": CauseText("Images", "Images, billed apart from tokens.", _NOTHING),
    "tax": CauseText("Tax", "Tax on the bill.", _NOTHING),
    "credit": CauseText("Credit", "A credit or a refund, which lowers the bill.", _NOTHING),
    "minimum": CauseText(
        "Minimum",
        "What is billed up to an agreed minimum.",
        "Nothing if your contract has this minimum.",
    ),
    "discount": CauseText("Discount", "A discount that the bill subtracts in a line of its own.", _NOTHING),
    "other_charge": CauseText(
        "Other charge",
        "A charge that is no usage of tokens, and that this report has no name for.",
        "Compare it with your contract; its name on the bill is beside the amount.",
    ),
}


def said_of(causes: Sequence[str], is_tolerated: bool = False) -> tuple[list[str], str]:
    """The meanings of causes, and what to do about an amount that one of them explains; none explains it if there are none.

    `is_tolerated`: whether what no cause explains is within the tolerance.
    """
    texts = [CAUSE_TEXTS[cause] for cause in causes]
    if len(texts) == 1:
        return [texts[0].meaning], texts[0].action
    if texts:
        return [f"{text.name}: {text.meaning}" for text in texts], UNDECIDED_ACTION
    return [], TOLERATED_ACTION if is_tolerated else UNEXPLAINED_ACTION


def name_of(cause: str) -> str:
    """The plain name of a cause."""
    return CAUSE_TEXTS[cause].name
