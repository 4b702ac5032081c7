"""How much a test tries: all with STREAMGAUGE_ALL_EXAMPLES (make properties), a third in a whole run, less in a fast one.

A whole run draws other examples each time (in CI the same ones), so many runs try what one of them leaves out.
"""

import os
import random
from collections.abc import Iterable
from typing import TypeVar

# Set by test-fast, coverage and the runs on other interpreters.
FEW = bool(os.environ.get("STREAMGAUGE_FEW_EXAMPLES"))
_ALL = bool(os.environ.get("STREAMGAUGE_ALL_EXAMPLES"))
# One of how many cases or examples is tried.
ONE_OF = 1 if _ALL else 20 if FEW else 3
_LEAST = 5

Case = TypeVar("Case")
# Which cases are tried: in CI always the same ones.
_CHOICE = random.Random(0 if os.environ.get("CI") else None)


def examples(count: int) -> int:
    """How many examples Hypothesis generates for a test that draws `count` with all of them."""
    return count if ONE_OF == 1 else max(_LEAST, count // ONE_OF)


def some(cases: Iterable[Case]) -> list[Case]:
    """Of cases that a whole run does not try all: a third or less of them, at least five, in their order."""
    known = list(cases)
    chosen = sorted(_CHOICE.sample(range(len(known)), min(len(known), examples(len(known)))))
    return [known[place] for place in chosen]
