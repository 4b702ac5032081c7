"""Answers of /streams for tests of `top`, as processes give them."""

import json
from typing import Any

import msgspec

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.limits import Limits
from streamgauge.live.view import LiveView, Scope
from tests.live.shown import ended
from tests.live.streams import SECOND, Process, segment, token
from tests.streams import MS


def answer_of(process: Process, *, own: bool = False) -> dict[str, Any]:
    """What the process answers now."""
    answer: dict[str, Any] = json.loads(msgspec.json.encode(process.view.overview(own=own)))
    return answer


def named(name: str, *partitions: int) -> Process:
    """A process of this command; a worker has its partitions, and its streams in the first one."""
    process = Process()
    process.view = LiveView(name, Limits(), process.clock, process.clock.wall, prices=name != "tap")
    assemblers = {partition: Assembler(process.limits) for partition in partitions}
    if partitions or name != "worker":
        assemblers[min(partitions, default=0)] = process.assembler
    process.view.scope = lambda: Scope(assemblers, partitioned=name == "worker")
    return process


def finish(process: Process, *numbers: int) -> None:
    """Streams that completed, each with its first token after 0.1 s."""
    for number in numbers:
        process.take([segment(number, 0, [token(100 * MS), token(200 * MS)])], SECOND)
        process.take([ended(number, 2 * SECOND)], 2 * SECOND)


def begin(process: Process, *numbers: int) -> None:
    """Open streams."""
    for number in numbers:
        process.take([segment(number, 0, [token(100 * MS)])], SECOND)
