"""A process that a fork starts is as one that is executed."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.forks import ChildPopen

pytestmark = pytest.mark.slow
FORKING = mock.patch.object(subprocess, "Popen", ChildPopen)


def started(module: str, kept: int) -> tuple[dict[str, Any], int | None]:
    """What a child finds that a running loop starts, and its exit code."""

    async def run() -> tuple[dict[str, Any], int | None]:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: None)
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, stdin=pipe, stdout=pipe, pass_fds=(kept,), process_group=0
        )
        assert child.stdout is not None
        found = json.loads(await child.stdout.readline() or "{}")
        await child.communicate(b"seven..")
        return found, child.returncode

    return asyncio.run(run())


def test_a_fork_finds_what_a_program_finds() -> None:
    with Path(os.devnull).open() as other, Path(os.devnull).open() as kept:
        logging.getLogger().addHandler(handler := logging.NullHandler())
        try:
            with FORKING:
                forked = started("tests.forked", kept.fileno())
        finally:
            logging.getLogger().removeHandler(handler)
        executed = started("tests.forked", kept.fileno())
        assert forked == executed
        assert forked[0]["descriptors"] == [0, 1, 2, kept.fileno()]
        assert other.fileno() not in forked[0]["descriptors"]
    assert (forked[0]["loop"], forked[1]) == ("ran", 7)


def test_an_exception_ends_it_as_a_program(capfd: pytest.CaptureFixture[str]) -> None:
    with Path(os.devnull).open() as kept, FORKING:
        assert started("tests.missing", kept.fileno()) == ({}, 1)
    assert "No module named" in capfd.readouterr().err
