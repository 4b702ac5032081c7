"""Reads TOML that an operator wrote. Whatever Python's reader raises for a text is one error."""

import tomllib
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any


class NotTomlError(ValueError):
    """The bytes are not TOML that can be read. The text says where, if that is known."""


def parse_toml(text: bytes, parse_float: Callable[[str], float | Decimal] = float) -> dict[str, Any]:
    """The tables of a TOML text in UTF-8. Raises NotTomlError: also for a number of thousands of digits, or deep nesting."""
    try:
        return tomllib.loads(text.decode(), parse_float=parse_float)
    except RecursionError:
        raise NotTomlError("it is nested too deeply") from None
    except (ValueError, InvalidOperation) as error:  # ValueError: not TOML, not UTF-8, or a number that is too long
        raise NotTomlError(str(error)) from None
