"""Shared by all simulations."""

import logging
from collections.abc import Iterator

import pytest

from tests.worker.simulation.scripts import scripts


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Workers complain of all that goes wrong; only the verdict counts here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="session", autouse=True)
def what_streams_must_come_to() -> None:
    """Worked out while all rules hold."""
    for script in scripts():
        for sent in range(1, len(script.segments) + 1):
            script.record(bytes(16), bytes(16), sent)
