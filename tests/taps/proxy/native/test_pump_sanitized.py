"""The modules in C under the compiler's sanitizers: no race, no invalid access, no undefined behaviour."""

import os
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PACKAGE = ROOT / "pipeline"
BUILD = ROOT / "scripts" / "build_native.py"
# A finding ends the process; what Python itself does not free at its end is not ours.
OPTIONS = {
    "TSAN_OPTIONS": "exitcode=66",
    "ASAN_OPTIONS": "detect_leaks=0:exitcode=66",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "PYTHONMALLOC": "malloc",
}


def runtime(library: str) -> str:
    """The sanitizer's own library, or a skip."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C compiler ({compiler[0]})")
    found = subprocess.run([*compiler, f"-print-file-name={library}"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    if not Path(path).is_absolute():
        pytest.skip(f"the compiler came without {library}")
    return path


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the pump needs Linux")
@pytest.mark.parametrize(("kind", "library"), [("thread", "libtsan.so"), ("address,undefined", "libasan.so")])
def test_no_sanitizer_finds_anything(kind: str, library: str, tmp_path: Path) -> None:
    preloaded = runtime(library)
    copy = tmp_path / "pipeline"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    native = runpy.run_path(str(BUILD))
    for source in native["SOURCES"]:
        built = copy / native["module_of"](source).relative_to(PACKAGE)
        sanitized = "-g", "-O1", f"-fsanitize={kind}", "-fno-sanitize-recover=undefined"
        assert native["build"](source, built, *sanitized) is None
    environment = os.environ | OPTIONS | {"LD_PRELOAD": preloaded, "PYTHONPATH": str(copy)}
    tests = [
        "tests/taps/proxy/test_pump_handle.py",
        "tests/taps/proxy/test_response.py",
        "tests/core/http1/test_framing.py",
    ]
    where = (
        "from streamgauge.taps.proxy.native import _pump; from streamgauge.core.http1 import _chunks;"
        "print(_pump.__file__, _chunks.__file__)"
    )
    for command, words in (
        (["-c", where], str(copy / "streamgauge" / "core" / "http1" / "_chunks.abi3.so")),
        (["-m", "pytest", "-q", "-n0", "-pno:cacheprovider", *tests], ""),
    ):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=170,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        assert words in done.stdout
