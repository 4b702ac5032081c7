"""The image: its content, its user, and that the lock contains all that the package imports."""

import ast
import asyncio
import re
import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest

from streamgauge.cli.settings_sources import load
from streamgauge.config import Settings
from streamgauge.metrics.http_server import AdminServer, split_address
from streamgauge.metrics.prometheus import Metrics
from tests.deploy.composed import ROOT

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
# Instructions, with continued lines joined and comments left out.
LINES = [
    line
    for line in re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
    if line.strip()
]


def instructions(name: str) -> list[str]:
    return [line.partition(" ")[2] for line in LINES if line.partition(" ")[0] == name]


def plain(name: str) -> str:
    """A distribution's name in its one normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> set[str]:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return {plain(name) for name in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[a-z]+\])?==", lock, flags=re.MULTILINE)}


def imported() -> set[str]:
    """Top-level names that the package imports, its own and the standard library's left out."""
    names = set()
    for path in (ROOT / "pipeline").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"streamgauge", "streamgauge_demo"}


def test_image_runs_as_an_unprivileged_user() -> None:
    last_stage = DOCKERFILE.rpartition("FROM ")[2]
    (user,) = re.findall(r"^USER (\S+)", last_stage, flags=re.MULTILINE)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert f"--uid {user.partition(':')[0]} " in last_stage
    assert last_stage.index("USER") < last_stage.index("ENTRYPOINT")


def test_requirements_are_locked_by_hash() -> None:
    (install,) = [line for line in instructions("RUN") if "pip install" in line]
    assert "--require-hashes" in install
    assert "--no-deps" in install
    entries = re.split(r"^(?=\S+==)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert all("--hash=sha256:" in entry for entry in entries if "==" in entry.partition("\n")[0])


def test_the_lock_contains_everything_that_the_package_imports() -> None:
    known = packages_distributions()
    missing = {name for name in imported() if not {plain(dist) for dist in known.get(name, [])} & locked()}
    assert not missing


def test_base_images_have_a_version_and_are_slim() -> None:
    images = [line.split()[0] for line in instructions("FROM")]
    assert images
    assert all(re.fullmatch(r"python:3\.\d+-slim", image) for image in images)


def test_copied_files_exist_and_are_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    sources = {line.split()[0] for line in instructions("COPY") if "--from=" not in line}
    assert sources == kept
    assert all((ROOT / source).exists() for source in sources)
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines(), "nothing else goes into the build"


def health_command() -> list[str]:
    (health,) = instructions("HEALTHCHECK")
    command: list[str] = ast.literal_eval(health.partition(" CMD ")[2])
    assert command[0] == "python"
    return [sys.executable, *command[1:]]


def test_ports_are_those_of_the_settings() -> None:
    settings: Settings = load({})
    (exposed,) = instructions("EXPOSE")
    assert exposed.split() == [str(settings.listen.port), str(settings.admin.port)]
    assert f"'127.0.0.1', {settings.admin.port}," in health_command()[2]


def test_the_entry_point_is_our_command_line() -> None:
    (entry,) = instructions("ENTRYPOINT")
    assert ast.literal_eval(entry) == ["python", "-m", "streamgauge"]
    done = subprocess.run(
        [sys.executable, "-m", "streamgauge", *ast.literal_eval(instructions("CMD")[0])],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "pipeline"), "HOME": "/nonexistent"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage: streamgauge" in done.stdout


@pytest.mark.parametrize(("ready", "exit_code"), [(True, 0), (False, 1)])
def test_the_health_check_equals_that_of_the_admin_port(ready: bool, exit_code: int) -> None:
    async def run() -> int | None:
        async with AdminServer(Metrics(), lambda: ready) as server:
            await server.start("127.0.0.1:0")
            return await exit_code_of_health_check(split_address(server.address)[1])

    assert asyncio.run(run()) == exit_code


def test_health_check_fails_without_an_answer() -> None:
    assert asyncio.run(exit_code_of_health_check(1)) != 0


async def exit_code_of_health_check(port: int) -> int | None:
    """Run the image's own check, against another port than the image's."""
    *python, code = health_command()
    there = code.replace(f", {load({}).admin.port},", f", {port},")
    assert there != code
    environment = {"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
    process = await asyncio.create_subprocess_exec(*python, there, env=environment, stderr=asyncio.subprocess.DEVNULL)
    return await asyncio.wait_for(process.wait(), 60)
