"""A simulated consumer group: static members, generations, rebalances, offsets that are committed, sessions that expire."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.worker.simulation.broker import Broker
from tests.worker.simulation.world import Process

# How often the coordinator looks whose session has expired, and how long members may take to join again (seconds).
_LOOK_S = 1.0
_REBALANCE_S = 60.0


class Fenced(Exception):
    """Another process has joined under the same identity."""


@dataclass(eq=False)
class Membership:
    """One incarnation of a member. `joining`: it waits for the next generation."""

    identity: str
    process: Process
    seen_at: float
    joining: "asyncio.Future[None] | None" = None
    generation: int = -1
    numbers: list[int] = field(default_factory=list)

    @property
    def is_joining(self) -> bool:
        return self.joining is not None and self.process.alive


@dataclass
class Group:
    """The coordinator. `on_commit` is called with each offset that it accepts."""

    broker: Broker
    session_s: float
    on_commit: Callable[[str, int, int], None]
    generation: int = 0
    rebalancing: bool = False
    rebalances: int = 0
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    members: dict[str, Membership] = field(default_factory=dict)
    assigned: dict[str, list[int]] = field(default_factory=dict)
    _since: float = 0.0

    def __post_init__(self) -> None:
        self.broker.world.after(_LOOK_S, self._look)

    async def join(self, identity: str, process: Process) -> Membership:
        """Become a member, or go on being one. A static member that is known takes its partitions back at once."""
        while not self.broker.up:  # noqa: ASYNC110 - a client asks again and again
            await asyncio.sleep(_LOOK_S)
        known = self.members.get(identity)
        if known is not None and known.is_joining and known.process is not process:
            known.joining.set_exception(Fenced())  # type: ignore[union-attr]
        joined = process.loop.create_future()
        member = Membership(identity, process, self.broker.world.now, joined)
        self.members[identity] = member
        if known is not None and not self.rebalancing and identity in self.assigned and known.process is not process:
            self._give(member)
        elif not self.rebalancing:
            self._begin()
        self._complete_if_all_joined()
        await joined
        return member

    def heartbeat(self, member: Membership) -> bool:
        """Whether all is well; False if the member must join again. Raises Fenced."""
        current = self.members.get(member.identity)
        if current is not None and current is not member:
            raise Fenced
        if current is None:
            return False
        member.seen_at = self.broker.world.now
        return not self.rebalancing and member.generation == self.generation

    def leave(self, member: Membership | None) -> None:
        """Say goodbye, so that others take over at once."""
        if member is not None and self.broker.up and self.members.get(member.identity) is member:
            del self.members[member.identity]
            if self.members and not self.rebalancing:
                self._begin()

    def commit(self, member: Membership, topic: str, offsets: Mapping[int, int]) -> bool:
        known = self.members.get(member.identity) is member and member.generation == self.generation
        if not known or not self.broker.up:
            return False
        for partition, offset in offsets.items():
            self.on_commit(topic, partition, offset)
            self.committed[topic, partition] = offset
        return True

    def _give(self, member: Membership) -> None:
        member.generation = self.generation
        member.numbers = self.assigned[member.identity]
        member.seen_at = self.broker.world.now
        joined, member.joining = member.joining, None
        if joined is not None and member.process.alive:
            joined.set_result(None)

    def _begin(self) -> None:
        self.rebalancing = True
        self.rebalances += 1
        self._since = self.broker.world.now

    def _look(self) -> None:
        now = self.broker.world.now
        self.broker.world.after(_LOOK_S, self._look)
        if not self.broker.up:
            for member in self.members.values():
                member.seen_at = now
            return
        gone = [name for name, one in self.members.items() if not one.is_joining and now - one.seen_at > self.session_s]
        if self.rebalancing and now - self._since > _REBALANCE_S:
            gone += [name for name, one in self.members.items() if not one.is_joining and name not in gone]
        for name in gone:
            del self.members[name]
        if gone and not self.rebalancing:
            self._begin()
        self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        members = self.members
        if not self.rebalancing or not members or any(not one.is_joining for one in members.values()):
            return
        self.rebalancing = False
        self.generation += 1
        names = sorted(members)
        self.assigned = {
            name: list(range(place, self.broker.partitions, len(names))) for place, name in enumerate(names)
        }
        for member in members.values():
            self._give(member)


class Signal:
    """A signal of Faust's: callbacks are connected to it."""

    def __init__(self) -> None:
        self.connected: list[Callable[..., Any]] = []

    def connect(self, callback: Callable[..., Any]) -> None:
        self.connected.append(callback)
