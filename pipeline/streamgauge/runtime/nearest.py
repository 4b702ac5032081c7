"""Proposes the right name for a wrong one, at the end of a sentence."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(value: object, names: Iterable[str], likeness: float = 0.6) -> str:
    """The end of a sentence that proposes the name most like `value`; empty if none is. It does not quote `value`.

    `likeness`: 1 for equal names, 0 for names without a common letter; case does not count.
    """
    by_lower = {name.lower(): name for name in names}
    alike = get_close_matches(str(value).strip().lower(), by_lower, 1, likeness)
    return f"; did you mean {by_lower[alike[0]]}?" if alike else ""
