"""What all tests share."""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import certifi
import pytest
from hypothesis import settings

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.record import Record
from tests import fast, kept_logs
from tests.cores import Cores
from tests.few import examples
from tests.spreading import ByCost
from tests.streams import bundles_of, chat_segments

# No test is timed: machines are shared. What the environment chose beside that (in CI the same examples each time) stays.
settings.register_profile("untimed", settings.default, deadline=None, max_examples=examples(100))
settings.load_profile("untimed")

# A shell ignores Ctrl-C for what it runs in the background, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.kafka_broker.fixtures", "tests.postgres.fixtures"]

_LAST_LINE = "-----END CERTIFICATE-----\n"

_NO_PROCESSES = pytest.StashKey[fast.NoProcesses]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only tests that start no process and compute briefly")


def pytest_configure(config: pytest.Config) -> None:
    # No test, and no program that it starts, uses the default data directory of the user who runs it. No fixture sets this,
    # because test modules read the environment when they are imported.
    folder = TemporaryDirectory(prefix="streamgauge-tests-")
    config.add_cleanup(folder.cleanup)
    os.environ["XDG_STATE_HOME"] = folder.name
    # Each process that imports aiohttp, and each HTTP client, loads all certificate authorities of the system. One is enough:
    # no test meets a certificate of any of them.
    authority = Path(folder.name, "authority.pem")
    authority.write_text("".join(Path(certifi.where()).read_text().partition(_LAST_LINE)[:2]))
    os.environ |= {"SSL_CERT_FILE": str(authority), "SSL_CERT_DIR": folder.name}
    if config.getoption("--fast"):
        config.stash[_NO_PROCESSES] = fast.NoProcesses()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A slow file or folder is not even imported."""
    if config.getoption("--fast") and fast.is_slow(collection_path.relative_to(config.rootpath).as_posix()):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fast"):
        slow = [item for item in items if fast.is_slow(item.nodeid, getattr(item, "fixturenames", ()))]
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=slow)


def _forget_variables() -> None:
    """Test modules have read theirs when they were imported. The command line refuses unknown ones, and reads the others."""
    for name in [name for name in os.environ if name.startswith("STREAMGAUGE_")]:
        del os.environ[name]


def pytest_collection() -> None:
    """Nothing that is collected becomes garbage: to look for some takes a fifth of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What was collected stays until the end: to visit it takes the garbage collector 0.4 s each time."""
    gc.enable()
    _forget_variables()
    gc.collect()
    gc.freeze()


def _without_processes(item: pytest.Item) -> Generator[None, Any, Any]:
    """With `--fast`, a test that starts a process fails."""
    if _NO_PROCESSES not in item.config.stash:
        return (yield)
    with item.config.stash[_NO_PROCESSES].refused():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _without_processes(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _without_processes(item))


_CORES = Cores()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """In a run of several test processes, a test that starts programs begins, with its limit of time, when the cores have
    room.
    """
    if "PYTEST_XDIST_WORKER" in os.environ and fast.is_slow(item.nodeid, getattr(item, "fixturenames", ())):
        _CORES.wait_for_room()
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByCost | None:
    return ByCost(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> Generator[None, Any, Any]:
    """A test that failed shows the ends of its processes' logs, and keeps them."""
    report = yield
    if report.failed:
        report.sections += kept_logs.keep(f"{item.nodeid}-{call.when}", getattr(item, "funcargs", {}).get("tmp_path"))
    if call.when == "teardown":
        kept_logs.forget()
    return report


@pytest.fixture
def a_record() -> Record:
    """The record of one whole chat stream."""
    assembler = Assembler()
    [record] = [
        one for at, bundle in enumerate(bundles_of(chat_segments(1))) for one in assembler.apply(at, at, bundle)
    ]
    return record
