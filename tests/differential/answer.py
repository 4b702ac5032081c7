"""What a reader of a stream makes of it, in words that ours and every official client's reading can be put into."""

from collections.abc import Iterator
from typing import Literal, Protocol

import msgspec

from tests.vectors.load import Vector

# How a reader saw the stream end. `whole`: it read to the end and complained of nothing; `error`: it was told of an error,
# in band or by the status; `broken`: the transport gave way; `unreadable`: it could not read what came.
Ended = Literal["whole", "error", "broken", "unreadable"]

# What a client's code raises where a stream is not as it expects: decoding and validation (ValueErrors), a member that is
# not there, a type that is another, its own assertions.
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RuntimeError, AssertionError)

# Two values of one field: ours and theirs.
Difference = tuple[str, object, object]


class Call(msgspec.Struct):
    """A tool call. `arguments`: text to the letter, or the value for a reader that hands out values alone."""

    name: str | None = None
    arguments: object = ""


class Said(msgspec.Struct):
    """What one choice said."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: list[Call] = []
    finish: str | None = None


class Used(msgspec.Struct):
    """Tokens; input with what came from the cache, output with reasoning. None: not told."""

    input: int | None = None
    output: int | None = None
    total: int | None = None
    cached: int | None = None
    reasoning_tokens: int | None = None


class Answer(msgspec.Struct):
    """The whole reading. `usage` None: none was told. `why`: what a client raised that could not read on."""

    choices: dict[int, Said] = {}
    usage: Used | None = None
    ended: Ended = "whole"
    why: str = ""

    def choice(self, index: int) -> Said:
        return self.choices.setdefault(index, Said())

    def end(self, ended: Ended, error: Exception) -> None:
        """The client raised."""
        self.ended = ended
        self.why = f"{type(error).__name__}: {error}" if ended == "unreadable" else ""

    @property
    def stopped_early(self) -> bool:
        """Whether the reader gave up where it stood: what it read is a beginning."""
        return self.ended in ("error", "unreadable")


class Oracle(Protocol):
    """An official client. `blind`: the fields of Said, Used and Answer that it has no place for."""

    @property
    def name(self) -> str: ...
    @property
    def dialects(self) -> tuple[str, ...]: ...
    @property
    def blind(self) -> frozenset[str]: ...

    def read(self, url: str, vector: Vector) -> Answer:
        """What the client makes of the stream that is served below `url`; never raises for what the stream holds."""


def differences(ours: Answer, theirs: Answer, blind: frozenset[str] = frozenset()) -> list[Difference]:
    """The fields in which two readings differ. What theirs is blind to is left out.

    Of a reader that stopped early, what it read must be the beginning of what we read.
    """
    found = [*_how(ours, theirs), *_usage(ours, theirs)]
    for index in sorted({*ours.choices, *theirs.choices}, key=str):  # a client may hand out any type
        mine, other = ours.choices.get(index, Said()), theirs.choices.get(index, Said())
        found += _said(mine, other, part=theirs.stopped_early)
    return [difference for difference in found if difference[0] not in blind]


def _how(ours: Answer, theirs: Answer) -> Iterator[Difference]:
    if theirs.ended not in (ours.ended, "unreadable"):  # what a client refuses stands in a table of its own
        yield "ended", ours.ended, theirs.ended


def _usage(ours: Answer, theirs: Answer) -> Iterator[Difference]:
    mine, other = ours.usage, theirs.usage
    if theirs.stopped_early and mine is not None:
        return  # what it read may have been repeated later
    if mine is None or other is None:
        if mine is not other:
            yield "usage", mine, other
        return
    for name in Used.__struct_fields__:
        if getattr(mine, name) != getattr(other, name):
            yield name, getattr(mine, name), getattr(other, name)


def _said(mine: Said, other: Said, *, part: bool) -> Iterator[Difference]:
    for name in ("text", "reasoning", "refusal"):
        whole, read = getattr(mine, name), getattr(other, name)
        if not (whole.startswith(read) if part else whole == read):
            yield name, whole, read
    if mine.finish != other.finish and not (part and other.finish is None):
        yield "finish", mine.finish, other.finish
    names, read = [call.name for call in mine.calls], [call.name for call in other.calls]
    if (names[: len(read)] if part else names) != read:
        yield "calls", names, read
    for one, two in zip(mine.calls, other.calls, strict=False):
        if not _same(one.arguments, two.arguments, part=part):
            yield "arguments", one.arguments, two.arguments


def _same(mine: object, other: object, *, part: bool) -> bool:
    """Whether arguments are the same: to the letter where both are text, else as values."""
    if isinstance(mine, str) and isinstance(other, str):
        return mine.startswith(other) if part else mine == other
    try:
        return bool(msgspec.json.decode(str(mine) or "{}") == other)
    except msgspec.DecodeError:
        return False
