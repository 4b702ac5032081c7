"""Command lines of containers and units, by our own parser and settings."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from unittest import mock

from streamgauge.cli.commands import parse
from streamgauge.settings.declarations import SETTINGS, Settings
from streamgauge.settings.sources import load
from streamgauge.settings.types import ENV_PREFIX

# Variables of ours that are not settings.
OTHER_VARIABLES = {"STREAMGAUGE_CONFIG", "STREAMGAUGE_DEBUG", "STREAMGAUGE_ADMIN_TOKEN"}
_DEFAULTED = re.compile(r"\$\{[A-Z_]+:-([^}]*)\}")


@dataclass(frozen=True)
class Parsed:
    """A command: its name, and the settings that it has."""

    command: str
    settings: Settings


def parsed(command: Sequence[str], environment: Mapping[str, str]) -> Parsed:
    """The command with this environment alone. Exits, or raises UsageFault, if it is wrong. Fails for a variable of a setting
    that has no effect.
    """
    with mock.patch.dict(os.environ, {"HOME": "/nonexistent", **environment}, clear=True):
        args = parse(list(command))
        settings = load(args.settings, args.config)
    # What a command does not take has no effect on it. One file is for several commands, and so is what the image sets.
    ignored = [
        name
        for name, origin in settings.given.items()
        if origin.startswith(ENV_PREFIX) and name != "data_dir" and set(args.serves).isdisjoint(SETTINGS[name].commands)
    ]
    assert ignored == [], f"`{args.command}` takes no such variable"
    return Parsed(args.command, settings)


def unknown_variables(names: Sequence[str]) -> list[str]:
    """The variables with our prefix that are neither settings nor read elsewhere."""
    known = {one.variable for one in SETTINGS.values()} | OTHER_VARIABLES
    return [name for name in names if name.startswith(ENV_PREFIX) and name not in known]


def with_defaults(text: str) -> str:
    """A value of Docker Compose, with ${NAME:-DEFAULT} replaced by the default."""
    return _DEFAULTED.sub(r"\1", text)
