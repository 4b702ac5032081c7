"""Reads the file of --tenants: which team or customer an API key belongs to."""

import tomllib
from pathlib import Path

import msgspec

from streamgauge.errors import UsageFault


def read_tenants(file: Path | None) -> dict[str, str]:
    """The tenants by credential_id; empty without a file. Raises UsageFault."""
    if file is None:
        return {}
    try:
        return msgspec.convert(tomllib.loads(file.read_bytes().decode()), dict[str, str])
    except OSError as error:
        raise UsageFault(f"--tenants {file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageFault(f'--tenants {file} must contain lines of the form credential_id = "tenant": {error}') from None
