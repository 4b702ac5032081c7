"""How hypothesis draws what is fuzzed, and for how long."""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tests.fuzz.mutations import KINDS, Step

# Where a place, a donor or a value is taken modulo what there is.
PLACES = st.integers(0, 2**16)


def fuzzed(examples: int) -> settings:
    """So many examples; in CI the same ones each time."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=bool(os.environ.get("CI")),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        phases=[Phase.explicit, Phase.generate, Phase.target, Phase.shrink],
    )


def steps(most: int = 4) -> st.SearchStrategy[list[Step]]:
    """A few steps that make a stream wrong; half of them put hostile values into its JSON."""
    kinds = st.sampled_from((*KINDS, *("replace", "add") * (len(KINDS) // 2)))
    return st.lists(st.builds(Step, kinds, PLACES, PLACES, PLACES), min_size=1, max_size=most)
