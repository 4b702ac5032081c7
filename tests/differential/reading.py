"""What a reader understood of a stream, in one form for the core and for every official client."""

from collections.abc import Iterator
from typing import Literal, Protocol

import msgspec

# How a reader saw the stream end. `whole`: it read to the end without a complaint; `error`: an error in band or by the
# status; `broken`: the transport failed; `unreadable`: it raised an exception because of what the stream holds.
Ended = Literal["whole", "error", "broken", "unreadable"]

ErrorTypes = tuple[type[Exception], ...]

# What the code of clients raises for a stream that it does not expect: decoding and validation (ValueErrors), a missing
# member, a wrong type, its own assertions.
UNREADABLE: ErrorTypes = (ValueError, TypeError, LookupError, AttributeError, RuntimeError, AssertionError)

# A field, the core's value and the client's value.
Difference = tuple[str, object, object]


class Call(msgspec.Struct):
    """A tool call. `arguments`: the exact text, or the value if a client returns values only."""

    name: str | None = None
    arguments: object = ""


class Output(msgspec.Struct):
    """The output of one choice."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: list[Call] = []
    finish: str | None = None


class TokenUsage(msgspec.Struct):
    """Tokens. Input includes what came from the cache, output includes reasoning. None: not reported."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    reasoning_tokens: int | None = None


class Reading(msgspec.Struct):
    """What a reader understood. `usage` None: none was reported. `raised`: the exception of an unreadable stream."""

    choices: dict[int, Output] = {}
    usage: TokenUsage | None = None
    ended: Ended = "whole"
    raised: str = ""

    def choice(self, index: int) -> Output:
        return self.choices.setdefault(index, Output())

    @property
    def stopped_early(self) -> bool:
        """Whether the reader stopped before the end, so that it read only a beginning."""
        return self.ended in ("error", "unreadable")


class Oracle(Protocol):
    """An official client. `unsupported`: the fields of Output, TokenUsage and Reading that it does not have."""

    @property
    def name(self) -> str: ...
    @property
    def dialect(self) -> str: ...
    @property
    def unsupported(self) -> frozenset[str]: ...
    @property
    def broken(self) -> ErrorTypes:
        """What it raises if the transport fails."""

    @property
    def reported(self) -> ErrorTypes:
        """What it raises for an error that the provider reports."""

    @property
    def unreadable(self) -> ErrorTypes:
        """What it raises, besides UNREADABLE, for a stream that it cannot read."""

    def read(self, url: str, reading: Reading) -> None:
        """Adds to `reading` what the client understands of the stream at `url`. Raises what the client raises."""


def read_with(oracle: Oracle, url: str) -> Reading:
    """What the client understands of the stream at `url`, up to an exception that it raises because of the stream."""
    reading, unreadable = Reading(), oracle.unreadable + UNREADABLE
    try:
        oracle.read(url, reading)
    except oracle.broken:
        reading.ended = "broken"
    except unreadable as error:
        reading.ended, reading.raised = "unreadable", f"{type(error).__name__}: {error}"
    except oracle.reported:
        reading.ended = "error"
    return reading


def differences(ours: Reading, theirs: Reading, unsupported: frozenset[str] = frozenset()) -> list[Difference]:
    """The fields in which two readings differ, apart from those that the client does not support.

    If the client stopped early, its reading must be the beginning of ours.
    """
    found = [*_differences_of_end(ours, theirs), *_differences_of_usage(ours, theirs)]
    for index in sorted({*ours.choices, *theirs.choices}, key=str):  # a client may return any type
        mine, other = ours.choices.get(index, Output()), theirs.choices.get(index, Output())
        found += _differences_of_output(mine, other, beginning=theirs.stopped_early)
    return [difference for difference in found if difference[0] not in unsupported]


def _differences_of_end(ours: Reading, theirs: Reading) -> Iterator[Difference]:
    if theirs.ended not in (ours.ended, "unreadable"):  # REFUSALS lists what a client cannot read
        yield "ended", ours.ended, theirs.ended


def _differences_of_usage(ours: Reading, theirs: Reading) -> Iterator[Difference]:
    mine, other = ours.usage, theirs.usage
    if theirs.stopped_early and mine is not None:
        return  # a later event may have replaced the usage that the client read
    if mine is None or other is None:
        if mine is not other:
            yield "usage", mine, other
        return
    for name in TokenUsage.__struct_fields__:
        if getattr(mine, name) != getattr(other, name):
            yield name, getattr(mine, name), getattr(other, name)


def _differences_of_output(mine: Output, other: Output, *, beginning: bool) -> Iterator[Difference]:
    for name in ("text", "reasoning", "refusal"):
        if not _same_text(getattr(mine, name), getattr(other, name), beginning=beginning):
            yield name, getattr(mine, name), getattr(other, name)
    if mine.finish != other.finish and not (beginning and other.finish is None):
        yield "finish", mine.finish, other.finish
    my_names, other_names = [call.name for call in mine.calls], [call.name for call in other.calls]
    if (my_names[: len(other_names)] if beginning else my_names) != other_names:
        yield "calls", my_names, other_names
    for my_call, other_call in zip(mine.calls, other.calls, strict=False):
        if not _same_arguments(my_call.arguments, other_call.arguments, beginning=beginning):
            yield "arguments", my_call.arguments, other_call.arguments


def _same_text(mine: str, other: str, *, beginning: bool) -> bool:
    return mine.startswith(other) if beginning else mine == other


def _same_arguments(mine: object, other: object, *, beginning: bool) -> bool:
    """Compares two texts exactly, otherwise the values."""
    if isinstance(mine, str) and isinstance(other, str):
        return _same_text(mine, other, beginning=beginning)
    try:
        return bool(msgspec.json.decode(str(mine) or "{}") == other)
    except msgspec.DecodeError:
        return False
