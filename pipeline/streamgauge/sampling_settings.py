"""The settings of the recorder: which streams are captured in full, and whose they are. `config.py` has all others."""

import re
from dataclasses import dataclass

from streamgauge.setting_types import SettingType, declared, order

# The length is bounded: Python converts a very long number slowly.
_DECIMAL = re.compile(r"([0-9]{1,2}\.?[0-9]{0,15}|\.[0-9]{1,15})", re.ASCII)
_ALLOWED = "a number from 0 to 1"


def _read(value: object) -> float:
    if isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
        value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"give {_ALLOWED}")
    return float(value)


_SHARE = SettingType("SHARE", _read, _ALLOWED)
_COMMANDS = ("up", "tap", "up packets", "tap packets")


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """The recorder gets it."""

    full_share: float = declared(
        _SHARE,
        1.0,
        "with --capture full: the part of the streams whose text is kept; others are masked, and each stream has a record",
        _COMMANDS,
        "Capture",
    )
    # A client can write any header, but it has only the API keys that it was given.
    tenant_source: tuple[str, ...] = declared(
        order("client", "credential", "header"),
        ("credential", "header"),
        "where a request's tenant comes from, the first source that has one: `client`, the name of the authenticated client, "
        "`credential`, the API key's entry in --tenants, or `header`, --tenant-header",
        _COMMANDS,
        "Capture",
        default_text="credential,header",
    )
