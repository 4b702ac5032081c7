"""Builds the modules in C beside their sources, on Linux with a C compiler: the reader of chunks, and the relay's pump.

An editable installation runs it; wheels get the modules by `build_hook.py`. Where one cannot be built, Python does the same
work, more slowly.

    python scripts/build_native.py
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pipeline" / "streamgauge"
CHUNKS = PACKAGE / "core" / "http1" / "_chunks.c"
PUMP = PACKAGE / "taps" / "proxy" / "native" / "_pump.c"
SOURCES = (CHUNKS, PUMP)
_FLAGS = (
    *("-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration", "-shared", "-fPIC", "-pthread"),
    *("-fstack-protector-strong", "-Wl,-z,relro,-z,now"),
)


def module_of(source: Path) -> Path:
    """The module beside its source: one file for the stable interface of CPython 3.11, which all later versions have."""
    return source.with_suffix(".abi3.so")


def build(source: Path, built: Path | None = None, *more: str) -> str | None:
    """Builds a source as the file `built` (None: beside it). Returns the error as one sentence, or None. `more`: arguments
    for the compiler.

    After an error a file that was built from an older source is removed.
    """
    built = built or module_of(source)
    fault = _compile(source, built, *more)
    if fault is not None and built.exists() and built.stat().st_mtime < source.stat().st_mtime:
        built.unlink()
    return fault


def _compile(source: Path, built: Path, *more: str) -> str | None:
    if not sys.platform.startswith("linux"):
        return "it is built on Linux alone"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    made = built.with_name(f".{built.name}.{os.getpid()}")
    command = [*compiler, *_FLAGS, *more, f"-I{sysconfig.get_paths()['include']}", "-o", str(made), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            made.replace(built)
            return None
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return f"{compiler[0]} says: {next((line for line in lines if 'error' in line), lines[-1])}"
    except OSError as why:
        return f"no C compiler: {why}"
    finally:
        made.unlink(missing_ok=True)


if __name__ == "__main__":
    faults = [f"{source.name}: {fault}" for source in SOURCES if (fault := build(source)) is not None]
    sys.exit("\n".join(faults) or None)
