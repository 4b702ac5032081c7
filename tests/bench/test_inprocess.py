"""The benchmark runs and measures what it claims; the speed itself is not tested."""

import itertools
from pathlib import Path

import pytest
from bench.inprocess import CHUNK, WAYS, Chunks, Pure, Way, main, read, read_async, read_http

from streamgauge.recorder.protocol import ResponseRead
from streamgauge.taps.inprocess.capture import start_capture
from tests.bench.sections import written_section
from tests.recorder.fake_client import FakeClient
from tests.taps.inprocess.rig import seen_request


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.title)
def test_the_tap_reports_every_chunk(way: Way) -> None:
    client = FakeClient()
    capture = start_capture(client, seen_request())
    way.pure(7)
    way.tapped(7, capture)
    assert [message.data for message in client.messages if isinstance(message, ResponseRead)] == [CHUNK] * 7


def test_the_pure_wrapper_passes_everything_and_httpcore_reads_as_much() -> None:
    assert list(Pure(Chunks(3))) == list(Chunks(3)) == [CHUNK] * 3
    read(Pure(Chunks(3)))
    read_async(Pure(Chunks(3)))
    read_http(3)


def test_it_writes_its_section_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = written_section("inprocess", main, ["--chunks=50", "--rounds=3"], tmp_path)
    assert section.startswith("| tap ")
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(WAYS)
    assert all(float(cell) != 0 for row in rows[1:] for cell in itertools.islice(row, 1, 3))
    assert "httpx" in capsys.readouterr().out
