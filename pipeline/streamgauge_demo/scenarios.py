"""All scenarios, by the model name that selects them."""

from collections.abc import Mapping

from streamgauge_demo.providers import gateway, local, nanogpt, nimbus, sansa
from streamgauge_demo.scenario import Scenario

# To add a scenario: an entry in its provider's table. To add a provider: a module, and a line here.
SCENARIOS: tuple[Scenario, ...] = (
    *nanogpt.SCENARIOS,
    *nimbus.SCENARIOS,
    *sansa.SCENARIOS,
    *gateway.SCENARIOS,
    *local.SCENARIOS,
)

BY_MODEL: Mapping[str, Scenario] = {scenario.model: scenario for scenario in SCENARIOS}

# The tap's upstream names for the simulator: one for each provider, in the order of the table.
UPSTREAMS: tuple[str, ...] = tuple(dict.fromkeys(scenario.upstream for scenario in SCENARIOS))
