"""The image: its content, its user, and that the lock contains all that the package imports."""

import ast
import asyncio
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
import trustme
from packaging.requirements import Requirement
from scripts.locked import locked as entries_of

from streamgauge.metrics.admin_access import Access
from streamgauge.metrics.http_server import AdminAddressError, AdminServer, split_address
from streamgauge.metrics.prometheus import Metrics
from streamgauge.runtime.certificates import ServerCertificate
from streamgauge.settings.declarations import WORKER_ADMIN, Settings
from streamgauge.settings.sources import load
from tests.deploy.composed import ROOT
from tests.deploy.tools import run

PATH = ROOT / "deploy" / "Dockerfile"
DOCKERFILE = PATH.read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HEALTH = ROOT / "deploy" / "health.py"
# What users install themselves: `recount` names it where a model's tokenizer.json needs it.
OF_NO_EXTRA = {"tokenizers"}
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
    pips = [one.strip() for line in instructions("RUN") for one in line.split("&&") if re.match(r"\s*pip\b", one)]
    from_network = [one for one in pips if "--no-index" not in one and "--no-build-isolation" not in one]
    assert len(pips) == len(from_network) + 2, "our own wheel, and what is installed without the network"
    assert from_network
    assert all("--require-hashes" in one and "--no-deps" in one for one in from_network)
    entries = re.split(r"^(?=\S+==)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert all("--hash=sha256:" in entry for entry in entries if "==" in entry.partition("\n")[0])


def test_what_builds_the_wheel_is_locked_with_all_that_it_needs() -> None:
    (line,) = [line for line in instructions("RUN") if "locked.py" in line]
    names = re.search(r"locked\.py requirements-dev\.lock ([a-z -]+) >", line)
    assert names
    needed, more = set(), {Requirement(one).name for one in PROJECT["build-system"]["requires"]}
    while more:
        needed |= more
        of_them = [Requirement(one) for name in more for one in requires(name) or ()]
        more = {one.name for one in of_them if not one.marker or one.marker.evaluate()} - needed
    assert set(names[1].split()) == needed
    lines = entries_of((ROOT / "requirements-dev.lock").read_text(encoding="utf-8"), sorted(needed)).splitlines()
    assert len([line for line in lines if "==" in line]) == len(needed)
    assert len([line for line in lines if "--hash=sha256:" in line]) >= len(needed)


def test_the_extras_exist() -> None:
    (extras,) = [value for value in instructions("ARG") if value.startswith("EXTRAS=")]
    assert set(extras.partition("=")[2].split(",")) <= PROJECT["project"]["optional-dependencies"].keys()


def test_the_lock_contains_everything_that_the_package_imports() -> None:
    known = packages_distributions()
    missing = {
        name for name in imported() - OF_NO_EXTRA if not {plain(dist) for dist in known.get(name, [])} & locked()
    }
    assert not missing


def test_the_base_image_is_slim_and_pinned_by_digest() -> None:
    assert {line.split()[0] for line in instructions("FROM")} == {"${PYTHON}"}
    (image,) = [value for value in instructions("ARG") if value.startswith("PYTHON=")]
    assert re.fullmatch(r"PYTHON=python:3\.\d+-slim@sha256:[0-9a-f]{64}", image)


def test_the_last_stage_has_no_compiler_and_installs_nothing() -> None:
    last_stage = DOCKERFILE.rpartition("FROM ")[2]
    assert "apt-get" not in last_stage
    assert "pip" not in last_stage
    assert set(re.findall(r"^COPY (\S+)", last_stage, flags=re.MULTILINE)) == {"--from=build"}


def test_copied_files_exist_and_are_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    sources = {word for line in instructions("COPY") if "--from=" not in line for word in line.split()[:-1]}
    assert {one for one in sources if one != "scripts/locked.py"} == kept
    assert all((ROOT / source).exists() for source in sources)
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines(), "nothing else goes into the build"
    packed = {one.removeprefix("/") for one in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    missing = [one for one in packed if one not in sources and one.partition("/")[0] not in sources]
    assert missing == [], "what the wheel is built from"


def test_hadolint_finds_nothing() -> None:
    done = run("hadolint", "--no-color", PATH)
    assert done.returncode == 0, done.stdout


def test_ports_are_those_of_the_settings() -> None:
    settings: Settings = load({})
    (exposed,) = instructions("EXPOSE")
    admins = [settings.admin.port, WORKER_ADMIN.port]
    assert exposed.split() == [str(settings.listen.port), *map(str, admins)]
    assert f"DEFAULTS = ({admins[0]}, {admins[1]})" in HEALTH.read_text()


def test_the_health_check_is_the_script_that_is_copied() -> None:
    (health,) = instructions("HEALTHCHECK")
    _, path = ast.literal_eval(health.partition(" CMD ")[2])
    assert f"deploy/{HEALTH.name} {path}" in instructions("COPY")
    timeout = re.search(r"--timeout=(\d+)s", health)
    of_a_port = re.search(r"TIMEOUT_S = (\d+)", HEALTH.read_text())
    assert timeout
    assert of_a_port
    assert int(timeout[1]) > 2 * int(of_a_port[1])


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
    assert "Usage: streamgauge" in done.stdout


@pytest.mark.parametrize(("ready", "exit_code"), [(True, 0), (False, 1)])
def test_the_health_check_equals_that_of_the_admin_port(ready: bool, exit_code: int) -> None:
    async def run_it() -> int | None:
        async with AdminServer(Metrics(), lambda: ready) as server:
            await server.start("127.0.0.1:0")
            return await exit_code_of_health_check(f"0.0.0.0:{split_address(server.address)[1]}")

    assert asyncio.run(run_it()) == exit_code


def test_the_health_check_speaks_tls(tmp_path: Path) -> None:
    certificate = tmp_path / "admin.pem"
    trustme.CA().issue_cert("tap.internal").private_key_and_cert_chain_pem.write_to_path(certificate)

    async def run_it() -> int | None:
        access = Access(None, ServerCertificate(certificate, None))
        async with AdminServer(Metrics(), lambda: True, access=access) as server:
            await server.start("127.0.0.1:0")
            admin = f"0.0.0.0:{split_address(server.address)[1]}"
            return await exit_code_of_health_check(admin, STREAMGAUGE_ADMIN_TLS_CERTIFICATE=str(certificate))

    assert asyncio.run(run_it()) == 0


@pytest.mark.parametrize(("listens", "given"), [("127.0.0.2", "127.0.0.2"), ("[::1]", "[::1]"), ("[::1]", "[::]")])
def test_the_health_check_asks_the_address_of_the_admin_port(listens: str, given: str) -> None:
    async def run_it() -> int | None:
        async with AdminServer(Metrics(), lambda: True) as server:
            try:
                await server.start(f"{listens}:0")
            except AdminAddressError as error:
                pytest.skip(str(error))
            return await exit_code_of_health_check(f"{given}:{split_address(server.address)[1]}")

    assert asyncio.run(run_it()) == 0


def test_health_check_fails_without_an_answer() -> None:
    assert asyncio.run(exit_code_of_health_check("0.0.0.0:1")) == 1


async def exit_code_of_health_check(admin: str, **more: str) -> int | None:
    """Run the image's own check, for the process that has this admin address."""
    environment = {
        "http_proxy": "http://127.0.0.1:1",
        "HTTP_PROXY": "http://127.0.0.1:1",
        "STREAMGAUGE_ADMIN": admin,
        **more,
    }
    process = await asyncio.create_subprocess_exec(sys.executable, HEALTH, env=environment)
    return await asyncio.wait_for(process.wait(), 60)
