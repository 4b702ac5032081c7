"""The pages of docs/reference are what the code generates."""

import re
from pathlib import Path

import pytest
from scripts import generate_reference

import streamgauge.cli
from streamgauge.cli.commands import COMMANDS
from streamgauge.kafka.topic_settings import CONTENTS
from streamgauge.records import Record

FOLDER = Path(__file__).parent.parent / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(generate_reference.files()))
def test_page_is_the_generated_one(name: str) -> None:
    assert (FOLDER / name).read_text() == generate_reference.files()[name], "run: make generated"


def test_every_field_and_topic_is_on_its_page() -> None:
    pages = generate_reference.files()
    assert [name for name in Record.model_fields if f"\n| `{name}` |" not in pages["record.md"]] == []
    assert [name for name in CONTENTS if f"\n## `streamgauge.{name}`" not in pages["topics.md"]] == []


def test_every_setting_and_option_of_every_command_is_on_its_page() -> None:
    sections = generate_reference.files()["settings.md"].split("\n## ")[1:]
    of_command = {
        path: section for section in sections for path in re.findall(r"`([a-z ]+)`", section.split("\n", 1)[0])
    }
    assert of_command.keys() == COMMANDS.keys()
    for path, section in of_command.items():
        command = COMMANDS[path]
        rows = {
            row[0]: row
            for row in re.findall(r"\n\| `(--[a-z-]+)` \| `(\w+)` \| `(\w+)` \| [^|]+ \| ([^|]*) \| ", section)
        }
        own = [] if command.takes else command.settings  # the others are in the sections of the commands that it takes
        assert {setting.flag for setting in own} == rows.keys()
        for setting in own:
            note = setting.note(path).removeprefix("default: ")
            assert rows[setting.flag][1:] == (setting.variable, setting.name, note)
        named = [
            option.metavar if option.is_argument else option.name for option in command.options if not option.hidden
        ]
        shown = section.replace("\\|", "|")
        assert [name for name in named if f"| `{name}" not in shown and f"| `[{name}]" not in shown] == []


def test_every_command_that_finds_something_says_what() -> None:
    """Those whose module returns the exit code 1, and demo, which returns that of its run."""
    folder = Path(streamgauge.cli.__file__).parent
    finding = {"demo"} | {
        path for path, one in COMMANDS.items() if "FOUND" in (folder / f"{one.module}.py").read_text()
    }
    page = generate_reference.files()["commands.md"]
    table = page.partition("| command | exits with 1 if |")[2].partition("\n\n")[0]
    # Of the commands of one module some never do.
    never = {"audit list", "audit show", "deadletter list", "deadletter show"}
    assert set(re.findall(r"\n\| `([a-z ]+)`", table)) == finding - never
    assert "`config check` exits with 2" in page


def test_a_list_of_arguments_shows_that_it_is_one() -> None:
    page = generate_reference.files()["commands.md"]
    assert "Usage: `config check [OPTIONS] FILE...`" in page
    assert "Usage: `config show [OPTIONS] [COMMAND]...`" in page


def test_pages_are_written(tmp_path: Path) -> None:
    generate_reference.write(tmp_path / "new")
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == generate_reference.files()
