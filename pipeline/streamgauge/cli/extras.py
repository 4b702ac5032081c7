"""What a command needs beside a plain installation: the extra of its own name. `pyproject.toml` lists their packages."""

import sys
from collections.abc import Mapping
from importlib.util import find_spec

from streamgauge.errors import MissingExtra

_LEDGER = ("sqlalchemy", "genai_prices")
# Modules that a command imports and a plain installation lacks, by the command's first word, which is the extra's name.
# Other extras belong to a format, and the code that reads or writes it raises MissingExtra: `parquet`, `postgres`,
# `recount`, and `replay` for cassettes. So does `audit fetch`, which alone needs httpx of the extra `audit`.
MODULES: Mapping[str, tuple[str, ...]] = {
    "up": _LEDGER,
    "worker": (*_LEDGER, "faust", "mode"),
    "top": ("rich",),
    "demo": (*_LEDGER, "anthropic", "httpx", "openai", "rich"),
    "ledger": _LEDGER,
    "audit": _LEDGER,
    "rules": ("yaml",),
}


def check_extra(command: str) -> None:
    """Raises MissingExtra if a module is missing that a command (its words) imports."""
    extra = command.partition(" ")[0]
    if not has_extra(extra):
        raise MissingExtra("this command", extra)


def check_envoy() -> None:
    """Raises MissingExtra if the library is missing by which the tap for Envoy serves it."""
    if not _is_installed("grpc"):
        raise MissingExtra("this command", "envoy")


def has_extra(extra: str) -> bool:
    """Whether every module is installed that the command of this first word imports."""
    return all(map(_is_installed, MODULES.get(extra, ())))


def _is_installed(module: str) -> bool:
    if module in sys.modules:  # where Faust's has no spec
        return sys.modules[module] is not None
    return find_spec(module) is not None
