"""What the simulator did, by its own clock: what a measurement of it is held against."""

from enum import StrEnum

import msgspec


class Ended(StrEnum):
    WHOLE = "whole"
    EARLY_FIN = "early_fin"
    RESET = "reset"
    CLIENT_LEFT = "client_left"


class Wrote(msgspec.Struct, array_like=True, frozen=True):
    """One write. `at_ns`: CLOCK_MONOTONIC just before it, one clock for all processes of the host."""

    at_ns: int
    wire_bytes: int
    token_events: int


class Told(msgspec.Struct):
    """One exchange. `request_id` is what its response says in `x-request-id`; `model` names the scenario.

    `asked_ns`: when the request's first byte was read; `wrote[0]` is the head.
    """

    request_id: str
    model: str
    path: str
    asked_ns: int
    wrote: list[Wrote] = []
    ended_ns: int | None = None
    ended: Ended | None = None

    def tokens_ns(self) -> list[int]:
        """When each token event was complete on the wire, in order."""
        return [write.at_ns for write in self.wrote for _ in range(write.token_events)]

    def first_token_s(self) -> float | None:
        """From the request's first byte to the first token event (seconds)."""
        first = next((write.at_ns for write in self.wrote if write.token_events), None)
        return None if first is None else (first - self.asked_ns) / 1e9
