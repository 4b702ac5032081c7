"""The settings of child processes, over a line of JSON."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from streamgauge.runtime.child import decode_settings, encode_settings


@dataclass(frozen=True)
class Group:
    file: Path | None = None


@dataclass(frozen=True)
class Child(Group):
    names: tuple[str, ...] = ()


@pytest.mark.parametrize("child", [Child(), Child(Path("/a b/c"), ("x", "\n"))])
def test_a_child_gets_the_settings_of_its_parent(child: Child) -> None:
    line = encode_settings(child)
    assert b"\n" not in line
    assert decode_settings(line, Child) == child


@pytest.mark.parametrize("line", [b"", b"{", b'{"file": 1}', b'{"names": "x"}', b"[]"])
def test_other_lines_are_an_error_of_decoding(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_settings(line, Child)
