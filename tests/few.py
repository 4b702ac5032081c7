"""How much a test tries: a part of it with STREAMGAUGE_FEW_EXAMPLES (test-fast, coverage, other interpreters), and in CI.

With CI set, Hypothesis generates the same examples in each run, so more of them find nothing new there.
"""

import os

FEW = bool(os.environ.get("STREAMGAUGE_FEW_EXAMPLES"))
_IN_CI = bool(os.environ.get("CI"))
# The part of the examples of a whole run, and the least number.
_SHARE = 20 if FEW else 3 if _IN_CI else 1
_LEAST = 5


def examples(count: int) -> int:
    """How many examples Hypothesis generates for a test that draws `count` in a whole run."""
    return max(_LEAST, count // _SHARE) if _SHARE > 1 else count
