"""The line of JSON with which a parent gives a child process its settings: a dataclass, which may hold paths."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

Settings = TypeVar("Settings")


def encode_settings(settings: object) -> bytes:
    """The settings as JSON, without a line break."""
    return msgspec.json.encode(settings, enc_hook=str)


def decode_settings(line: bytes, kind: type[Settings]) -> Settings:
    """The settings in a line of JSON. Raises msgspec.DecodeError if they are not of this kind."""
    return msgspec.json.decode(line, type=kind, dec_hook=_path)


def _path(kind: type, value: Any) -> Path:
    if kind is not Path or not isinstance(value, str):
        raise ValueError(f"{kind.__name__} expected")
    return Path(value)
