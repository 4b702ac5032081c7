"""What all tests share."""

import pytest
from hypothesis import settings

from streamgauge.core.assembler import Assembler
from streamgauge.core.record import Record
from tests.streams import bundles_of, chat_segments

# No test is timed: machines are shared. What the environment chose beside that (in CI the same examples each time) stays.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")

pytest_plugins = ["tests.kafka_broker.fixtures"]


@pytest.fixture
def a_record() -> Record:
    """The record of one whole chat stream."""
    assembler = Assembler()
    [record] = [
        one for at, bundle in enumerate(bundles_of(chat_segments(1))) for one in assembler.apply(at, at, bundle)
    ]
    return record
