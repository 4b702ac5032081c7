"""Builds the relay's part in C (taps/proxy/native/_pump.c) beside its sources, where there is Linux and a C compiler.

An editable installation runs it; wheels get it by `build_hook.py`. Where the pump cannot be built, the relay does the same
work in Python, more slowly.

    python scripts/build_pump.py
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACE = ROOT / "pipeline" / "streamgauge" / "taps" / "proxy" / "native"
SOURCES = [PLACE / "_pump.c"]
# Built for the stable interface of CPython 3.11: one file for this and all later versions.
BUILT = PLACE / "_pump.abi3.so"
_FLAGS = (
    *("-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration", "-shared", "-fPIC", "-pthread"),
    *("-fstack-protector-strong", "-Wl,-z,relro,-z,now"),
)


def build(built: Path = BUILT, *more: str) -> str | None:
    """Builds the pump as the file `built`. Returns the error as one sentence, or None. `more`: arguments for the compiler.

    After an error a file that was built from older sources is removed.
    """
    fault = _compile(built, *more)
    newest = max(source.stat().st_mtime for source in SOURCES)
    if fault is not None and built.exists() and built.stat().st_mtime < newest:
        built.unlink()
    return fault


def _compile(built: Path, *more: str) -> str | None:
    if not sys.platform.startswith("linux"):
        return "the pump needs Linux (epoll)"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    made = built.with_name(f".{built.name}.{os.getpid()}")
    command = [*compiler, *_FLAGS, *more, f"-I{sysconfig.get_paths()['include']}", "-o", str(made), *map(str, SOURCES)]
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
    sys.exit(build())
