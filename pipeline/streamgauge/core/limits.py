"""The limits of an assembler. The settings `--abandon-after` and `--stall-seconds` take their defaults from here."""

from dataclasses import dataclass

# Attributes of one request (`--attribute`): each may become a label of metrics, and all of them stay in the state of the
# open stream.
MAX_ATTRIBUTES = 8


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of an assembler: of silence, stalls and open streams. Durations are seconds.

    `abandon_after`: after this much silence of a tap instance by the log's time, its streams are abandoned. `stall_seconds`:
    a gap between token events above this is a stall. `silent_seconds`: an open stream without a token event for longer than
    this counts as silent; no record depends on it. `max_open_streams`: of one partition, a 64th of it in each bucket (100
    MiB at 1 KiB each); the oldest stream of a full bucket is closed, with the integrity reason `state_limit`.
    """

    abandon_after: float = 3_600.0
    stall_seconds: float = 5.0
    silent_seconds: float = 30.0
    max_open_streams: int = 100_000
