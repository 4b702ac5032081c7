"""How hypothesis draws what is fuzzed, and for how long."""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tests.fuzz.mutations import KINDS, Step

# Larger than the number of places, donors and values, of which these numbers are taken modulo.
PLACES = st.integers(0, 2**16)


def fuzzed(examples: int) -> settings:
    """Half as many examples, with the profile `many` nearly twice as many; in CI the same ones each time."""
    return settings(
        max_examples=examples * settings().max_examples // 60,
        deadline=None,
        derandomize=bool(os.environ.get("CI")),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        phases=[Phase.explicit, Phase.generate, Phase.target, Phase.shrink],
    )


def steps(most: int = 4) -> st.SearchStrategy[list[Step]]:
    """A few steps that damage a stream; half of them put hostile values into its JSON."""
    kinds = st.sampled_from((*KINDS, *("replace", "add") * (len(KINDS) // 2)))
    return st.lists(st.builds(Step, kinds, PLACES, PLACES, PLACES), min_size=1, max_size=most)
