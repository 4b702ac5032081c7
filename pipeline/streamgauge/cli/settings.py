"""`streamgauge config show|check`: the settings of a command with their sources, and the faults of settings files."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from streamgauge.cli.commands import COMMANDS
from streamgauge.cli.parser import JSON, Arguments
from streamgauge.cli.tables import print_rows
from streamgauge.errors import DONE, USAGE, UsageFault
from streamgauge.runtime.nearest import nearest
from streamgauge.runtime.redaction import SECRET, without_password
from streamgauge.settings.attributes import Attribute
from streamgauge.settings.declarations import SETTINGS, Settings
from streamgauge.settings.sources import SECRET_VARIABLES, faults_of_file
from streamgauge.settings.types import ServerPort, Setting, SpanHeader, TokenizerFile, Upstream

_COLUMNS = ("setting", "value", "from")


class _Shown(NamedTuple):
    """A setting as it is printed. `value`: as JSON; `from_`: the option, the variable, the file, or "default"."""

    setting: str
    value: Any
    from_: str


def run(settings: Settings, args: Arguments) -> int:
    """Prints the settings, or checks files: 2 if a file has a fault."""
    if args.action == "check":
        return _check(args.paths, args.output)
    rows = list(shown_settings(settings, _command(args)))
    cells = [[row.setting, row.value if args.output == JSON else _text(row), row.from_] for row in rows]
    print_rows(_COLUMNS, cells, args.output, None)
    return DONE


def _command(args: Arguments) -> str:
    """The command whose settings are shown; empty for all. Raises UsageFault."""
    path = " ".join(args.of)
    known = COMMANDS["config show"].takes
    if path and path not in known:
        raise UsageFault(f"{path!r} is no command with settings{nearest(path, known)}")
    if path and (other := [name for name in args.settings if path not in SETTINGS[name].commands]):
        raise UsageFault(f"{SETTINGS[other[0]].flag} is not an option of `{path}`")
    return path


def shown_settings(settings: Settings, command: str) -> Iterator[_Shown]:
    """The settings of a command, of all commands if it is empty, with *** for secrets."""
    for setting in SETTINGS.values():
        if command and command not in setting.commands:
            continue
        value = getattr(settings, setting.name)
        if setting.name in settings.given:
            yield _Shown(setting.name, _plain(setting, value), settings.given[setting.name])
        elif command in setting.required:
            yield _Shown(setting.name, _plain(setting, value), f"not set: {setting.note(command)}")
        else:
            value = setting.elsewhere.get(command, _plain(setting, value))
            yield _Shown(setting.name, value, "default")
        # Some secrets are in a file, or in a variable that is no setting.
        variable = setting.variable.removesuffix("_FILE")
        if variable in SECRET_VARIABLES and os.environ.get(variable):
            yield _Shown(setting.name.removesuffix("_file"), SECRET, variable)


def _plain(setting: Setting, value: Any) -> Any:
    """A value as JSON, as it is written in a settings file; without passwords."""
    if isinstance(value, tuple):
        return [_plain(setting, item) for item in value]
    match value:
        case None | bool() | int() | float():
            return value
        case Upstream():
            return f"{value.name}={value.url}" if value.name else value.url
        case ServerPort():
            return f"{value.name}={value.port}" if value.name else str(value.port)
        case Attribute():
            return f"{value.name}={value.header}"
        case SpanHeader():
            return f"{value.name}={SECRET}"
        case TokenizerFile():
            return f"{value.model}={value.path}"
        case _:
            return without_password(str(value)) if setting.secret else str(value)


def _text(row: _Shown) -> str:
    """A value in the table: a default that depends on something else by its description."""
    if row.from_ == "default" and row.setting in SETTINGS and row.value in (None, []):
        return SETTINGS[row.setting].default_text
    if isinstance(row.value, list):
        return ", ".join(map(str, row.value))
    if isinstance(row.value, bool):
        return str(row.value).lower()
    return f"{row.value:g}" if isinstance(row.value, float) else "" if row.value is None else str(row.value)


def _check(paths: Sequence[Path], output: str) -> int:
    faults = {path: faults_of_file(path) for path in paths}
    if output == JSON:
        rows = [{"file": str(path), "faults": sentences} for path, sentences in faults.items()]
        sys.stdout.write(json.dumps(rows) + "\n")
    else:
        for path, sentences in faults.items():
            sys.stdout.write("".join(f"{fault}\n" for fault in sentences) or f"the settings file {path} has no fault\n")
    return USAGE if any(faults.values()) else DONE
