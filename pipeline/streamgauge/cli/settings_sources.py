"""Settings from flags, the environment and a settings file, in this order. An error is one sentence that names its source."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from streamgauge.config import ENV_PREFIX, SCHEME, Settings
from streamgauge.errors import UsageFault
from streamgauge.runtime.redaction import redacted_text, redacted_value

# Flags whose name differs from their setting's. A setting `port` is impossible: Kubernetes sets STREAMGAUGE_PORT, a
# URL, in every container next to a service that is named streamgauge.
_FLAGS = {"server_ports": "port"}


def load(flags: Mapping[str, object], settings_file: Path | None = None) -> Settings:
    """The settings for these flags (None means not given). Raises UsageFault."""
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    file = ""
    if settings_file is not None:
        file = f"the settings file {_shown(settings_file)}"
        if not settings_file.exists():
            raise UsageFault(f"{file} does not exist")
        if not settings_file.is_file():
            raise UsageFault(f"{file} is not a regular file")
        given["settings_file"] = settings_file
    try:
        return Settings(**given)
    except ValidationError as error:
        raise UsageFault("\n".join(_sentence(dict(one), given, file) for one in error.errors())) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageFault(redacted_text(f"{file} is not valid TOML: {error}")) from None
    except OSError as error:
        raise UsageFault(f"{file} cannot be read: {error.strerror}") from None


def _shown(file: Path) -> str:
    name = str(file)
    return redacted_value(name) if SCHEME.match(name) else redacted_text(name)


def _sentence(error: Mapping[str, Any], flags: Mapping[str, object], file: str) -> str:
    """The error as a sentence. `file`: a phrase for the settings file, empty if there is none."""
    key = str(error["loc"][0]) if error["loc"] else "settings"
    what = str(error["msg"]).removeprefix("Value error, ")
    is_from_file = file and key not in flags and f"{ENV_PREFIX}{key}".upper() not in map(str.upper, os.environ)
    if error["type"] == "extra_forbidden":
        what = "there is no such setting"
        alike = key.lower().replace("-", "_")
        if alike in Settings.model_fields:
            what = f"{what}; did you mean {alike}?"
        return f"{redacted_value(key)} in {file}: {what}" if file else f"{redacted_value(key)}: {what}"
    if is_from_file:
        return f"{key} in {file}: {what}"
    return f"--{_FLAGS.get(key, key.replace('_', '-'))} ({ENV_PREFIX}{key.upper()}): {what}"
