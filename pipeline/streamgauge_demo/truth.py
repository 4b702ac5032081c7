"""What the simulator did, by its own clock: measurements are compared with it."""

from enum import StrEnum

import msgspec


class Ended(StrEnum):
    """How a stream of the simulator ended."""

    WHOLE = "whole"
    EARLY_FIN = "early_fin"
    RESET = "reset"
    CLIENT_LEFT = "client_left"


class Wrote(msgspec.Struct, array_like=True, frozen=True):
    """One write. `at_ns`: CLOCK_MONOTONIC just before it; all processes of the host share this clock."""

    at_ns: int
    wire_bytes: int
    token_events: int


class Told(msgspec.Struct):
    """One exchange. `request_id`: the `x-request-id` of its response; `model`: names the scenario.

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
        """When each token event was completely sent, in order."""
        return [write.at_ns for write in self.wrote for _ in range(write.token_events)]

    def first_token_s(self) -> float | None:
        """Time from the request's first byte to the first token event (seconds)."""
        first = next((write.at_ns for write in self.wrote if write.token_events), None)
        return None if first is None else (first - self.asked_ns) / 1e9
