"""The pump is built for CPython's stable ABI: built with any later CPython's headers, it runs on this one."""

import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
BUILD = ROOT / "scripts" / "build_native.py"
INCLUDE = "import sysconfig; print(sysconfig.get_paths()['include'])"

# Each function that returns None is called more often than None has references in a new interpreter.
CALLS = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("_pump", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
def calls(count):
    for _ in range(count):
        pump.recall(1 << 32)
        pump.send_at_once()
        pump.close()
        assert module.follow(1, 0, b"no chunk size", 0) is None
pump = module.Pump(1 << 20, 4096, 10**9, memoryview(bytearray(8)))
calls(1)
before = sys.getrefcount(None)
calls(50_000)
print(sys.getrefcount(None) - before)
"""


def includes() -> list[str]:
    """Folders with headers of CPython 3.11 and later: this one's, and those of other installed interpreters."""
    found = {sysconfig.get_paths()["include"]}
    pythons = [shutil.which(f"python3.{minor}") for minor in range(11, 20)]
    for python in [*filter(None, pythons), *(Path.home() / ".pyenv" / "versions").glob("3.1[1-9].*/bin/python3")]:
        result = subprocess.run([python, "-c", INCLUDE], capture_output=True, text=True, check=False)  # type: ignore[list-item]
        found.add(result.stdout.strip())
    return sorted(one for one in found if one and (Path(one) / "Python.h").exists())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the pump needs Linux (epoll)")
def test_none_keeps_its_references(tmp_path: Path) -> None:
    native = runpy.run_path(str(BUILD))
    for number, include in enumerate(includes()):
        built = tmp_path / str(number) / "_pump.abi3.so"
        built.parent.mkdir()
        assert native["build"](native["PUMP"], built, f"-I{include}") is None
        done = subprocess.run([sys.executable, "-c", CALLS, str(built)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), include
        assert re.fullmatch(r"-?\d\n", done.stdout), (include, done.stdout)
