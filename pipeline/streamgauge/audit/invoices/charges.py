"""Names what an invoice bills beside tokens, by the words of its label. What has no known word is `other_charge`."""

import re
from functools import lru_cache

# In this order: a tax on storage is a tax. Each word stands alone, also in the plural.
_WORDS = (
    ("tax", r"tax|taxes|vat|gst|sales tax|withholding"),
    ("credit", r"credits?|refunds?|promo|promotions?|promotional"),
    ("minimum", r"minimum|minimum (?:spend|fee|commitment)"),
    ("discount", r"discounts?|rebates?"),
    ("training", r"training|fine[- ]?tuning|trained"),
    ("web_search", r"(?:web|google|maps)[ -]?search(?:es)?|grounding|search queries"),
    ("code_interpreter", r"code[ -]?(?:interpreter|execution)|container sessions?"),
    ("storage", r"storage|vector stores?|gib(?:ibyte)?[- ]?hours?|gb[- ]?days?"),
    ("images", r"images?|image models|dall-e.*"),
)
_PATTERNS = tuple((charge, re.compile(rf"(?<![a-z0-9])(?:{words})(?![a-z0-9])")) for charge, words in _WORDS)
# Searches in files of the customer's own are no search in the web.
_FILE_SEARCH = re.compile(r"file[ -]?search")


@lru_cache(maxsize=4_096)
def charge_of(label: str) -> str:
    """The charge, a value of `result.CHARGES`, that an invoice writes as `label` ("web search tool calls", "VAT")."""
    words = _FILE_SEARCH.sub("", label.lower().replace("_", " "))
    return next((charge for charge, pattern in _PATTERNS if pattern.search(words)), "other_charge")
