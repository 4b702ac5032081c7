"""Fixtures that the tests of the in-process taps share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.taps import asgi
from streamgauge.taps.inprocess import background_senders
from tests.recorder.fake_client import FakeClient
from tests.taps.asking import WAYS, Kind
from tests.taps.inprocess.rig import recorder_at
from tests.taps.proxy.rig import RawRecorder


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0].__name__}-{way[1]}")
def way(request: pytest.FixtureRequest) -> tuple[Any, Kind]:
    return request.param


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[RawRecorder]:
    with recorder_at(tmp_path) as started:
        yield started
        background_senders.end()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """Takes the place of the ASGI tap's sender."""
    client = FakeClient()
    monkeypatch.setattr(asgi, "sender_of", lambda data_dir: client)
    return client
