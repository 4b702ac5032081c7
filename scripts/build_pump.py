"""Builds the relay's part in C (taps/proxy/native/_pump.c) beside its sources, where there is Linux and a C compiler.

The installation of Streamgauge runs it. Where the pump cannot be built, the relay does the same work in Python, more slowly.

    python scripts/build_pump.py
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PLACE = ROOT / "pipeline" / "streamgauge" / "taps" / "proxy" / "native"
SOURCES = [PLACE / "_pump.c"]
# Run by the build hook, which has one file.
FETCH_UPLOT = ROOT / "scripts" / "fetch_uplot.py"
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


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, where the hook is not needed
    pass
else:

    class PumpHook(BuildHookInterface):  # type: ignore[type-arg]
        """The build hook of hatchling, which runs before it packs a wheel, also an editable one."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Builds the file, and adds it to the wheel; hatchling calls this before it builds the wheel. Adds uPlot, too."""
            fetched = subprocess.run([sys.executable, str(FETCH_UPLOT)], capture_output=True, text=True, check=False)
            if fetched.returncode != 0:
                why = fetched.stderr.strip().splitlines()
                self.app.display_warning(
                    f"without uPlot, the built-in page has no charts: {why[-1] if why else 'unknown'}"
                )
            build_data["artifacts"].append("pipeline/streamgauge/live/static/uplot/*")
            fault = build()
            if fault is not None:
                self.app.display_warning(f"without the pump, the proxy is slower: {fault}")
                return
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            build_data["artifacts"].append(str(BUILT.relative_to(ROOT)))


if __name__ == "__main__":
    sys.exit(build())
