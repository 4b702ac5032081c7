"""Makes docs/reference/settings.md from the declarations of settings: each setting once, by sections."""

from collections.abc import Iterator

from streamgauge.settings.declarations import SECTIONS, SETTINGS
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
        "Each setting is listed once, in the tables of its section, with the commands that have it.",
        "[Commands](commands.md) has the options that are no settings.",
    )
    for section in SECTIONS:
        yield from ("", f"## {section}")
        by_commands: dict[tuple[str, ...], list[Setting]] = {}
        for setting in SETTINGS.values():
            if setting.section == section:
                by_commands.setdefault(setting.commands, []).append(setting)
        for commands, settings in by_commands.items():
            yield from ("", f"Of {listed(commands)}:", "")
            yield "| option | variable | key | type | default | meaning |"
            yield "|---|---|---|---|---|---|"
            yield from map(_row, settings)
    yield ""


def listed(commands: tuple[str, ...]) -> str:
    """The commands as "`a`, `b` and `c`"."""
    *first, last = (f"`{command}`" for command in commands)
    return f"{', '.join(first)} and {last}" if first else last


def _row(setting: Setting) -> str:
    names = f"`{setting.flag}` | `{setting.variable}` | `{setting.name}`"
    return f"| {names} | {setting.type.says} | {default_of(setting)} | {escaped(setting.about)} |"


def default_of(setting: Setting) -> str:
    """The default, and in which commands it is another one or the setting is required."""
    notes: dict[str, list[str]] = {}
    for command in setting.commands:
        notes.setdefault(setting.note(command).removeprefix("default: "), []).append(command)
    usual = setting.shown_default() if len(notes) > 1 else next(iter(notes))
    of_some = [f"{listed(tuple(commands))}: {note}" for note, commands in notes.items() if note and note != usual]
    return "; ".join([usual] * bool(usual) + of_some)


def escaped(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|")
