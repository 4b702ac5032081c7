"""What all tests share."""

import pytest

from streamgauge.core.assembler import Assembler
from streamgauge.core.record import Record
from tests.streams import bundles_of, chat_segments

pytest_plugins = ["tests.kafka_broker.fixtures"]


@pytest.fixture
def a_record() -> Record:
    """The record of one whole chat stream."""
    assembler = Assembler()
    [record] = [
        one for at, bundle in enumerate(bundles_of(chat_segments(1))) for one in assembler.apply(at, at, bundle)
    ]
    return record
