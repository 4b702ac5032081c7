"""How many faults of each kind a schedule has."""

from dataclasses import dataclass, field

from tests.worker.simulation.taps import Network
from tests.worker.simulation.world import World


@dataclass(frozen=True)
class Faults:
    """What a schedule has of each kind of fault: parts of what may go wrong, or how often it happens in all."""

    network: Network = field(default_factory=Network)
    partitions: int = 1
    workers: int = 1
    checkpoint_s: float = 1.0
    kills: int = 0
    freezes: int = 0
    stops: int = 0
    outages: int = 0
    compactions: int = 0
    poison: int = 0
    holes: int = 0
    forgeries: int = 0
    trouble: float = 0.0
    losing: float = 0.0
    refusing: float = 0.0
    tap_deaths: int = 0
    cut: bool = False
    recreated: bool = False
    # Taps send so slowly, and the cleaner is so quick, that what is not written again would be cleaned away.
    slow: bool = False

    @property
    def traffic_s(self) -> float:
        """How long taps send."""
        return 80.0 if self.slow else 14.0


def drawn(world: World) -> Faults:
    """The faults of a schedule: each kind is there or not."""
    chance = world.chance

    def maybe(value: float) -> float:
        return chance.random() * value if chance.random() < 0.5 else 0.0

    def some(most: int) -> int:
        return chance.randint(1, most) if chance.random() < 0.5 else 0

    network = Network(maybe(0.5), maybe(0.4), maybe(0.1), maybe(0.15), maybe(0.3))
    special = chance.random()
    return Faults(
        network,
        chance.randint(1, 2),
        chance.randint(1, 3),
        chance.choice((0.6, 1.0, 3.0)),
        *(some(5), some(2), some(2), some(2), some(6), some(3), some(3), some(2)),
        *(maybe(0.05), maybe(0.3), maybe(0.5)),
        some(2),
        cut=special < 0.07,
        recreated=special > 0.96,
        slow=0.90 < special < 0.93,
    )
