"""Fresh ledgers of each kind."""

from collections.abc import Callable
from pathlib import Path

import pytest


def _sqlite(request: pytest.FixtureRequest) -> str:
    folder: Path = request.getfixturevalue("tmp_path")
    return f"sqlite:///{folder}/ledger.sqlite"


def _postgresql(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("postgres_url"))


# How the URL of a fresh ledger is made for each scheme.
PLACES: dict[str, Callable[[pytest.FixtureRequest], str]] = {"sqlite": _sqlite, "postgresql": _postgresql}

# The same as parameters of a fixture: tests on the server are slow, and one process has them.
_ON_A_SERVER = (pytest.mark.slow, pytest.mark.xdist_group("postgres"))
SCHEMES = ["sqlite", pytest.param("postgresql", marks=_ON_A_SERVER)]


def fresh_url(request: pytest.FixtureRequest, scheme: str) -> str:
    """The URL of an empty ledger."""
    return PLACES[scheme](request)
