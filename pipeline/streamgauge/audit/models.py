"""Names of models: an alias, its dated snapshot and its display name are one model.

Only names that one side has and the other has not are joined. So two snapshots stay apart where both sides name both.
"""

import re
from collections.abc import Iterable

# What follows an alias in the name of a snapshot: -2024-08-06, -20250514, @20250514, -0613, -latest, and -001 (Gemini).
_DATED = re.compile(r"[-@](\d{4}-\d\d-\d\d|\d{8}|\d{6}|\d{4}|00\d|latest)$")
# OpenRouter's variants (openrouter.ai/docs/guides/routing/model-variants). Other suffixes tell models apart: llama3:8b.
_VARIANT = re.compile(r":(free|batch|beta|extended|thinking|nitro|floor|online|exacto)$")
_MARKS = re.compile(r"[^a-z0-9]+")


def family_of(model: str) -> str:
    """The same text for every name of one model: its alias, its snapshots and its display name."""
    name = _VARIANT.sub("", model.strip().lower().rpartition("/")[2])  # without the folders before it
    while _DATED.search(name):
        name = _DATED.sub("", name)
    parts = [part for part in _MARKS.split(name) if part]
    if "claude" not in parts:
        return "-".join(parts)
    # Anthropic wrote the version first (claude-3-5-sonnet), and later the size (claude-sonnet-4-5, "Claude Sonnet 4.5").
    numbers = [part for part in parts if part.isdigit()]
    while len(numbers) > 1 and numbers[-1] == "0":  # claude-opus-4-0 is the alias of claude-opus-4
        numbers.pop()
    return "-".join([*sorted(part for part in parts if not part.isdigit()), *numbers])


def joined_names(ours: Iterable[str], theirs: Iterable[str]) -> dict[str, str]:
    """The name under which each model is compared. Names of a family are joined unless both sides have the same ones.

    The joined name is the shortest one of theirs, the first by alphabet: the name that stands on the bill.
    """
    families: dict[str, tuple[set[str], set[str]]] = {}
    for side, names in enumerate((ours, theirs)):
        for name in names:
            families.setdefault(family_of(name), (set(), set()))[side].add(name)
    joined: dict[str, str] = {}
    for our_names, their_names in families.values():
        both = our_names | their_names
        if our_names == their_names or not (our_names and their_names) or len(both) == 1:
            joined |= {name: name for name in both}
        else:
            shown = min(their_names, key=lambda name: (len(name), name))
            joined |= dict.fromkeys(both, shown)
    return joined
