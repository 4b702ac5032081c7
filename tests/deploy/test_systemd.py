"""The units in deploy/systemd: valid, restricted, and their commands and settings exist."""

import json
import re
import shlex
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from tests.deploy import commands
from tests.deploy.tools import ROOT, run

FOLDER = ROOT / "deploy" / "systemd"
UNITS = ("streamgauge-tap.service", "streamgauge-worker.service", "streamgauge-up.service")
# systemd-analyze gives 0 (no exposure) to 10; services of a distribution have 9.
MOST_EXPOSURE = 2.0
PROGRAM = "/opt/streamgauge/bin/streamgauge"
each_unit = pytest.mark.parametrize("unit", UNITS)


class Unit(RawConfigParser):
    """A unit. Of a directive that is repeated, each line."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False)
        self.optionxform = str  # type: ignore[assignment, method-assign]
        self.text = (FOLDER / name).read_text(encoding="utf-8")
        self.read_string(self.text)
        self.service = self["Service"]

    def every(self, directive: str) -> list[str]:
        return re.findall(rf"^{directive}=(.*)$", self.text, flags=re.MULTILINE)


def test_there_are_no_other_files() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*UNITS, "tap.toml", "worker.toml", "up.toml"}


@each_unit
def test_systemd_accepts_it(unit: str, tmp_path: Path) -> None:
    installed = tmp_path / unit
    installed.write_text(Unit(unit).text.replace(PROGRAM, sys.executable))
    done = run("systemd-analyze", "verify", "--man=no", installed)
    assert (done.returncode, done.stderr) == (0, "")


@each_unit
def test_it_is_restricted(unit: str) -> None:
    done = run(
        *("systemd-analyze", "security", "--offline=true", f"--threshold={10 * MOST_EXPOSURE:.0f}", "--json=short"),
        FOLDER / unit,
    )
    assert done.returncode == 0, "\n".join(one["name"] for one in json.loads(done.stdout) if one["set"] is not True)


@each_unit
def test_its_command_parses_with_its_settings(unit: str, tmp_path: Path) -> None:
    described = Unit(unit).service
    program, *command = shlex.split(described["ExecStart"])
    name = unit.removeprefix("streamgauge-").removesuffix(".service")
    assert program == PROGRAM
    assert f"--config /etc/streamgauge/{name}.toml" in described["ExecStart"]
    here = [str(FOLDER / f"{name}.toml") if word == f"/etc/streamgauge/{name}.toml" else word for word in command]
    found = commands.parsed(here, {})
    assert found.command == name
    assert found.settings.data_dir == Path("/var/lib") / described["StateDirectory"]
    assert found.settings.drain_timeout < int(described["TimeoutStopSec"])
    assert name != "worker" or found.settings.drain_timeout + 45 < int(described["TimeoutStopSec"])


@each_unit
def test_it_is_restarted_unless_its_settings_are_wrong(unit: str) -> None:
    """Exit code 2 is for settings; 3 and 75 ask for a restart (README)."""
    described = Unit(unit)
    assert described.service["Restart"] == "on-failure"
    assert described.service["RestartPreventExitStatus"] == "2"
    assert described["Unit"]["StartLimitIntervalSec"] == "0"
    assert described.service["KillMode"] == "mixed", "a parent stops its own children in order"


def test_units_share_their_restrictions() -> None:
    beginning = "\n# Only the state directory"
    assert len({Unit(unit).text.partition(beginning)[2] for unit in UNITS}) == 1
    assert all(Unit(unit).text.count(beginning) == 1 for unit in UNITS)


def test_variables_of_secrets_in_comments_exist() -> None:
    for unit in UNITS:
        assert commands.unknown_variables(re.findall(r"STREAMGAUGE_[A-Z_]+", Unit(unit).text)) == []
