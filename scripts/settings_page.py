"""Makes docs/reference/settings.md from the declarations of settings and commands."""

from collections.abc import Iterator
from itertools import groupby

from streamgauge.cli.commands import COMMANDS, Command
from streamgauge.cli.help_text import note_of, sentence_of, value_of
from streamgauge.cli.options import Option
from streamgauge.settings.declarations import SECTIONS
from streamgauge.settings.types import Setting


def settings_page() -> Iterator[str]:
    """The lines of the page, after its head."""
    yield from (
        "A setting is an option, a variable of the environment, and a key of the settings file (TOML), which",
        "`--config FILE` or the variable `STREAMGAUGE_CONFIG` names. An option comes before a variable, a variable before",
        "the file, the file before the default. An empty variable counts as not set. The names of variables are exact: upper",
        "case. A file and the environment may contain settings of several commands: a command uses those that are listed for",
        "it here, and the others have no effect on it. A key that is no setting is an error, and so is a variable",
        "`STREAMGAUGE_...` that is none. Durations are seconds. A list is a TOML list, or one text with commas; its option",
        "may be given several times.",
        "`streamgauge COMMAND --help` shows the same with examples. `streamgauge config show COMMAND` prints each value and",
        "where it comes from, `streamgauge config check FILE` every fault of a settings file.",
        "",
        "A secret may stand in a file of its own, which holds it in one line: a password of a key, the SASL password, or the",
        "URL of a ledger. The settings whose names end in `_file` name these files. No command prints a secret.",
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


def section_of(command: Command) -> str:
    """The anchor of the section with a command's options."""
    return next(_anchor(group) for _, some in groupby(COMMANDS.values(), _key) if command in (group := list(some)))


def _key(command: Command) -> tuple[str, list[tuple[str, str]]]:
    """Equal for commands with the same first word and the same settings and defaults: they share a section."""
    notes = [(setting.name, setting.note(command.path)) for setting in command.settings]
    if command.takes:
        notes = [("takes", "")]
    return command.path.partition(" ")[0], notes


def _title(commands: list[Command]) -> str:
    return ", ".join(f"`{command.path}`" for command in commands)


def _anchor(commands: list[Command]) -> str:
    """The anchor of the heading, as GitHub makes it."""
    return _title(commands).replace("`", "").replace(",", "").replace(" ", "-")


def _settings(commands: list[Command]) -> Iterator[str]:
    path, settings = commands[0].path, commands[0].settings
    if commands[0].takes:
        yield from ("", "The options of the commands that are named on the command line are its options, too.")
        return
    for section in SECTIONS:
        rows = [setting for setting in settings if setting.section == section]
        if rows:
            yield from ("", f"**{section}**", "")
            yield "| option | variable | key | type | default | meaning |"
            yield "|---|---|---|---|---|---|"
            yield from (_row(setting, path) for setting in rows)


def _row(setting: Setting, path: str) -> str:
    note = setting.note(path).removeprefix("default: ")
    names = f"`{setting.flag}` | `{setting.variable}` | `{setting.name}`"
    return f"| {names} | {setting.type.says} | {note} | {_escaped(setting.about)} |"


def _options(command: Command, commands: list[Command]) -> Iterator[str]:
    shown = [option for option in command.options if not option.hidden]
    equal = all(other.options == command.options for other in commands)
    if shown and not (equal and command is not commands[0]):
        of = "" if equal else f" of `{command.path}`"
        yield from ("", f"**On the command line only{of}**", "")
        yield "| option | default | meaning |"
        yield "|---|---|---|"
        yield from map(_option_row, shown)


def _option_row(option: Option) -> str:
    written = value_of(option) if option.is_argument else f"{option.name} {value_of(option)}".rstrip()
    note = note_of(option).removeprefix("default: ")
    return f"| `{_escaped(written)}` | {note} | {_escaped(sentence_of(option))} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
