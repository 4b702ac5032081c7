"""How much a test tries: all with STREAMGAUGE_ALL_EXAMPLES (make properties), a third in a whole run, less in a fast one.

A whole run draws other examples each time, so many runs try what one of them leaves out. In CI Hypothesis generates the same
ones each time, and `some` chooses the same cases on the same day.
"""

import os
import random
from collections.abc import Iterable
from datetime import date
from typing import TypeVar

# Set by test-fast, coverage and the runs on other interpreters.
FEW = bool(os.environ.get("STREAMGAUGE_FEW_EXAMPLES"))
_ALL = bool(os.environ.get("STREAMGAUGE_ALL_EXAMPLES"))
# One of how many cases or examples is tried.
ONE_OF = 1 if _ALL else 20 if FEW else 3
_LEAST = 5

Case = TypeVar("Case")
_RUN = date.today().isoformat() if os.environ.get("CI") else os.urandom(8).hex()


def examples(count: int) -> int:
    """How many examples Hypothesis generates for a test that draws `count` with all of them."""
    return count if ONE_OF == 1 else max(_LEAST, count // ONE_OF)


def some(cases: Iterable[Case], name: str = "") -> list[Case]:
    """A third of the cases, or fewer, but at least five, in their order; all of them with all examples. The choices for two
    names are independent.
    """
    known = list(cases)
    count = min(len(known), examples(len(known)))
    chosen = sorted(random.Random(f"{_RUN} {name}").sample(range(len(known)), count))
    return [known[place] for place in chosen]
