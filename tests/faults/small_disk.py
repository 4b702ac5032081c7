"""A disk of a few MiB (tmpfs) that a test may fill, enlarge and make read-only. Only root may mount; others skip."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A mounted file system at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, size: str) -> None:
        self._remount(f"size={size}")

    def read_only(self) -> None:
        """Requires that no process has a file there open for writing."""
        self._remount("ro")

    def writable(self) -> None:
        self._remount("rw")

    @contextmanager
    def full(self) -> Iterator[None]:
        """Takes all of its space, also what other programs free meanwhile."""
        filler, over = self.path / "filler", threading.Event()

        def fill() -> None:
            with filler.open("wb", buffering=0) as file:
                while not over.is_set():
                    try:
                        file.write(bytes(4096))
                    except OSError:  # no space is left
                        over.wait(0.05)

        thread = threading.Thread(target=fill, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            filler.unlink()

    def _remount(self, option: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{option}", str(self.path)], check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    try:
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "spool-test", str(path)]
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as why:
        pytest.skip(f"no file system can be mounted here: {why}")
    yield SmallDisk(path)
    subprocess.run(["umount", "--lazy", str(path)], check=True, capture_output=True)
