"""Durations, counts and bars as short texts. An unknown value is a dash, not 0."""

from collections.abc import Sequence

UNKNOWN = "-"

_BARS = " ▁▂▃▄▅▆▇█"
# Seconds of ticks in one character.
TICK_S = 3


def seconds(value: float | None) -> str:
    """A duration (seconds), with the units and digits of the page."""
    if value is None:
        return UNKNOWN
    if value < 0.9995:
        return f"{1000 * value:.0f} ms" if value else "0 s"
    if value < 9.995:
        return f"{value:.2f} s"
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60} min"


def age(value: float | None) -> str:
    """A duration (seconds) in one unit, rounded down: how long ago something was."""
    if value is None:
        return UNKNOWN
    for unit_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if value >= unit_s:
            return f"{int(value // unit_s)} {unit}"
    return f"{int(value)} s"


def count(value: int | None) -> str:
    """A number with separators of thousands."""
    return UNKNOWN if value is None else f"{value:,}"


def number_of(value: int, name: str) -> str:
    """A number with its noun: `1 stream`, `2 streams`, `2 addresses`."""
    return f"{count(value)} {name}{'' if value == 1 else 'es' if name.endswith('s') else 's'}"


def usd(value: float) -> str:
    """An amount in US dollars, with more digits where it is small. One that is below the last digit is not shown as 0."""
    if 0 < value < 0.0001:
        return "<0.0001 USD"
    return f"{value:,.2f} USD" if value >= 1 or not value else f"{value:.4f} USD"


def bars(values: Sequence[int] | None, longest: int) -> str:
    """One character for each value. `longest`: the value of a full bar."""
    if values is None:
        return UNKNOWN
    return "".join([_BARS[-(-min(value, longest) * (len(_BARS) - 1) // longest)] for value in values])


def ticks(values: Sequence[int] | None, longest: int) -> str:
    """Token events of the last minute, one number a second, as bars of TICK_S seconds, the newest at the right."""
    return bars(None if values is None else parts(values), longest)


def parts(values: Sequence[int]) -> list[int]:
    """The sums of TICK_S values each."""
    return [sum(values[at : at + TICK_S]) for at in range(0, len(values), TICK_S)]
