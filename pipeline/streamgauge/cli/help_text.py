"""The help of a command, made from the tables of commands and settings, as wide as the terminal.

Examples keep their line breaks, other text is wrapped. It has colours where stdout is a terminal and NO_COLOR is not set.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from streamgauge.cli.commands import COMMANDS, CONFIG, GROUPS, Command, first_words, second_words
from streamgauge.cli.epilogs import EPILOG
from streamgauge.cli.options import Option
from streamgauge.errors import DONE
from streamgauge.settings.declarations import SECTIONS, SETTINGS
from streamgauge.settings.types import Setting

ABOUT = "Measures streaming LLM responses: latency, outcome and token usage of each one."

# The widest help (columns): longer lines are hard to read.
MAX_WIDTH = 110
# The left column is at most this wide (columns): the rest of an 80-column terminal is for the sentences.
_LEFT = 32

# Styles of a terminal (SGR parameters): titles, options and commands, values.
_BOLD, _NAME, _VALUE = "1", "1;36", "33"

# Rows of the help: the option or command, its value, and what it does.
Row = tuple[str, str, str]

# What precedes the explanation of an example.
_INDENT = " " * 6

_HELP: Row = ("-h, --help", "", "show this help")
_ROOT: tuple[Row, ...] = (
    ("--version", "", "show the version"),
    (
        "--install-completion",
        "[SHELL]",
        "install completion of commands and options for this shell, or for bash, zsh or fish",
    ),
    ("--show-completion", "[SHELL]", "print the completion script of this shell, or of bash, zsh or fish"),
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
    value = option.metavar if option.required else f"[{option.metavar}]"
    return f"{value}{'...' if option.repeatable else ''}"


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
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    drawn = [usage_line, "", about, *_drawn(sections, width, _is_colored()), "", *_wrapped(epilog, width)]
    try:
        sys.stdout.writelines(f"{line}\n" for line in drawn)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has read enough
        raise SystemExit(DONE) from None


def _is_colored() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _drawn(sections: Iterable[tuple[str, list[Row]]], width: int, colored: bool) -> Iterator[str]:
    """The lines of the sections: names and values in the left column, sentences in the right one."""

    def styled(text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if colored and text else text

    for title, rows in sections:
        left_width = min(max(len(_left(name, value)) for name, value, _ in rows), _LEFT)
        yield from ("", styled(f"{title}:", _BOLD))
        for name, value, text in rows:
            left = textwrap.wrap(_left(name, value), left_width, subsequent_indent="    ", break_on_hyphens=False)
            right = textwrap.wrap(text, width - left_width - 4, break_on_hyphens=False)
            for one, sentence in zip_longest(left, right, fillvalue=""):
                shown = one.ljust(left_width)
                for part, style in ((name, _NAME), (value, _VALUE)):
                    if part and part in one:
                        shown = shown.replace(part, styled(part, style), 1)
                yield f"  {shown}  {sentence}".rstrip()


def _left(name: str, value: str) -> str:
    return f"{name} {value}".rstrip()
