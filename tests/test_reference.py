"""The pages of docs/reference are what the code generates."""

import re
from pathlib import Path

import click
import pytest
from scripts import generate_reference

import streamgauge.cli
from streamgauge.cli.commands import COMMANDS
from streamgauge.kafka.topic_settings import CONTENTS
from streamgauge.records import Record
from streamgauge.settings.declarations import SETTINGS

FOLDER = Path(__file__).parent.parent / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(generate_reference.files()))
def test_page_is_the_generated_one(name: str) -> None:
    assert (FOLDER / name).read_text() == generate_reference.files()[name], "run: make generated"


def test_every_field_and_topic_is_on_its_page() -> None:
    pages = generate_reference.files()
    assert [name for name in Record.model_fields if f"\n| `{name}` |" not in pages["record.md"]] == []
    assert [name for name in CONTENTS if f"\n## `streamgauge.{name}`" not in pages["topics.md"]] == []


def test_every_setting_is_on_its_page_once_with_its_commands_and_defaults() -> None:
    page = generate_reference.files()["settings.md"]
    seen = []
    for part in re.split(r"\nOf (?=`)", page)[1:]:
        commands = re.findall(r"`([a-z ]+)`", part.partition(":\n")[0])
        rows = re.findall(r"\n\| `(--[a-z-]+)` \| `(\w+)` \| `(\w+)` \| [^|]+ \| ([^|]*) \| ", part)
        for flag, variable, name, default in rows:
            setting = SETTINGS[name]
            assert (flag, variable, commands) == (setting.flag, setting.variable, [*setting.commands])
            notes = {setting.note(path).removeprefix("default: ") for path in commands}
            assert [note for note in notes if note not in default] == []
            seen.append(name)
    assert sorted(seen) == sorted(SETTINGS)


def test_every_option_is_on_the_page_of_its_command_or_among_the_shared_ones() -> None:
    page = generate_reference.files()["commands.md"]
    usages = list(re.finditer(r"\nUsage: `([a-z ]+?) \[OPTIONS\]", page))
    assert [usage[1] for usage in usages] == list(COMMANDS)
    shared = page.partition("\n## Shared options")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    for usage, following in zip(usages, [*usages[1:], None], strict=True):
        part = page[usage.end() : following.start() if following else None]
        for option in COMMANDS[usage[1]].options:
            if isinstance(option, click.Argument) or getattr(option, "hidden", False):
                continue
            flag = option.opts[0]
            in_part = re.search(rf"^\| `{flag}[ `]", part, re.MULTILINE)
            assert in_part or (re.search(rf"`{flag}`", part) and f"| `{flag}" in shared), (usage[1], flag)
    assert len([row for row in rows if row.startswith("--output")]) <= 4, "the other ones are the shared one"


def test_every_command_that_finds_something_says_what() -> None:
    """Those whose module returns the exit code 1, and demo, which returns that of its run."""
    folder = Path(streamgauge.cli.__file__).parent
    finding = {"demo"} | {
        path for path, one in COMMANDS.items() if "FOUND" in (folder / f"{one.module}.py").read_text()
    }
    page = generate_reference.files()["commands.md"]
    table = page.partition("| command | exits with 1 if |")[2].partition("\n\n")[0]
    # Of the commands of one module some never do.
    never = {"audit list", "deadletter list", "deadletter show", "ledger query", "ledger export"}
    assert set(re.findall(r"\n\| `([a-z ]+)`", table)) == finding - never
    assert "`config check` exits with 2" in page


def test_a_list_of_arguments_shows_that_it_is_one() -> None:
    page = generate_reference.files()["commands.md"]
    assert "Usage: `config check [OPTIONS] FILE...`" in page
    assert "Usage: `config show [OPTIONS] [COMMAND]...`" in page


def test_pages_are_written(tmp_path: Path) -> None:
    generate_reference.write(tmp_path / "new")
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == generate_reference.files()
