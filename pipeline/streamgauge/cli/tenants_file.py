"""Reads the file of --tenants: which team or customer an API key belongs to."""

from pathlib import Path

import msgspec

from streamgauge.core.toml_text import NotTomlError, parse_toml
from streamgauge.errors import UsageFault


def read_tenants(file: Path | None, content: bytes | None = None) -> dict[str, str]:
    """The tenants by credential_id, of a file or of its earlier `content`; empty without a file. Raises UsageFault."""
    if file is None:
        return {}
    try:
        return msgspec.convert(parse_toml(file.read_bytes() if content is None else content), dict[str, str])
    except OSError as error:
        raise UsageFault(f"--tenants {file} cannot be read: {error.strerror}") from None
    except (NotTomlError, msgspec.ValidationError) as error:
        raise UsageFault(f'--tenants {file} must contain lines of the form credential_id = "tenant": {error}') from None
