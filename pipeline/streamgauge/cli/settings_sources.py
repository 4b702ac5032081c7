"""Settings from options, the environment and a settings file, in this order. An error is a sentence that names the source."""

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from streamgauge.config import SETTINGS, Settings
from streamgauge.errors import UsageFault
from streamgauge.runtime.redaction import redacted_text, redacted_value
from streamgauge.setting_types import SCHEME


def load(options: Mapping[str, object], settings_file: Path | None = None) -> Settings:
    """The settings for these options (None means not given). Raises UsageFault, with a sentence for each fault."""
    file = "" if settings_file is None else f"the settings file {_shown(settings_file)}"
    in_file = {} if settings_file is None else _read(settings_file, file)
    variables = {name.upper(): value for name, value in os.environ.items()}
    faults = [f"{redacted_value(key)} in {file}: {_unknown(key)}" for key in in_file if key not in SETTINGS]
    faults += [f"{redacted_value(name)}: there is no such setting" for name in options if name not in SETTINGS]
    values: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        if (value := options.get(name)) is not None or (value := variables.get(setting.variable)):
            source = f"{setting.flag} ({setting.variable})"
        elif name in in_file:
            value, source = in_file[name], f"{name} in {file}"
        else:
            continue
        try:
            values[name] = setting.type.read(value)
        except ValueError as error:
            faults.append(f"{source}: {error}")
    if faults:
        raise UsageFault("\n".join(faults))
    return Settings(**values, given=frozenset(values))


def _read(path: Path, file: str) -> dict[str, Any]:
    """The content of the settings file. Raises UsageFault."""
    if not path.exists():
        raise UsageFault(f"{file} does not exist")
    if not path.is_file():
        raise UsageFault(f"{file} is not a regular file")
    try:
        return tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageFault(redacted_text(f"{file} is not valid TOML: {error}")) from None
    except OSError as error:
        raise UsageFault(f"{file} cannot be read: {error.strerror}") from None


def _shown(file: Path) -> str:
    name = str(file)
    return redacted_value(name) if SCHEME.match(name) else redacted_text(name)


def _unknown(key: str) -> str:
    alike = get_close_matches(key.lower().replace("-", "_"), SETTINGS, 1, 0.8)
    return "there is no such setting" + (f"; did you mean {alike[0]}?" if alike else "")
