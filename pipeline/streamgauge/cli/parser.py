"""The parser of the command line: typer, from the tables of commands and settings. It makes `Arguments` of the words.

Options are read as text; `settings_sources` converts those that are settings, so that an option, a variable and a key of the
file mean the same. An error prints the usage of its command and one sentence, and quotes no password. Only the options of
the command in use are built, since typer takes time for each.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from streamgauge import __version__
from streamgauge.cli.commands import (
    COMMANDS,
    CONFIG,
    GROUPS,
    Arguments,
    Command,
    first_words,
    second_words,
)
from streamgauge.cli.help_text import print_help, usage
from streamgauge.cli.options import Option
from streamgauge.errors import DONE, USAGE
from streamgauge.runtime.redaction import redacted_text
from streamgauge.setting_types import Setting

PROGRAM = "streamgauge"
# Set by a shell that requests completions (typer's convention).
COMPLETE_VARIABLE = "_STREAMGAUGE_COMPLETE"


def parse(words: Sequence[str]) -> Arguments:
    """Reads the words after the program's name. Raises SystemExit after --help, a completion, or an error."""
    completing = bool(os.environ.get(COMPLETE_VARIABLE))
    path = None if completing else _path_of(words)
    app = _app(path)
    try:
        done = get_command(app).main(list(words), PROGRAM, COMPLETE_VARIABLE, standalone_mode=False, obj=words)
    except typer.TyperException as error:
        _fail(path or "", _sentence(error, path or "", words))
    if not isinstance(done, Arguments):
        raise SystemExit(done if isinstance(done, int) else DONE)
    return done


def _path_of(words: Sequence[str]) -> str:
    """The command that the words begin with; empty if they begin with an option of the program. Exits if there is none."""
    if not words:
        _fail("", "the following arguments are required: COMMAND")
    first = words[0]
    if first.startswith("-"):
        return ""
    if first not in first_words():
        _fail("", f"argument COMMAND: {_not_a_choice(first, tuple(first_words()))}")
    seconds = second_words(first)
    second = words[1] if len(words) > 1 else ""
    if second in seconds:
        return f"{first} {second}"
    if first not in GROUPS or second.startswith("-"):
        return first
    if not second:
        _fail(first, "the following arguments are required: ACTION")
    _fail(first, f"argument ACTION: {_not_a_choice(second, tuple(seconds))}")


def _not_a_choice(given: str, choices: tuple[str, ...]) -> str:
    alike = get_close_matches(given, choices, 1)
    meant = f"; did you mean {alike[0]}?" if alike else ""
    return f"invalid choice: {given!r} (choose from {', '.join(choices)}){meant}"


def _fail(path: str, sentence: str) -> NoReturn:
    sys.stderr.write(f"{usage(path)}\n")
    sys.stderr.write(redacted_text(f"{f'{PROGRAM} {path}'.rstrip()}: error: {sentence}\n"))
    raise SystemExit(USAGE)


def _sentence(error: typer.TyperException, path: str, words: Sequence[str]) -> str:
    """The sentence for an error of typer's parser: an unknown option, or an option without its value."""
    option = getattr(error, "option_name", None)
    if option is None:
        return "the following arguments are required: COMMAND"
    known = {flag: one for one in _options_of(path) for flag in _flags(one)}
    if option in known:
        return f"argument {option}: {'it takes no value' if _is_switch(known[option]) else _no_value(known[option])}"
    shown = f"{option}=..." if any(word.startswith(f"{option}=") for word in words) else option
    return f"unrecognized arguments: {shown}{_hint(option, path, known)}"


def _hint(option: str, path: str, known: dict[str, Option | Setting]) -> str:
    elsewhere = [
        one for one, command in COMMANDS.items() if any(option in _flags(other) for other in _own_options_of(command))
    ]
    if elsewhere and path:
        return f"; it is an option of `{'`, `'.join(elsewhere)}`"
    alike = get_close_matches(option, known, 1)
    return f"; did you mean {alike[0]}?" if alike else ""


def _options_of(path: str) -> list[Option | Setting]:
    command = COMMANDS.get(path)
    return [*command.options, CONFIG, *command.settings] if command else []


def _own_options_of(command: Command) -> list[Option | Setting]:
    return [*command.options, CONFIG, *([] if command.takes else command.settings)]


def _flags(one: Option | Setting) -> tuple[str, ...]:
    return (one.name,) if isinstance(one, Option) else (one.flag, *one.aliases)


def _is_switch(one: Option | Setting) -> bool:
    return one.kind is bool if isinstance(one, Option) else one.type.is_switch


def _no_value(one: Option | Setting) -> str:
    value = one.metavar or "VALUE" if isinstance(one, Option) else one.type.metavar
    return f"a value is missing: write {_flags(one)[0]} {value}"


# --- the parser of typer --------------------------------------------------------------------------------------------


def _app(path: str | None) -> typer.Typer:
    """The parser of one command; for None (a shell requests completions) the parser of all, with their options."""
    app = _group("", path in (None, ""))
    if path == "":
        for word in first_words():
            app.command(word, cls=_with_help(TyperCommand, word), add_help_option=False)(_no_options)
        return app
    firsts = first_words() if path is None else [path.partition(" ")[0]]
    for word in firsts:
        seconds = [second for second in second_words(word) if path in (None, f"{word} {second}")]
        if not seconds and word in COMMANDS:
            _add(app, COMMANDS[word], word)
            continue
        group = _group(word, False)
        if word in COMMANDS:
            group.callback(invoke_without_command=True)(_callback(COMMANDS[word]) if path is None else _no_options)
        for second in seconds:
            _add(group, COMMANDS[f"{word} {second}"], second)
        app.add_typer(group, name=word, help=first_words()[word])
    return app


def _group(path: str, completion: bool) -> typer.Typer:
    app = typer.Typer(
        cls=_with_help(TyperGroup, path),
        add_completion=completion,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    if path in GROUPS or not path:
        app.callback()(_version if not path else _no_options)
    return app


def _print_version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"{PROGRAM} {__version__}\n")
        raise typer.Exit


def _version(
    version: bool = typer.Option(False, "--version", help="show the version", callback=_print_version, is_eager=True),
) -> None:
    """The program's own option. If it is the only word, `main` handles it without this parser."""


def _no_options() -> None:
    """A command or group without options."""


def _add(app: typer.Typer, command: Command, name: str) -> None:
    app.command(
        name,
        cls=_with_help(TyperCommand, command.path),
        help=command.about,
        context_settings={"help_option_names": ["-h", "--help"], "allow_extra_args": True},
    )(_callback(command))


def _with_help(base: Any, path: str) -> Any:
    """A class of typer's commands that prints the help of `path`."""

    def format_help(self: object, context: object, formatter: object) -> None:
        print_help(path)
        raise typer.Exit  # the library would print an empty line

    return type(base.__name__, (base,), {"format_help": format_help})


def _callback(command: Command) -> Callable[..., Arguments]:
    """The function that typer calls with the values; its signature is made from the tables."""

    def arguments(context: typer.Context, **values: Any) -> Arguments:
        _check_values(command, values, context.obj)
        if context.args:
            _fail(command.path, f"unrecognized arguments: {' '.join(_shown(context.args))}")
        return _arguments(command, values)

    parameters = [Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    parameters += [_parameter(one) for one in _options_of(command.path)]
    arguments.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return arguments


def _parameter(one: Option | Setting) -> Parameter:
    if isinstance(one, Setting):
        name, repeatable, about = one.name, one.type.is_list, one.about
    else:
        name, repeatable, about = one.key, one.repeatable, one.about

    def complete(incomplete: str) -> list[str]:
        return [word for word in _words(one) if word.startswith(incomplete)]

    if isinstance(one, Option) and one.is_argument:
        default: Any = typer.Argument(None, help=about)
    elif _is_switch(one):
        default = typer.Option(False, *_flags(one), help=about, hidden=isinstance(one, Option) and one.hidden)
    else:
        default = typer.Option(None, *_flags(one), help=about, autocompletion=complete)
    annotation = bool if _is_switch(one) else list[str] | None if repeatable else str | None
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _words(one: Option | Setting) -> tuple[str, ...]:
    return one.words() if isinstance(one, Option) else one.type.choices


# --- values ---------------------------------------------------------------------------------------------------------


def _check_values(command: Command, values: dict[str, Any], words: Sequence[str]) -> None:
    """Rejects an option whose value was left out, so that the next option was read as its value.

    A value that begins with dashes is possible after "=", as in --data-dir=--odd.
    """
    options = [one for one in _options_of(command.path) if isinstance(one, Setting) or not one.is_argument]
    known = {flag for one in options for flag in _flags(one)} | {"-h", "--help"}
    for one in options:
        value = values[one.name if isinstance(one, Setting) else one.key]
        for text in value if isinstance(value, list) else [value]:
            is_option = isinstance(text, str) and (text.startswith("--") or text == "-h")
            if is_option and not any(f"{flag}={text}" in words for flag in _flags(one)):
                name = text.partition("=")[0]
                following = name if name in known else "the next option"  # what we do not know may be a password
                _fail(command.path, f"argument {_flags(one)[0]}: {_no_value(one)} before {following}")


def _arguments(command: Command, values: dict[str, Any]) -> Arguments:
    settings: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for one in _options_of(command.path):
        value = values[one.name if isinstance(one, Setting) else one.key]
        if isinstance(one, Setting):
            if value is not None and value is not False:  # False: the switch was not given
                settings[one.name] = value
                _check_choice(command, one, value)
        else:
            others[one.key] = _converted(command, one, value)
    first, _, second = command.path.partition(" ")
    label = first if first in GROUPS else command.path
    return Arguments(
        command=label,
        action=second,
        serves=(command.path, *command.takes),
        module=command.module,
        loads=command.loads,
        settings=settings,
        **others,
    )


def _check_choice(command: Command, setting: Setting, value: object) -> None:
    """A wrong word on the command line is an error of usage; elsewhere it is an error of the settings."""
    choices = setting.type.choices
    if choices and isinstance(value, str) and value.upper() not in (word.upper() for word in choices):
        _fail(command.path, f"argument {setting.flag}: {_not_a_choice(value, choices)}")


def _converted(command: Command, option: Option, value: Any) -> Any:
    """The value of an option that is not a setting."""
    if value is None:
        if option.required:
            _fail(command.path, f"the following arguments are required: {option.metavar}")
        return [] if option.repeatable and option.is_argument else option.default
    if words := option.words() if isinstance(value, str) else ():
        if value not in words:
            _fail(command.path, f"argument {option.name}: {_not_a_choice(value, words)}")
        return value
    if option is CONFIG or option.key == "paths":
        return [Path(one) for one in value] if isinstance(value, list) else Path(value)
    if option.kind in (int, float):
        return (
            [_number(command, option, one) for one in value] if option.repeatable else _number(command, option, value)
        )
    return value


def _number(command: Command, option: Option, value: str) -> int | float:
    try:
        number: int | float = option.kind(value)
    except ValueError:
        name = option.name if not option.is_argument else option.metavar
        _fail(command.path, f"argument {name}: invalid {option.kind.__name__} value: {value!r}")
    return number


def _shown(words: Sequence[str]) -> Iterator[str]:
    """Unknown words for an error message. For an unknown option only its name, since its value may be a password."""
    after_option = False
    for word in words:
        is_option = word.startswith("-")
        name, has_value, _ = word.partition("=")
        if is_option:
            yield f"{name}=..." if has_value else name
        else:
            yield "..." if after_option else word
        after_option = is_option and not has_value
