"""The help of a command, made from the tables of commands and settings; rich draws it (width, colours, NO_COLOR).

Examples keep their line breaks. Where stdout is no terminal the help is plain text.
"""

import sys
from collections.abc import Iterable
from typing import Any

from streamgauge.cli.commands import COMMANDS, CONFIG, EPILOG, GROUPS, Command, Option, first_words, second_words
from streamgauge.config import SECTIONS
from streamgauge.errors import DONE
from streamgauge.setting_types import Setting

ABOUT = "Measures streaming LLM responses: latency, outcome and token usage of each one."

# The widest help (columns): longer lines are hard to read.
MAX_WIDTH = 110
# The left column is at most this wide (columns): the rest of an 80-column terminal is for the sentences.
_LEFT = 32

# Rows of the help: the option or command, its value, and what it does.
Row = tuple[str, str, str]

_HELP: Row = ("-h, --help", "", "show this help")
_ROOT: tuple[Row, ...] = (
    ("--version", "", "show the version"),
    ("--install-completion", "", "install completion of commands and options for this shell"),
    ("--show-completion", "", "print the completion script of this shell"),
    _HELP,
)


def usage(path: str) -> str:
    """The line that shows how a command is written. `path`: its words, empty for the program."""
    if path in COMMANDS:
        arguments = " ".join(_argument(one) for one in COMMANDS[path].options if one.is_argument)
        return f"usage: streamgauge {path} [OPTIONS] {arguments}".rstrip()
    return f"usage: streamgauge {path} ACTION [OPTIONS]" if path else "usage: streamgauge [OPTIONS] COMMAND"


def print_help(path: str) -> None:
    """Prints the help of a command, a group or (for an empty path) the program."""
    about, epilog = ABOUT, EPILOG
    if path:
        shown = COMMANDS.get(path) or GROUPS[path]
        about, epilog = f"{shown.about[0].upper()}{shown.about[1:]}.", shown.epilog
    _print(usage(path), about, _sections(path), epilog)


def _sections(path: str) -> list[tuple[str, list[Row]]]:
    sections: list[tuple[str, list[Row]]] = []
    if not path:
        sections += [("Commands", [(word, "", about) for word, about in first_words().items()])]
    elif words := second_words(path):
        sections += [("Commands", [(f"{path} {word}", "", COMMANDS[f"{path} {word}"].about) for word in words])]
    if path in COMMANDS:
        return sections + _options(COMMANDS[path])
    return [*sections, ("Options", list(_ROOT) if not path else [_HELP])]


def _options(command: Command) -> list[tuple[str, list[Row]]]:
    own = [one for one in command.options if not one.hidden]
    sections = [
        ("Arguments", [(_argument(one), "", one.about) for one in own if one.is_argument]),
        ("Options", [*(_option(one) for one in own if not one.is_argument), _option(CONFIG), _HELP]),
    ]
    by_section: dict[str, list[Row]] = {section: [] for section in SECTIONS}
    for setting in command.settings:
        by_section[setting.section].append(_setting(setting, command.path))
    return [(name, rows) for name, rows in (*sections, *by_section.items()) if rows]


def _argument(option: Option) -> str:
    if option.required:
        return option.metavar
    return f"[{option.metavar}]{'...' if option.repeatable else ''}"


def _option(option: Option) -> Row:
    words = option.words()
    about = f"{option.about}: {', '.join(words)}" if len(words) > 1 else option.about
    default = f" (default: {option.default})" if option.default is not None else ""
    value = "" if option.kind is bool else option.metavar or option.name.lstrip("-").upper()
    return option.name, value, about + default


def _setting(setting: Setting, command: str) -> Row:
    default = setting.shown_default(command)
    return setting.flag, setting.type.metavar, setting.about + (f" (default: {default})" if default else "")


def _print(usage_line: str, about: str, sections: Iterable[tuple[str, list[Row]]], epilog: str) -> None:
    from rich.console import Console  # an error, or a command that runs, does not need it

    console = Console(file=sys.stdout, highlight=False)
    width = min(console.width, MAX_WIDTH)
    with console.capture() as drawn:
        console.print(f"{usage_line}\n\n{about}", markup=False, soft_wrap=True)
        _draw(console, sections, width)
        console.print(f"\n{epilog.rstrip()}", markup=False, soft_wrap=True)
    try:
        sys.stdout.writelines(f"{line.rstrip()}\n" for line in drawn.get().splitlines())
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has read enough; typer would end with 1
        raise SystemExit(DONE) from None


def _draw(console: Any, sections: Iterable[tuple[str, list[Row]]], width: int) -> None:
    from rich.table import Table
    from rich.text import Text

    for title, rows in sections:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(max_width=_LEFT + 2)
        table.add_column()
        for name, value, text in rows:
            left = Text("  ").append(name, style="bold cyan").append(f" {value}" if value else "", style="yellow")
            table.add_row(left, Text(text))
        console.print(Text(f"\n{title}:", style="bold"))
        console.print(table, width=width)
