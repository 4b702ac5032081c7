"""How much a test tries: with STREAMGAUGE_FEW_EXAMPLES (test-fast, coverage, other interpreters) a part of it."""

import os

FEW = bool(os.environ.get("STREAMGAUGE_FEW_EXAMPLES"))
# Generated examples of a test then: at least so many, and of those that draw hundreds a twentieth.
_LEAST, _SHARE = 5, 20


def examples(count: int) -> int:
    """How many examples Hypothesis generates for a test that draws `count` in a whole run."""
    return max(_LEAST, count // _SHARE) if FEW else count
