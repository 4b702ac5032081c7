"""Makes docs/reference/settings.md from the declarations of settings and commands."""

from collections.abc import Iterator
from itertools import groupby

from streamgauge.cli.commands import COMMANDS, CONFIG, Command, Option
from streamgauge.cli.help_text import note_of, sentence_of, value_of
from streamgauge.config import SECTIONS
from streamgauge.setting_types import Setting


def settings_page() -> Iterator[str]:
    """The lines of the page, after its head."""
    yield from (
        "A setting is an option, a variable of the environment, and a key of the settings file (TOML), which",
        "`--config FILE` or the variable `STREAMGAUGE_CONFIG` names. An option comes before a variable, a variable before",
        "the file, the file before the default. An empty variable counts as not set. A file may contain settings of several",
        "commands; a key that is no setting is an error. Durations are seconds. A list is a TOML list, or one text with",
        "commas; its option may be given several times. `streamgauge COMMAND --help` shows the same with examples.",
        "",
        "| command | what it does |",
        "|---|---|",
    )
    groups = [list(commands) for _, commands in groupby(COMMANDS.values(), _key)]
    for commands in groups:
        for command in commands:
            yield f"| [`{command.path}`](#{_anchor(commands)}) | {command.about} |"
    for commands in groups:
        yield from ("", f"## {_title(commands)}")
        yield from _settings(commands)
        for command in commands:
            yield from _options(command, commands)
    yield ""


def _key(command: Command) -> tuple[str, list[str], list[str]]:
    """Equal for commands of one word that have the same settings with the same defaults: they share a section."""
    settings = command.settings
    return (
        command.path.partition(" ")[0] if len(command.path.split()) > 1 else command.path,
        [setting.name for setting in settings],
        [setting.note(command.path) for setting in settings],
    )


def _title(commands: list[Command]) -> str:
    return ", ".join(f"`{command.path}`" for command in commands)


def _anchor(commands: list[Command]) -> str:
    """The anchor of the heading, as GitHub makes it."""
    return _title(commands).replace("`", "").replace(",", "").replace(" ", "-")


def _settings(commands: list[Command]) -> Iterator[str]:
    path, settings = commands[0].path, commands[0].settings
    for section in SECTIONS:
        rows = [setting for setting in settings if setting.section == section]
        if rows:
            yield from ("", f"**{section}**", "")
            yield "| option | variable | key | type | default | meaning |"
            yield "|---|---|---|---|---|---|"
            yield from (_row(setting, path) for setting in rows)


def _row(setting: Setting, path: str) -> str:
    note = setting.note(path).removeprefix("default: ")
    about = setting.about.replace("|", "\\|")
    return f"| `{setting.flag}` | `{setting.variable}` | `{setting.name}` | {setting.type.says} | {note} | {about} |"


def _options(command: Command, commands: list[Command]) -> Iterator[str]:
    of = f" of `{command.path}`" if len(commands) > 1 else ""
    yield from ("", f"**On the command line only{of}**", "")
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    for option in (*command.options, CONFIG):
        if not option.hidden:
            yield _option_row(option)


def _option_row(option: Option) -> str:
    written = f"{option.name} {value_of(option)}".rstrip() if not option.is_argument else value_of(option)
    about = sentence_of(option).replace("|", "\\|")
    return f"| `{written}` | {note_of(option).removeprefix('default: ')} | {about} |".replace(
        "[FILE|DIR]", "[FILE\\|DIR]"
    )
