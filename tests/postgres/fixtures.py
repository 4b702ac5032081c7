"""PostgreSQL for tests: one server for each test process, started by the first test that needs it."""

import itertools
from collections.abc import Iterator

import pytest

from tests.postgres.server import PostgresServer

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running server. A test must not stop it."""
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """The URL of an empty database."""
    return postgres.fresh(f"test_{next(_NUMBERS)}")


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that the test may stop and start."""
    server = PostgresServer()
    yield server
    server.remove()
