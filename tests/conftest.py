"""What all tests share: their environment, the profiles of Hypothesis, the order of a run, and the logs of what failed."""

import functools
import gc
import itertools
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest import mock
from zlib import crc32

import certifi
import pytest

if TYPE_CHECKING:
    from streamgauge.core.record import Record

# A run of a few tests takes seconds: this module, and those below, import nothing that only some tests need.
pytest_plugins = ["tests.kafka_broker.fixtures", "tests.postgres.fixtures"]

HERE = Path(__file__).parent
# Folders whose tests are `slow`: nearly all of them start programs or compute for many seconds.
SLOW = tuple(
    HERE / name
    for name in (
        "audit/world",
        "bench",
        "blackbox",
        "chaos",
        "deploy",
        "differential",
        "faults",
        "fuzz",
        "install",
        "integration",
        "taps/contract",
        "taps/proxy/isolation",
        "taps/proxy/native",
        "worker/simulation",
        "worker/watchdog",
    )
)
# Fixtures that start a broker, and those that start another server or mount a disk: their tests are `slow` too.
BROKERS = frozenset({"kafka", "own_broker", "secured"})
SERVERS = BROKERS | {"own_postgres", "postgres", "small_disk"}
# Servers of a session whose tests are run by one process, so that they are started once.
SHARED = frozenset({"postgres", "secured"})

# Short tests of a module that are given to a test process together.
BATCH = 16

# How often the garbage collector runs in a test process (gc.set_threshold). As often as Python does it by itself, after 700
# new objects, it took a tenth of the CPU of the short tests, with Hypothesis's measurement of each run.
GARBAGE = (10_000, 20, 20)

# Examples that Hypothesis generates for each property, by profile (HYPOTHESIS_PROFILE).
EXAMPLES = {"few": 5, "tests": 20, "many": 100}

# The longest text or bytes that the id of a test shows (characters).
LONG_ID = 80

# What a failed test shows of each log (characters), and of how many: those written last.
LOG_TAIL, LOGS_SHOWN = 4_000, 8

_LAST_LINE = "-----END CERTIFICATE-----\n"

# A shell ignores Ctrl-C for what it runs in the background, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


# --- collection -----------------------------------------------------------------------------------------------------------


@functools.cache
def _set_up_hypothesis() -> None:
    """Registers the profiles: without deadlines, since machines are shared, and in CI with the same examples each time."""
    from hypothesis import settings

    for name, count in EXAMPLES.items():
        settings.register_profile(name, settings.default, deadline=None, max_examples=count)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Hypothesis is imported for the first module that uses it."""
    if "hypothesis" in module_path.read_text():
        _set_up_hypothesis()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names a long parameter by its argument: some have megabytes, and random bytes would differ between processes."""
    return argname if isinstance(val, bytes | str) and len(val) > LONG_ID else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m "not slow"` the modules of slow folders are not even imported."""
    return True if config.option.markexpr == "not slow" and collection_path in SLOW else None


def pytest_collection() -> None:
    """Stops the garbage collector: it would take a fifth of the time, and collected tests stay until the end."""
    gc.disable()


@functools.cache
def _is_in_a_slow_folder(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in SLOW)


def _shares_a_fixture(item: pytest.Function) -> bool:
    """Whether a fixture of the test is made once for its module."""
    return any(known[-1].scope == "module" for known in item._fixtureinfo.name2fixturedefs.values())


def _group(item: pytest.Item) -> str:
    """Tests that share what is costly to make are run by one process (`xdist_group`): its name, or "" for a test alone."""
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark else ""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests by their folder and fixtures, and orders them: the short ones come last, so that all processes of a run
    end at the same time.
    """
    for item in items:
        names = frozenset(getattr(item, "fixturenames", ()))
        if not SERVERS.isdisjoint(names) or _is_in_a_slow_folder(item.path):
            item.add_marker(pytest.mark.slow)
        if not BROKERS.isdisjoint(names):
            item.add_marker(pytest.mark.kafka)
        if _group(item):
            continue
        if shared := names & SHARED:
            item.add_marker(pytest.mark.xdist_group(min(shared)))
        elif isinstance(item, pytest.Function) and _shares_a_fixture(item):
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(HERE).as_posix()))
    if "PYTEST_XDIST_WORKER" in os.environ:
        _put_into_batches([item for item in items if not item.get_closest_marker("slow") and not _group(item)])
        items.sort(key=_turn)


def _put_into_batches(items: list[pytest.Item]) -> None:
    """Makes a group of each BATCH short tests of a module. pytest-xdist gives out one group at a time, and counts the tests
    of all groups that it has given out: with 6,000 groups that takes longer than most tests.
    """
    for module, tests in itertools.groupby(items, lambda item: item.nodeid.partition("::")[0]):
        for number, item in enumerate(tests):
            item.add_marker(pytest.mark.xdist_group(f"{module}-{number // BATCH}"))


def _turn(item: pytest.Item) -> tuple[int, int]:
    """When it is a test's turn: groups, other slow tests, short tests. Tests of one folder start the same programs, or wait
    in the same way: mixed, they want the cores at different moments.
    """
    turn = 2 if not item.get_closest_marker("slow") else 0 if _group(item) else 1
    return turn, crc32((_group(item) or item.nodeid).encode())


def pytest_collection_finish() -> None:
    """Exempts what was collected from garbage collection, which would take 0.4 s each time."""
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    gc.enable()
    # Test modules have read theirs when they were imported. The command line refuses unknown ones, and reads the others.
    for name in [name for name in os.environ if name.startswith("STREAMGAUGE_")]:
        del os.environ[name]


# --- a test ---------------------------------------------------------------------------------------------------------------

_runs_a_fast_test = False
# What Python, and tests/forks.py, report when they start a program.
STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.system", "tests.forks.start"})


def _refuse_programs(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: `make test-fast` takes a minute because no test in it starts a program."""
    # `file` tells platform.architecture of the interpreter, which Faust's libraries ask for at their import.
    if _runs_a_fast_test and event in STARTS and arguments[0] != "file":
        pytest.fail(f"a test that starts a program ({arguments[0]}) must be marked slow")


sys.addaudithook(_refuse_programs)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Holds that only slow tests start programs."""
    global _runs_a_fast_test  # noqa: PLW0603 - an audit hook has no other state
    _runs_a_fast_test = item.get_closest_marker("slow") is None
    try:
        return (yield)
    finally:
        _runs_a_fast_test = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test that failed shows the ends of the logs in its `tmp_path`, which pytest keeps for the next runs."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and folder is not None:
        logs = [log for pattern in ("*.log", "*.err") for log in folder.rglob(pattern) if log.stat().st_size]
        for log in sorted(logs, key=lambda log: log.stat().st_mtime)[-LOGS_SHOWN:]:
            report.sections.append((f"end of {log}", log.read_bytes()[-LOG_TAIL:].decode(errors="replace")))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Names a test as pytest takes it as an argument: pytest-xdist appends its group (`path::test[case]@group`)."""
    if "PYTEST_XDIST_WORKER" not in os.environ:  # it compares the names there
        name, at, group = report.nodeid.rpartition("@")
        report.nodeid = name if at and "]" not in group else report.nodeid


@pytest.fixture(scope="module", params=["C", "Python"])
def chunk_reader(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs a module's tests with the reader of chunks in C, if it was built, and with the one in Python."""
    from streamgauge.core.http1 import framing

    if request.param == "C" and framing.read_chunks is framing.read_in_python:
        pytest.skip("the reader in C is not built: it needs Linux and a C compiler")
    with mock.patch.object(
        framing, "read_chunks", framing.read_chunks if request.param == "C" else framing.read_in_python
    ):
        yield


@pytest.fixture
def a_record() -> "Record":
    """The record of one whole chat stream."""
    from streamgauge.core.assembly.assembler import Assembler
    from tests.streams import bundles_of, chat_segments

    assembler = Assembler()
    [record] = [
        one for at, bundle in enumerate(bundles_of(chat_segments(1))) for one in assembler.apply(at, at, bundle)
    ]
    return record
