"""Settings from options, the environment and a settings file, in this order. An error is a sentence that names the source.

A setting that names a file of a secret (`content_of`) stands for the secret itself, in the place where it is given: the
option --ledger-file comes before the variable STREAMGAUGE_LEDGER.
"""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from streamgauge.core.toml_text import NotTomlError, parse_toml
from streamgauge.errors import UsageFault
from streamgauge.runtime.nearest import nearest
from streamgauge.runtime.redaction import redacted_text, redacted_value
from streamgauge.runtime.secret import read_secret
from streamgauge.settings.declarations import SETTINGS, Settings
from streamgauge.settings.types import ENV_PREFIX, SCHEME, Setting

# Secrets that have no option, since every user of the host can read command lines.
SECRET_VARIABLES = frozenset(f"{ENV_PREFIX}{name}" for name in ("ADMIN_TOKEN", "KAFKA_PASSWORD"))
# The other variables that are no settings: of the command line, and of taps in applications.
OTHER_VARIABLES = SECRET_VARIABLES | {f"{ENV_PREFIX}{name}" for name in ("CONFIG", "DEBUG", "AGENT", "TAP_NAME")}
# What Kubernetes sets in every container next to a service whose name begins with streamgauge, with a URL in ..._PORT.
# https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
_OF_SERVICES = re.compile(
    rf"{ENV_PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_PORT = re.compile(rf"{ENV_PREFIX}(\w+_)?PORT")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")
# How alike an unknown and a known name must be: the names of settings have much in common.
_LIKENESS = 0.8


class _Given(NamedTuple):
    """A value that is given. `rank`: lower ones come first; `origin`: option, variable or file; `named`: in sentences."""

    rank: int
    value: object
    origin: str
    named: str


def load(options: Mapping[str, object], settings_file: Path | None = None, commands: Collection[str] = ()) -> Settings:
    """The settings for these options (None means not given). Raises UsageFault, with a sentence for each fault.

    `commands`: those that use them, by their words; empty for all. What none of them takes keeps its default, since a file
    or an environment may be that of several commands; a malformed value is refused all the same. Files of secrets are read
    for the named commands only.
    """
    in_file = {} if settings_file is None else _read(settings_file)
    variables = {name: value for name, value in os.environ.items() if value}
    faults = [] if settings_file is None else _unknown_keys(in_file, settings_file)
    faults += _unknown_variables(variables)
    faults += [f"{redacted_value(name)}: there is no such setting" for name in options if name not in SETTINGS]
    source_values = {
        name: source_value
        for name, setting in SETTINGS.items()
        if (source_value := _found(setting, options, variables, in_file, settings_file)) is not None
    }
    values, more = _values(source_values, commands)
    if faults := faults + more:
        raise UsageFault("\n".join(faults))
    used = {name: value for name, value in values.items() if not commands or _is_taken(SETTINGS[name], commands)}
    return Settings(**used, given={name: source_values[name].origin for name in used})


def _is_taken(setting: Setting, commands: Collection[str]) -> bool:
    return not set(commands).isdisjoint(setting.commands)


def faults_of_file(settings_file: Path) -> list[str]:
    """A sentence for each fault of a settings file; it alone is read. No file that it names is opened."""
    try:
        in_file = _read(settings_file)
    except UsageFault as fault:
        return [str(fault)]
    source_values = {
        name: source_value
        for name, setting in SETTINGS.items()
        if (source_value := _found(setting, {}, {}, in_file, settings_file)) is not None
    }
    return _unknown_keys(in_file, settings_file) + _values(source_values, ())[1]


def _found(
    setting: Setting,
    options: Mapping[str, object],
    variables: Mapping[str, str],
    in_file: Mapping[str, object],
    settings_file: Path | None,
) -> _Given | None:
    named = f"{setting.flag} ({setting.variable})"
    if (value := options.get(setting.name)) is not None:
        return _Given(0, value, setting.flag, named)
    if value := variables.get(setting.variable):
        return _Given(1, value, setting.variable, named)
    if settings_file is not None and setting.name in in_file:
        return _Given(2, in_file[setting.name], _shown(settings_file), f"{setting.name} in {_called(settings_file)}")
    return None


def _values(source_values: dict[str, _Given], commands: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """The values by name, and a sentence for each fault. Adds to `source_values` what a file of a secret stands for."""
    values: dict[str, Any] = {}
    faults: list[str] = []
    for name, source_value in source_values.items():
        try:
            values[name] = SETTINGS[name].type.read(source_value.value)
        except ValueError as error:
            faults.append(f"{source_value.named}: {error}")
    for setting in SETTINGS.values():
        if not setting.content_of or setting.name not in values:
            continue
        file, itself = source_values[setting.name], source_values.get(setting.content_of)
        if itself is not None and itself.rank == file.rank:
            faults.append(f"{itself.named} is given twice: {file.named} names a file that contains it")
        elif _is_taken(setting, commands) and (itself is None or file.rank < itself.rank):
            target = SETTINGS[setting.content_of]
            try:
                secret = read_secret(values[setting.name], target.type.metavar)
                values[target.name] = target.type.read(secret)
            except ValueError as error:
                faults.append(f"{file.named}: {error}")
            source_values[target.name] = file._replace(origin=f"{file.origin}: {values[setting.name]}")
    return values, faults


def _unknown_keys(in_file: Mapping[str, object], file: Path) -> list[str]:
    return [
        f"{redacted_value(key)} in {_called(file)}: {_why_unknown_key(key, value)}"
        for key, value in in_file.items()
        if key not in SETTINGS
    ]


def _why_unknown_key(key: str, value: object) -> str:
    if isinstance(value, dict):
        return f"the file has no tables: write its settings without the line [{redacted_value(key)}]"
    return f"there is no such setting{nearest(key.replace('-', '_'), SETTINGS, _LIKENESS)}"


def _unknown_variables(variables: Mapping[str, str]) -> list[str]:
    """Also for a name in another case: it is not read, and that of a secret would be ignored."""
    known = {setting.variable for setting in SETTINGS.values()} | OTHER_VARIABLES
    return [
        f"{redacted_value(name)} in the environment: {_why_unknown(name, known)}"
        for name, value in variables.items()
        if name.upper().startswith(ENV_PREFIX) and name not in known and not _is_of_a_service(name, value)
    ]


def _why_unknown(name: str, known: Collection[str]) -> str:
    if name.upper() in known:
        return f"the names of variables are in upper case: write {name.upper()}"
    return f"there is no such setting{_nearest_variable(name.upper(), known)}"


def _nearest_variable(name: str, known: Collection[str]) -> str:
    """The end of a sentence, as of `nearest`. The names are compared without their prefix, which makes all of them alike."""
    suggestion = nearest(
        name.removeprefix(ENV_PREFIX), [variable.removeprefix(ENV_PREFIX) for variable in known], _LIKENESS
    )
    return suggestion.replace("mean ", f"mean {ENV_PREFIX}")


def _is_of_a_service(name: str, value: str) -> bool:
    if _OF_SERVICES.fullmatch(name):
        return True
    return _SERVICE_PORT.fullmatch(name) is not None and _SERVICE_URL.match(value) is not None


def _read(path: Path) -> dict[str, Any]:
    """The content of the settings file. Raises UsageFault."""
    file = _called(path)
    if not path.exists():
        raise UsageFault(f"{file} does not exist")
    if not path.is_file():
        raise UsageFault(f"{file} is not a regular file")
    try:
        return parse_toml(path.read_bytes())
    except NotTomlError as error:
        raise UsageFault(redacted_text(f"{file} is not valid TOML: {error}")) from None
    except OSError as error:
        raise UsageFault(f"{file} cannot be read: {error.strerror}") from None


def _called(file: Path) -> str:
    return f"the settings file {_shown(file)}"


def _shown(file: Path) -> str:
    name = str(file)
    return redacted_value(name) if SCHEME.match(name) else redacted_text(name)
