"""How much a test tries: all with STREAMGAUGE_ALL_EXAMPLES (make properties), a third in a whole run, less in a fast one.

A whole run draws other examples each time (in CI the same ones), so many runs try what one of them leaves out.
"""

import os

# Set by test-fast, coverage and the runs on other interpreters.
FEW = bool(os.environ.get("STREAMGAUGE_FEW_EXAMPLES"))
_ALL = bool(os.environ.get("STREAMGAUGE_ALL_EXAMPLES"))
# One of how many cases or examples is tried.
ONE_OF = 1 if _ALL else 20 if FEW else 3
_LEAST = 5


def examples(count: int) -> int:
    """How many examples Hypothesis generates for a test that draws `count` with all of them."""
    return count if ONE_OF == 1 else max(_LEAST, count // ONE_OF)
