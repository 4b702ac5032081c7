"""Simulated taps with a truth of their own: which streams exist, how far each came, which bundles never arrived.

A tap keeps the protocol (each segment in one bundle, bundles numbered in each slot, heartbeats, a farewell or a successor
that names the dead). The network keeps nothing: bundles come twice, late, in another order, or not at all.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.capture.segments import SLOTS, Bundle
from tests.worker.simulation.scripts import Script, scripts
from tests.worker.simulation.world import World

# How often a tap that has nothing to send says that it lives (seconds).
BEAT_S = 3.0


@dataclass(frozen=True)
class Network:
    """What may happen to a bundle: the part of bundles that it happens to. Delays are seconds."""

    doubled: float = 0.0
    reordered: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    again_late: float = 0.0  # of those that come twice: long after, when their tap counts as gone
    late_s: tuple[float, float] = (14.0, 40.0)


@dataclass(eq=False)
class Sent:
    """A bundle on its way. `arrivals`: (offset, log time in ms) of each time that it came into the log."""

    instance: bytes
    slot: int
    partition: int
    number: int
    value: bytes
    ends: bool
    farewell: bool
    sent_at: float
    arrivals: list[tuple[int, int]] = field(default_factory=list)


@dataclass(eq=False)
class Stream:
    """The truth about one stream: its script, and the bundle that each of its segments went out with."""

    id: bytes
    script: Script
    instance: bytes
    partition: int
    slot: int
    bundles: list[Sent] = field(default_factory=list)

    @property
    def is_ended(self) -> bool:
        return len(self.bundles) == len(self.script.segments)


# Lets a bundle come into the log after a delay (seconds).
Dispatch = Callable[[Sent, float], None]


class Tap:
    """One tap instance."""

    def __init__(self, world: World, network: Network, partitions: int, dispatch: Dispatch) -> None:
        chance = world.chance
        self._world = world
        self._network = network
        self._partitions = partitions
        self._dispatch = dispatch
        self.instance = chance.randbytes(16)
        self._slots = sorted({chance.randrange(SLOTS) for _ in range(chance.randint(1, 2))})
        self._numbers = dict.fromkeys(self._slots, 0)
        self._arrives_at = dict.fromkeys(self._slots, 0.0)
        self._beat_at = dict.fromkeys(self._slots, 0.0)
        # Its clock says anything, and goes at the right speed.
        self._clock_ns = chance.choice((0, 10**9, 365 * 86_400 * 10**9, 2**62))
        self.streams: list[Stream] = []
        self.sent: list[Sent] = []
        self.gone = False

    def step(self, begin: int) -> None:
        """Let a bundle go out in each slot that has something to say; `begin`: so many streams more."""
        chance = self._world.chance
        for _ in range(begin):
            slot = chance.choice(self._slots)
            script = chance.choice(scripts())
            self.streams.append(Stream(chance.randbytes(16), script, self.instance, slot % self._partitions, slot))
        for slot in self._slots:
            chosen = [stream for stream in self.streams if stream.slot == slot and not stream.is_ended]
            parts = [(one, chance.randint(0, 6)) for one in chosen]
            if any(count for _, count in parts) or self._world.now - self._beat_at[slot] > BEAT_S:
                self._send(slot, parts)

    def leave(self, dead: list[bytes], *, farewell: bool) -> None:
        """The last message in each slot; an instance that takes over names the dead there."""
        for slot in self._slots:
            self._send(slot, [], farewell=farewell, dead=dead)
        self.gone = farewell

    def succeed(self, dead: "Tap") -> None:
        """Be the next instance on the data directory of one that died, and say so where that one sent."""
        self._slots = sorted({*self._slots, *dead._slots})
        for slot in dead._slots:
            self._numbers.setdefault(slot, 0)
            self._beat_at.setdefault(slot, 0.0)
            # The old spool is shipped first: what this one says comes after it.
            self._arrives_at[slot] = max(self._arrives_at.get(slot, 0.0), dead._arrives_at[slot])
            self._send(slot, [], dead=[dead.instance])

    def _send(
        self, slot: int, parts: list[tuple[Stream, int]], *, farewell: bool = False, dead: list[bytes] | None = None
    ) -> None:
        segments = []
        number = self._numbers[slot]
        self._numbers[slot] += 1
        sent = Sent(
            self.instance, slot, slot % self._partitions, number, b"", farewell or bool(dead), farewell, self._world.now
        )
        for stream, count in parts:
            for _ in range(count):
                if not stream.is_ended:
                    segments.append(stream.script.segment(stream.id, len(stream.bundles)))
                    stream.bundles.append(sent)
        tap_ns = self._clock_ns + round(self._world.now * 1e9)
        sent.value = encode_bundle(
            Bundle(self.instance, slot, number, tap_ns, segments, farewell=farewell, dead=dead or [])
        )
        self.sent.append(sent)
        self._beat_at[slot] = self._world.now
        self._ship(slot, sent)

    def _ship(self, slot: int, sent: Sent) -> None:
        chance, network, now = self._world.chance, self._network, self._world.now
        fate = chance.random()
        if fate < network.lost:
            return
        at = max(self._arrives_at[slot], now + chance.random() * 0.3)
        if fate < network.lost + network.late:
            at = now + chance.uniform(*network.late_s)
        elif fate < network.lost + network.late + network.reordered:
            at = now + chance.uniform(0.5, 5.0)
        else:
            self._arrives_at[slot] = at
        self._dispatch(sent, at - now)
        for _ in range(2):
            if chance.random() < network.doubled:
                again = chance.uniform(*network.late_s) if chance.random() < network.again_late else chance.random() * 8
                self._dispatch(sent, at - now + again)
