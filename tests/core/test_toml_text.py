"""TOML of operators: what cannot be read is one error."""

from decimal import Decimal

import pytest

from streamgauge.core.toml_text import NotTomlError, parse_toml

# What Python's reader refuses with different exceptions.
BAD = [b"[[budget", b"\xff", b"a = 1" + b"0" * 5_000, b"a = " + b"[" * 100_000, b"a = 2026-13-01"]


def test_tables_are_read() -> None:
    assert parse_toml(b"[a]\nb = 1.10\n", Decimal) == {"a": {"b": Decimal("1.10")}}


@pytest.mark.parametrize("text", [*BAD, b"a = 1e99999999999999999999"])
def test_what_cannot_be_read_is_one_error(text: bytes) -> None:
    with pytest.raises(NotTomlError):
        parse_toml(text, Decimal)
