"""Each invalid setting is one sentence that names its source: the flag, the variable or the file."""

import re
from pathlib import Path

import pytest

from streamgauge.cli.settings_sources import load
from streamgauge.errors import UsageFault

FILES: dict[str, tuple[bytes, str]] = {
    "no TOML": (b"listen = ", "the settings file FILE is not valid TOML: "),
    "no UTF-8": (b'kafka = "\xff\xfe"', "the settings file FILE is not valid TOML: "),
    "no such setting": (b"colour = 1", "colour in the settings file FILE: there is no such setting$"),
    "a flag's name": (
        b'data-dir = "x"',
        "data-dir in the settings file FILE: there is no such setting; did you mean data_dir",
    ),
    "a table for upstreams": (
        b'[upstream]\nopenai = "https://x"',
        "upstream in the settings file FILE: write NAME=URL",
    ),
    "a number for an address": (b"listen = 8080", "listen in the settings file FILE: '8080' is not an address"),
    "a list for a path": (b"data_dir = [1]", "data_dir in the settings file FILE: "),
    "a word for a number": (b'workers = "some"', "workers in the settings file FILE: "),
}


@pytest.mark.parametrize("case", FILES)
def test_f13_an_invalid_file_is_one_sentence_that_names_it(case: str, tmp_path: Path) -> None:
    content, says = FILES[case]
    file = tmp_path / "settings.toml"
    file.write_bytes(content)
    with pytest.raises(UsageFault, match=says.replace("FILE", re.escape(str(file)))) as refused:
        load({}, file)
    assert "\n" not in str(refused.value)


def test_a_flag_or_a_variable_before_the_file_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("workers = 2\n")
    with pytest.raises(UsageFault, match=r"^--workers \(STREAMGAUGE_WORKERS\): "):
        load({"workers": "some"}, file)
    monkeypatch.setenv("STREAMGAUGE_WORKERS", "some")
    with pytest.raises(UsageFault, match=r"^--workers \(STREAMGAUGE_WORKERS\): "):
        load({}, file)


def test_a_missing_file_or_a_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=f"the settings file {tmp_path}/none.toml does not exist"):
        load({}, tmp_path / "none.toml")
    with pytest.raises(UsageFault, match=f"the settings file {tmp_path} is not a regular file"):
        load({}, tmp_path)
