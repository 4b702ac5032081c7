"""Taps and the command line use the same data directory."""

import os
from pathlib import Path

import pytest

from streamgauge.runtime.data_directory import default_data_dir
from streamgauge.settings.sources import load
from streamgauge.taps.inprocess.agent_location import data_dir_of, recorder_socket


def test_the_default_is_that_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMGAUGE_DATA_DIR", raising=False)
    assert data_dir_of(None) == default_data_dir()
    monkeypatch.setenv("STREAMGAUGE_DATA_DIR", "")
    assert data_dir_of(None) == data_dir_of("") == default_data_dir()


def test_an_argument_takes_precedence_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STREAMGAUGE_DATA_DIR", str(tmp_path / "named"))
    assert data_dir_of(None) == tmp_path / "named"
    assert data_dir_of(tmp_path / "given") == tmp_path / "given"
    monkeypatch.chdir(tmp_path)
    assert data_dir_of("given") == tmp_path / "given"


def test_f7_the_agents_settings_file_also_sets_the_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("STREAMGAUGE_DATA_DIR", raising=False)
    file = tmp_path / "streamgauge.toml"
    file.write_text(f'data_dir = "{tmp_path / "filed"}"\n')
    monkeypatch.setenv("STREAMGAUGE_CONFIG", str(file))
    assert data_dir_of(None) == load({}, file).data_dir == tmp_path / "filed"
    monkeypatch.setenv("STREAMGAUGE_DATA_DIR", str(tmp_path / "named"))
    assert data_dir_of(None) == tmp_path / "named"
    monkeypatch.delenv("STREAMGAUGE_DATA_DIR")
    for content in (b"capture = 'full'\n", b"data_dir = 7\n"):
        file.write_bytes(content)
        assert data_dir_of(None) == default_data_dir()
    assert not caplog.messages
    for content in (b"data_dir = \n", b"\xff"):
        file.write_bytes(content)
        assert data_dir_of(None) == default_data_dir()
    monkeypatch.setenv("STREAMGAUGE_CONFIG", str(tmp_path / "none"))
    assert data_dir_of(None) == default_data_dir()
    assert len(caplog.messages) == 3
    assert all("cannot be read" in message for message in caplog.messages)


def test_the_socket_is_where_the_agent_creates_it(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 20) / ("er" * 40)
    deep.mkdir(parents=True)
    place = tmp_path / "s"
    place.mkdir()
    (deep / "run").symlink_to(place)
    assert recorder_socket(deep) == str(Path(os.path.realpath(place)) / "recorder.sock")
    assert recorder_socket(tmp_path / "nowhere") == str(tmp_path / "nowhere" / "run" / "recorder.sock")
