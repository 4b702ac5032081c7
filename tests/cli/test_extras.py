"""A plain installation has what `tap` needs, and each command whose extra is missing says which one, in one sentence."""

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from scripts.installed_packages import ROOT, closure, project, requirements_of

from streamgauge.cli.commands import COMMANDS, STREAMGAUGE
from streamgauge.cli.extras import MODULES
from streamgauge.errors import DONE, FOUND, UNAVAILABLE
from tests.running import PATIENCE_S

pytestmark = pytest.mark.slow

# Commands that do their work with a plain installation; what they import must be in it.
PLAIN = (
    "tap", "tap packets", "topics create", "topics describe", "deadletter list", "replay", "recount", "assets", "config show",
    "config check", "doctor",
)  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For "" and for each extra a folder with links to the packages that an installation with it has."""
    folders = {}
    for extra in ("", *MODULES):
        folder = folders[extra] = tmp_path_factory.mktemp(f"extra-{extra}")
        for name in closure(requirements_of(extra)):
            tops = {Path(file).parts[0] for file in distribution(name).files or () if not str(file).startswith("..")}
            for top in tops:
                found = Path(str(distribution(name).locate_file(top)))
                if found.exists() and not (folder / top).exists():
                    (folder / top).symlink_to(found)
    return folders


def python(packages: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python with these packages and ours, and no others."""
    command = ["env", "-i", f"PYTHONPATH={packages}:{ROOT / 'pipeline'}", f"HOME={packages}"]
    command += [sys.executable, "-S", "-P", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


PROCESSES = (
    "taps.proxy.__main__",
    "taps.packets.process",
    "cli.collector",
    "cli.shipping",
    "taps.httpx",
    "taps.boto3",
    "taps.asgi",
    "live.http_pages",
)


def test_a_plain_installation_imports_a_tap_and_its_processes(installed: dict[str, Path]) -> None:
    modules = [*(f"cli.{COMMANDS[path].module}" for path in PLAIN), *PROCESSES]
    done = python(installed[""], "-c", "\n".join(f"import streamgauge.{module}" for module in modules))
    assert (done.returncode, done.stderr) == (DONE, "")


def test_a_collector_does_not_import_the_command_line(installed: dict[str, Path]) -> None:
    """The declarations of all commands were an eighth of what it imported, and each start of a tap waits for that."""
    program = "import streamgauge.cli.collector, streamgauge.cli.shipping, sys; print('click' in sys.modules)"
    assert python(installed[""], "-c", program).stdout == "False\n"


def test_the_help_of_each_command_needs_no_extra(installed: dict[str, Path]) -> None:
    calls = [["--help"], *([*path.split(), "--help"] for path in COMMANDS)]
    program = f"from streamgauge.cli.main import main\nfor words in {calls!r}:\n    assert main(words) == 0, words\n"
    done = python(installed[""], "-c", program)
    assert (done.returncode, done.stderr) == (DONE, "")
    assert done.stdout.count("Usage: streamgauge") == len(calls)


NEEDED = {
    "ledger export": ["records.csv"],
    "ledger budgets": ["budgets.toml"],
    "ledger show": ["id"],
    "audit fetch": ["openai"],
}


def test_a_command_without_its_extra_names_it(installed: dict[str, Path]) -> None:
    paths = [path for path in COMMANDS if path.split()[0] in MODULES]
    calls = [[*path.split(), *NEEDED.get(path, [])] for path in paths]
    run = f"for words in {calls!r}:\n    assert main(words) == {UNAVAILABLE}, words\n"
    program = f"from streamgauge.cli.main import main\n{run}"
    done = python(installed[""], "-c", program)
    assert (done.returncode, done.stdout) == (DONE, "")
    lines = done.stderr.splitlines()
    for path, line in zip(paths, lines, strict=True):
        extra = path.split()[0]
        assert line.startswith(f"streamgauge {extra}")
        assert line.endswith(f": this command requires the extra `{extra}`: run pip install 'streamgauge[{extra}]'")


@pytest.mark.parametrize("extra", MODULES)
def test_an_extra_brings_what_its_command_imports(extra: str, installed: dict[str, Path]) -> None:
    modules = sorted({one.module for path, one in COMMANDS.items() if path.split()[0] == extra})
    more = ["streamgauge.ledger.sqlite, genai_prices"] if "sqlalchemy" in MODULES[extra] else []
    more += ["streamgauge_demo.run, streamgauge_demo.driver, anthropic, openai"] if extra == "demo" else []
    imports = [f"streamgauge.cli.{module}" for module in modules] + more
    done = python(installed[extra], "-c", "\n".join(f"import {one}" for one in imports))
    assert (done.returncode, done.stderr) == (DONE, "")


def test_each_extra_of_a_command_exists() -> None:
    provided = set(project()["optional-dependencies"])
    assert set(MODULES) <= set(STREAMGAUGE.commands)
    assert (
        set(MODULES) | {"envoy", "otlp", "packets", "parquet", "postgres", "recount", "records", "replay", "all"}
        == provided
    )


@pytest.mark.parametrize("command", ["up", "worker"])
def test_the_doctor_of_a_plain_installation_names_the_extra(
    command: str, installed: dict[str, Path], tmp_path: Path
) -> None:
    options = ["--admin", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    done = python(installed[""], "-m", "streamgauge", "doctor", command, *options)
    assert (done.returncode, done.stderr) == (FOUND, "")
    assert "please report it" not in done.stdout
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for check, what in (("settings", f"`{command}`"), ("ledger", "the ledger")):
        cure = f"cure: run pip install 'streamgauge[{command}]'"
        assert f"fail {check} {what} requires the extra `{command}`; {cure}" in lines, check


CASSETTE = """\
interactions:
- request: {method: POST, uri: http://x/v1/chat/completions, body: '', headers: {}}
  response: {status: {code: 200, message: OK}, headers: {}, body: {string: ''}}
version: 1
"""


def test_formats_without_their_extra_name_it(installed: dict[str, Path], tmp_path: Path) -> None:
    cassette = tmp_path / "cassette.yaml"
    cassette.write_text(CASSETTE)
    done = python(installed[""], "-m", "streamgauge", "replay", str(cassette))
    says = "streamgauge replay: a cassette in YAML requires the extra `replay`: run pip install 'streamgauge[replay]'\n"
    assert (done.returncode, done.stderr) == (UNAVAILABLE, says)
    done = python(installed["ledger"], "-m", "streamgauge", "ledger", "query", "--ledger", "postgresql://h/d")
    says = "a ledger in PostgreSQL requires the extra `postgres`: run pip install 'streamgauge[postgres]'\n"
    assert (done.returncode, done.stderr) == (UNAVAILABLE, f"streamgauge ledger: {says}")
    done = python(installed["ledger"], "-c", "from streamgauge.cli.ledger import _writer; _writer('parquet')")
    assert "MissingExtra: Parquet requires the extra `parquet`: run pip install 'streamgauge[parquet]'" in done.stderr
    done = python(
        installed[""], "-c", "from streamgauge.ledger import open_ledger; open_ledger('sqlite:///ledger.sqlite')"
    )
    assert "MissingExtra: a ledger requires the extra `ledger`: run pip install 'streamgauge[ledger]'" in done.stderr
    done = python(installed[""], "-c", "import streamgauge.records")
    assert "ModuleNotFoundError: streamgauge.records requires the extra `records`: run pip install" in done.stderr
