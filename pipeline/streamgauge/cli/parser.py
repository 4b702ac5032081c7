"""The parser of the command line, from the tables of commands and settings. It makes `Arguments` of the words.

Options are read as text; `settings_sources` converts those that are settings, so that an option, a variable and a key of the
file mean the same. An error prints the usage of its command and one sentence, and quotes no password.
"""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from streamgauge import __version__
from streamgauge.cli.commands import (
    COMMANDS,
    CONFIG,
    GROUPS,
    HELP,
    Arguments,
    Command,
    first_words,
    flags_of,
    is_argument,
    is_switch,
    options_of,
    second_words,
)
from streamgauge.cli.help_text import print_help, usage
from streamgauge.cli.options import Option
from streamgauge.errors import DONE, USAGE
from streamgauge.runtime.redaction import redacted_text
from streamgauge.settings.types import Setting

PROGRAM = "streamgauge"


def parse(words: Sequence[str]) -> Arguments:
    """Reads the words after the program's name. Raises SystemExit after --help, or after an error."""
    path = _path_of(words)
    following = words[len(path.split()) :]
    if path not in COMMANDS:
        _answer(path, following)
    return _arguments(COMMANDS[path], *_read(COMMANDS[path], following))


def _path_of(words: Sequence[str]) -> str:
    """The command that the words begin with; empty if they begin with an option of the program. Exits if there is none."""
    if not words:
        print_help("")
        raise SystemExit(USAGE)
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
        print_help(first)
        raise SystemExit(USAGE)
    _fail(first, f"argument ACTION: {_not_a_choice(second, tuple(seconds))}")


def _answer(path: str, words: Sequence[str]) -> NoReturn:
    """Does what the first option of the program, or of a group, asks for, and exits."""
    option = words[0]
    if option in HELP:
        print_help(path)
    elif not path and option == "--version":
        sys.stdout.write(f"{PROGRAM} {__version__}\n")
    elif not path and option in ("--install-completion", "--show-completion"):
        from streamgauge.cli.completion import install_completion, script_of, shell_of

        try:
            shell = shell_of(words[1:])
        except ValueError as error:
            _fail(path, f"argument {option}: {error}")
        sys.stdout.write(script_of(shell) if option == "--show-completion" else install_completion(shell))
    else:
        _fail(path, _unknown(option, path, {}))
    raise SystemExit(DONE)


def _not_a_choice(given: str, choices: tuple[str, ...]) -> str:
    alike = get_close_matches(given, choices, 1)
    meant = f"; did you mean {alike[0]}?" if alike else ""
    return f"invalid choice: {given!r} (choose from {', '.join(choices)}){meant}"


def _fail(path: str, sentence: str) -> NoReturn:
    sys.stderr.write(f"{usage(path)}\n")
    sys.stderr.write(redacted_text(f"{f'{PROGRAM} {path}'.rstrip()}: error: {sentence}\n"))
    raise SystemExit(USAGE)


# --- options --------------------------------------------------------------------------------------------------------


def _own_options_of(command: Command) -> list[Option | Setting]:
    """Without those that it takes from other commands."""
    return [*command.options, CONFIG, *([] if command.takes else command.settings)]


def _key(one: Option | Setting) -> str:
    return one.name if isinstance(one, Setting) else one.key


def _is_repeatable(one: Option | Setting) -> bool:
    return one.type.is_list if isinstance(one, Setting) else one.repeatable


def _no_value(one: Option | Setting) -> str:
    value = one.metavar or "VALUE" if isinstance(one, Option) else one.type.metavar
    return f"a value is missing: write {flags_of(one)[0]} {value}"


def _unknown(word: str, path: str, known: dict[str, Option | Setting]) -> str:
    """The sentence for an unknown option. Its value is not shown, since it may be a password."""
    option, has_value, _ = word.partition("=")
    if not option.startswith("--"):
        option = option[:2]
    return f"unrecognized arguments: {f'{option}=...' if has_value else option}{_hint(option, path, known)}"


def _hint(option: str, path: str, known: dict[str, Option | Setting]) -> str:
    elsewhere = [
        one for one, command in COMMANDS.items() if any(option in flags_of(other) for other in _own_options_of(command))
    ]
    if elsewhere and path:
        return f"; it is an option of `{'`, `'.join(elsewhere)}`"
    alike = get_close_matches(option, known, 1)
    return f"; did you mean {alike[0]}?" if alike else ""


def _read(command: Command, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The values of the given options, by key, as text, list of text or True; and the words that are no options.

    Rejects an option whose value was left out, so that the next option would be its value. A value that begins with dashes
    is possible after "=", as in --data-dir=--odd. All words after "--" are arguments.
    """
    path = command.path
    known = {flag: one for one in options_of(path) if not is_argument(one) for flag in flags_of(one)}
    values: dict[str, Any] = {}
    others: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word == "--":
            others += waiting
        elif word in HELP:
            print_help(path)
            raise SystemExit(DONE)
        elif not word.startswith("-") or word == "-":
            others.append(word)
        else:
            flag, has_value, value = word.partition("=")
            one = known.get(flag)
            if one is None:
                _fail(path, _unknown(word, path, known))
            if is_switch(one):
                if has_value:
                    _fail(path, f"argument {flag}: it takes no value")
                values[_key(one)] = True
                continue
            given = value if has_value else next(waiting, None)
            if given is None:
                _fail(path, f"argument {flag}: {_no_value(one)}")
            if not has_value and (given.startswith("--") or given in HELP):
                name = given.partition("=")[0]
                following = name if name in (*known, *HELP) else "the next option"  # an unknown word may be a password
                _fail(path, f"argument {flags_of(one)[0]}: {_no_value(one)} before {following}")
            if _is_repeatable(one):
                values.setdefault(_key(one), []).append(given)
            else:
                values[_key(one)] = given
    return values, others


# --- values ---------------------------------------------------------------------------------------------------------


def _arguments(command: Command, values: dict[str, Any], words: list[str]) -> Arguments:
    settings: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for one in options_of(command.path):
        if isinstance(one, Setting):
            if (value := values.get(one.name)) is not None:
                settings[one.name] = value
                _check_choice(command, one, value)
        elif one.is_argument:
            taken = words if one.repeatable else words[:1]
            words = words[len(taken) :]
            others[one.key] = _converted(command, one, (taken if one.repeatable else taken[0]) if taken else None)
        else:
            others[one.key] = _converted(command, one, values.get(one.key, False if one.kind is bool else None))
    if words:
        _fail(command.path, f"unrecognized arguments: {' '.join(words)}")
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
