"""The help of a command, made from the tables of commands and settings; rich draws it (width, colours, NO_COLOR).

Examples keep their line breaks, other text is wrapped. Where stdout is no terminal the help is plain text.
"""

import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from streamgauge.cli.commands import COMMANDS, CONFIG, GROUPS, Command, first_words, second_words
from streamgauge.cli.epilogs import EPILOG
from streamgauge.cli.options import Option
from streamgauge.config import SECTIONS, SETTINGS
from streamgauge.errors import DONE
from streamgauge.setting_types import Setting

ABOUT = "Measures streaming LLM responses: latency, outcome and token usage of each one."

# The widest help (columns): longer lines are hard to read.
MAX_WIDTH = 110
# The left column is at most this wide (columns): the rest of an 80-column terminal is for the sentences.
_LEFT = 32

# Rows of the help: the option or command, its value, and what it does.
Row = tuple[str, str, str]

# What precedes the explanation of an example.
_INDENT = " " * 6

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
        arguments = " ".join(value_of(one) for one in COMMANDS[path].options if one.is_argument)
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
        sections += _commands()
    elif words := second_words(path):
        sections += [("Commands", [(f"{path} {word}", "", COMMANDS[f"{path} {word}"].about) for word in words])]
    if path in COMMANDS:
        return sections + _options(COMMANDS[path])
    return [*sections, ("Options", list(_ROOT) if not path else [_HELP])]


def _commands() -> list[tuple[str, list[Row]]]:
    """The first words of commands, apart by whether they require Kafka."""
    kafka = {path.partition(" ")[0] for path in SETTINGS["kafka"].required if " packets" not in path}
    rows: dict[bool, list[Row]] = {False: [], True: []}
    for word, about in first_words().items():
        rows[word in kafka].append((word, "", about))
    return [("Commands", rows[False]), ("Commands for Kafka", rows[True])]


def _options(command: Command) -> list[tuple[str, list[Row]]]:
    own = [one for one in command.options if not one.hidden]
    sections = [
        ("Arguments", [(value_of(one), "", one.about) for one in own if one.is_argument]),
        ("Options", [*(_option(one) for one in own if not one.is_argument), _option(CONFIG), _HELP]),
    ]
    by_section: dict[str, list[Row]] = {section: [] for section in SECTIONS}
    for setting in [] if command.takes else command.settings:  # the help of these commands names them
        by_section[setting.section].append(_setting(setting, command.path))
    return [(name, rows) for name, rows in (*sections, *by_section.items()) if rows]


def value_of(option: Option) -> str:
    """The value of an option, or an argument, as it is written; empty for a switch."""
    if not option.is_argument:
        return "" if option.kind is bool else option.metavar or option.name.lstrip("-").upper()
    if option.required:
        return option.metavar
    return f"[{option.metavar}]{'...' if option.repeatable else ''}"


def sentence_of(option: Option) -> str:
    """What an option does, with the words that it allows."""
    words = option.words()
    return f"{option.about}; one of {', '.join(words)}" if words else option.about


def note_of(option: Option) -> str:
    """The default of an option, as "default: ..."; empty if there is none."""
    return "" if option.default is None else f"default: {option.default}"


def _option(option: Option) -> Row:
    return option.name, value_of(option), sentence_of(option) + _in_brackets(note_of(option))


def _setting(setting: Setting, command: str) -> Row:
    return setting.flag, setting.type.metavar, setting.about + _in_brackets(setting.note(command))


def _in_brackets(note: str) -> str:
    return f" ({note})" if note else ""


def _wrapped(epilog: str, width: int) -> Iterator[str]:
    """The examples as they are, with their explanations wrapped, and the wrapped paragraphs after them."""
    examples, *paragraphs = epilog.strip().split("\n\n")
    for line in examples.splitlines():
        is_example = not line.startswith(_INDENT)
        yield from (
            [line] if is_example else textwrap.wrap(line, width, subsequent_indent=_INDENT, break_on_hyphens=False)
        )
    for paragraph in paragraphs:
        yield from ("", *textwrap.wrap(" ".join(paragraph.split()), width, break_on_hyphens=False))


def _print(usage_line: str, about: str, sections: Iterable[tuple[str, list[Row]]], epilog: str) -> None:
    from rich.console import Console  # an error, or a command that runs, does not need it

    console = Console(file=sys.stdout, highlight=False)
    width = min(console.width, MAX_WIDTH)
    with console.capture() as drawn:
        console.print(f"{usage_line}\n\n{about}", markup=False, soft_wrap=True)
        _draw(console, sections, width)
        console.print("\n" + "\n".join(_wrapped(epilog, width)), markup=False, soft_wrap=True)
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
