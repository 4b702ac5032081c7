"""No regular expression of the package can take exponential time, whatever text it gets, and however it is used."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.security.regex_ambiguity import is_exponential

PACKAGE = Path(__file__).parents[2] / "pipeline" / "streamgauge"

# Imports every module, and prints the patterns that are compiled meanwhile from the package's own lines.
_IMPORTED = """
import importlib, json, pkgutil, re, sys, warnings
found = {}
compiled = re._compile
def watched(pattern, flags):
    caller = sys._getframe(2)
    file = caller.f_code.co_filename
    if "/streamgauge/" in file and isinstance(pattern, (str, bytes)):
        text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
        found[f"{file.rpartition('/streamgauge/')[2]}:{caller.f_lineno}", text] = int(flags)
    return compiled(pattern, flags)
re._compile = watched
import streamgauge
for module in pkgutil.walk_packages(streamgauge.__path__, "streamgauge."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError:
            pass  # an extra that is not installed
print(json.dumps([[where, text, flags] for (where, text), flags in found.items()]))
"""


class Found(NamedTuple):
    where: str
    text: str
    flags: int


def patterns() -> Iterator[Found]:
    done = subprocess.run([sys.executable, "-c", _IMPORTED], capture_output=True, text=True, check=True)
    yield from (Found(*one) for one in json.loads(done.stdout.splitlines()[-1]))
    # Those that are compiled when they are used.
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            called, first = node.func, node.args[0]
            if not (isinstance(called.value, ast.Name) and called.value.id == "re" and isinstance(first, ast.Constant)):
                continue
            if isinstance(first.value, str | bytes) and called.attr != "escape":
                text = first.value.decode("latin-1") if isinstance(first.value, bytes) else first.value
                yield Found(f"{path.relative_to(PACKAGE)}:{node.lineno}", text, 0)


@pytest.mark.slow
def test_no_pattern_of_the_package_is_exponential() -> None:
    every = list(patterns())
    assert len({found.text for found in every}) > 100
    assert [found for found in every if is_exponential(found.text, found.flags)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"(a*)*b",
        r"(a|aa)+$",
        r"(a|a)*$",
        r"(\w+\s?)*$",
        r"(?:a{1,3})+b",
        r"x(?=(a+)+$)",
        # Both were in this package, and only harmless since nothing followed them.
        r"(?:(?:(?::|id:|retry:)[^\r\n]*|[ \t]*)(?:\r\n|\n|\r))*",
        r"(?:[ \t]*(?:#[^\n]*)?\r?\n|%[^\n]*\n|---[ \t]*\r?\n)*",
    ],
)
def test_exponential_patterns_are_found(pattern: str) -> None:
    assert is_exponential(pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"a*b*", r"(ab|ac)*", r"(?:[^,]*,)*$", r"\d+(\.\d+)*", r"(?:-[a-z]*+)*", r"[a-z]+(?:-[a-z]+)*", r"(a*?b)+", ""],
)
def test_others_are_not(pattern: str) -> None:
    assert not is_exponential(pattern)
