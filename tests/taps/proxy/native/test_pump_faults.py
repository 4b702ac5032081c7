"""The pump when the system refuses or delays something: the cases of pump_faults.py, each in a process."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streamgauge.taps.proxy import pump_handle

if not pump_handle.BUILT:
    pytest.skip("the pump is not built: it needs Linux and a C compiler", allow_module_level=True)

from tests.taps.proxy.native.pump_faults import CASES  # needs the pump

ROOT = Path(__file__).parents[4]
SOURCE = Path(__file__).with_name("faulty_libc.c")


@pytest.fixture(scope="module")
def faulty_libc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shlex.split(os.environ.get("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no C compiler ({compiler[0]})")
    built = tmp_path_factory.mktemp("libc") / "faulty_libc.so"
    command = [*compiler, "-O1", "-shared", "-fPIC", "-fno-builtin", "-o", str(built), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "__libc_malloc" in done.stderr:
        pytest.skip("the C library is not glibc")
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.parametrize("case", [case.__name__ for case in CASES])
def test_f7_the_pump_works_without_what_the_system_refuses(case: str, faulty_libc: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.taps.proxy.native.pump_faults", case],
        cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(faulty_libc)},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert (done.returncode, done.stdout) == (0, "ended well\n"), done.stdout + done.stderr
