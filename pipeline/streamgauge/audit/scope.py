"""What an operator knows of a bill beforehand (`--scope FILE`, TOML; `--accept CAUSE`): it is no news.

[[known]]
cause = "batch"                 # a cause of the closed list
provider = "openai"             # optional, as are model and key: without them it concerns all
usd = "120.00"                  # the most that it may amount to; or tokens = 500000; or both
until = 2026-12-31              # the last day for which it is known
reason = "nightly evaluation"   # for the report
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from streamgauge.audit.amounts import ZERO_USD, usd_text
from streamgauge.audit.cells import Cell, Explanation, Undecided
from streamgauge.audit.result import CAUSES
from streamgauge.audit.shown_amounts import counted, dollars
from streamgauge.core.toml_text import NotTomlError, parse_toml
from streamgauge.errors import UsageFault

_TEXTS = ("provider", "model", "key", "reason")
_NAMES = frozenset({"cause", "usd", "tokens", "until", *_TEXTS})


class Known(NamedTuple):
    """A known cause. provider, model, key: None for all. usd, tokens: limits of the absolute amounts, None for no limit.

    until: the last day (YYYY-MM-DD), None for no end.
    """

    cause: str
    provider: str | None = None
    model: str | None = None
    key: str | None = None
    usd: Decimal | None = None
    tokens: int | None = None
    until: str | None = None
    reason: str = ""

    def concerns(self, cell: Cell, last_day: str) -> bool:
        """Whether it may concern a cell. `last_day`: of the period, for cells of several days."""
        group = cell.group
        return (
            self.provider in (None, group.provider)
            and self.model in (None, group.model)
            and self.key in (None, group.key)
            and (self.until is None or (group.day or last_day) <= self.until)
        )


Part = Explanation | Undecided


@dataclass(frozen=True)
class Accepted:
    """The parts of differences that are known, by identity, and a sentence for each known cause that occurs."""

    parts: frozenset[int]
    sentences: tuple[str, ...]

    def has(self, part: Part) -> bool:
        """Whether a part is known."""
        return id(part) in self.parts


def accepted(cells: Iterable[Cell], scope: Sequence[Known], last_day: str) -> Accepted:
    """What of the differences of these cells is known. A known cause beyond its limit is not accepted at all.

    An undecided part is known if all of its causes are. An entry of a scope file that concerns none of the lines with its
    cause is said: its last day has passed, or it has another name than the lines.
    """
    everything = [(cell, part, _causes_of(part)) for cell in cells for part in cell.parts]
    known_causes: dict[int, set[str]] = {}
    sentences = []
    for known in scope:
        parts = [
            (cell, part)
            for cell, part, causes in everything
            if known.cause in causes and known.concerns(cell, last_day)
        ]
        if not parts:
            if known.until is not None and any(known.cause in causes for _, _, causes in everything):
                sentences.append(
                    f"{_subject(known)} is known until {known.until} by --scope: this concerns no line here."
                )
            continue
        tokens = sum(part.tokens.size for _, part in parts)
        amounts_of_money = [abs(part.usd) for _, part in parts if part.usd is not None]
        usd = sum(amounts_of_money, ZERO_USD)
        amounts = [
            *([counted(tokens, "token")] if tokens or not amounts_of_money else []),
            *([f"{dollars(usd_text(usd))} USD"] if amounts_of_money else []),
        ]
        sentence = f"{_subject(known)}: {', '.join(amounts)}"
        beyond = [
            *([counted(known.tokens, "token")] if known.tokens is not None and tokens > known.tokens else []),
            *([f"{usd_text(known.usd)} USD"] if known.usd is not None and usd > known.usd else []),
        ]
        if beyond:
            sentences.append(f"{sentence}, which is more than the known limit of {' and '.join(beyond)}.")
            continue
        source = "by --scope" if known.until else "by --accept"
        sentences.append(f"{sentence} are known {source}{f' ({known.reason})' if known.reason else ''}.")
        for _, part in parts:
            known_causes.setdefault(id(part), set()).add(known.cause)
    parts_known = frozenset(id(part) for _, part, causes in everything if causes <= known_causes.get(id(part), set()))
    return Accepted(parts_known, tuple(sentences))


def _causes_of(part: Part) -> frozenset[str]:
    return frozenset({part.cause} if isinstance(part, Explanation) else part.one_of)


def _subject(known: Known) -> str:
    where = " ".join(text for text in (known.provider, known.model, known.key) if text)
    return f"{known.cause} of {where}" if where else known.cause


def accept(causes: Iterable[str]) -> tuple[Known, ...]:
    """The scope that `--accept CAUSE` gives: these causes, whatever they amount to. Raises UsageFault."""
    for cause in causes:
        _check_cause(cause, "--accept")
    return tuple(Known(cause) for cause in causes)


def load_scope(path: Path) -> tuple[Known, ...]:
    """Reads a scope file. Raises UsageFault, with a sentence that names the entry and the key."""
    try:
        content = parse_toml(path.read_bytes(), Decimal)
    except OSError as error:
        raise UsageFault(f"--scope {path} cannot be read: {error.strerror}") from None
    except NotTomlError as error:
        raise UsageFault(f"--scope {path} is not TOML: {error}") from None
    entries = content.get("known", [])
    if content.keys() - {"known"} or not isinstance(entries, list):
        raise UsageFault(f"--scope {path}: it holds [[known]] alone")
    return tuple(_known(f"--scope {path}: known {number}", entry) for number, entry in enumerate(entries, 1))


def _known(where: str, entry: object) -> Known:
    if not isinstance(entry, dict):
        raise UsageFault(f"{where} is not a table: write [[known]]")
    if unknown := entry.keys() - _NAMES:
        raise UsageFault(f"{where}: {min(unknown)} is not known: use {', '.join(sorted(_NAMES))}")
    for name in _TEXTS:
        if not isinstance(entry.get(name, ""), str):
            raise UsageFault(f"{where}: {name} is not text")
    _check_cause(entry.get("cause"), f"{where}: cause")
    until = entry.get("until")
    if not isinstance(until, date) or isinstance(until, datetime):
        raise UsageFault(f"{where}: until is missing: give the last day, as in until = 2026-12-31")
    usd, tokens = _usd(where, entry), entry.get("tokens")
    if tokens is not None and (not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0):
        raise UsageFault(f"{where}: tokens is not a number of 0 or more")
    if usd is None and tokens is None:
        raise UsageFault(f'{where}: it has no limit: give usd = "120.00" or tokens = 500000')
    return Known(
        cause=entry["cause"],
        provider=None if entry.get("provider") is None else entry["provider"].lower(),
        model=entry.get("model"),
        key=entry.get("key"),
        usd=usd,
        tokens=tokens,
        until=until.isoformat(),
        reason=entry.get("reason", ""),
    )


def _usd(where: str, entry: Mapping[str, object]) -> Decimal | None:
    value = entry.get("usd")
    if value is None:
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        amount = Decimal(-1)
    if isinstance(value, bool) or not amount.is_finite() or amount < 0:
        raise UsageFault(f'{where}: usd is not an amount of dollars: write one such as "120.00"')
    return amount


def _check_cause(cause: object, where: str) -> None:
    if cause not in CAUSES:
        raise UsageFault(f"{where} {cause!r} is no cause: use {', '.join(CAUSES)}")
